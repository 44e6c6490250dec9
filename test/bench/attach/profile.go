/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attach

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/hawser-io/hawser/test/bench/attach/cluster"
)

// profiles takes CPU profiles of the API server and of Hawser's manager while a phase begins. It returns a
// function that waits for them.
func (b *bench) profiles(ctx context.Context, a *arena, phase string) (wait func()) {
	if b.profile == 0 {
		return func() {}
	}
	servers := map[string]*rest.Config{"apiserver": b.cluster.Instruments()}
	if strings.HasPrefix(a.name, "hawser-") {
		servers["manager"] = &rest.Config{Host: "http://" + pprofAddress} // does not get the instruments' token
	}
	var running sync.WaitGroup
	for name, config := range servers {
		running.Go(func() {
			path := filepath.Join(b.cluster.Dir(), strings.Join([]string{a.name, phase, name}, "-")+".pprof")
			profile := fmt.Sprintf("/debug/pprof/profile?seconds=%.0f", b.profile.Seconds())
			if err := download(ctx, config, profile, path); err != nil {
				b.say("  no profile: %v", err)
			}
		})
	}
	return running.Wait
}

// pprofAddress is where the manager serves its profiles.
const pprofAddress = "127.0.0.1:16060"

func download(ctx context.Context, config *rest.Config, path, file string) error {
	data, err := cluster.Get(ctx, config, path)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return fmt.Errorf("writing the profile: %w", err)
	}
	return nil
}
