/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attach

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
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
			url := fmt.Sprintf("%s/debug/pprof/profile?seconds=%.0f", strings.TrimSuffix(config.Host, "/"), b.profile.Seconds())
			if err := download(ctx, config, url, path); err != nil {
				b.say("  no profile: %v", err)
			}
		})
	}
	return running.Wait
}

// pprofAddress is where the manager serves its profiles.
const pprofAddress = "127.0.0.1:16060"

func download(ctx context.Context, config *rest.Config, url, path string) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("getting %s: %w", url, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("getting %s: %w", url, err)
	}
	defer func() { _ = response.Body.Close() }() // only read
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("reading %s: %w", url, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", url, response.Status)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("writing the profile: %w", err)
	}
	return nil
}
