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

	"github.com/hawser-io/hawser/hack/localcluster/internal/csiclient"
	"github.com/hawser-io/hawser/hack/localcluster/internal/kubelet"
	"github.com/hawser-io/hawser/hack/localcluster/internal/provisioner"
	"github.com/hawser-io/hawser/hack/localcluster/internal/resizer"
)

// RunNodeParts plays the kubelets of the nodes, and the provisioner and the resizer of each driver,
// until the context ends.
func RunNodeParts(ctx context.Context, l Layout, nodes []string, controllerSockets map[string]string, log *slog.Logger) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	defer group.Wait()

	for driver, socket := range controllerSockets {
		run, err := storage(l, driver, socket, log)
		if err != nil {
			cancel(err)
			return err
		}
		group.Go(func() { run(ctx) })
	}
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
				cancel(err) // one node that cannot be played is better seen than left out
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

// storage prepares the provisioner and the resizer of a driver, each as its own user.
func storage(l Layout, driver, socket string, log *slog.Logger) (func(context.Context), error) {
	connection, err := csiclient.Dial(socket)
	if err != nil {
		return nil, err
	}
	controller := csiclient.NewController(connection)
	provisionerClient, err := Client(l.Kubeconfig("provisioner"))
	if err != nil {
		return nil, fmt.Errorf("preparing the provisioner: %w", err)
	}
	resizerClient, err := Client(l.Kubeconfig("resizer"))
	if err != nil {
		return nil, fmt.Errorf("preparing the resizer: %w", err)
	}
	log = log.With("driver", driver)
	provisions := provisioner.New(driver, provisionerClient, controller, log.With("part", "provisioner"))
	resizes := resizer.New(driver, resizerClient, controller, log.With("part", "resizer"))
	return func(ctx context.Context) {
		var group sync.WaitGroup
		group.Go(func() { provisions.Run(ctx) })
		group.Go(func() { resizes.Run(ctx) })
		group.Wait()
		_ = connection.Close() // all calls have returned
	}, nil
}
