/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/hawser-io/hawser/hack/localcluster/internal/kubelet"
)

// RunNodeParts simulates the kubelets of the nodes until the context ends.
func RunNodeParts(ctx context.Context, l Layout, nodes []string, log *slog.Logger) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	defer group.Wait()

	for _, node := range nodes {
		client, err := Client(l.KubeletKubeconfig(node))
		if err != nil {
			cancel(err)
			return err
		}
		serverVersion, err := client.Discovery().ServerVersion()
		if err != nil {
			err = fmt.Errorf("asking for the version: %w", err)
			cancel(err)
			return err
		}
		played := &kubelet.Kubelet{
			Node:     node,
			Version:  serverVersion.GitVersion,
			Registry: filepath.Join(l.KubeletDir(node), "plugins_registry"),
			Silence:  l.Silence(node),
			Client:   client,
			Log:      log.With("node", node),
		}
		group.Go(func() {
			if err := played.Run(ctx); err != nil {
				cancel(err) // a node that cannot be simulated must fail visibly
			}
		})
	}
	<-ctx.Done()
	group.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}
