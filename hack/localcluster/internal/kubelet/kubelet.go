/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package kubelet simulates the parts of a kubelet that volumes need and that Hawser does not replace. It registers the
// Node, keeps its heartbeat, and lists the CSI drivers that register themselves. It never mounts anything.
package kubelet

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
)

// Kubelet of one node.
type Kubelet struct {
	// Node is the name of the Node object.
	Node string
	// Version is reported as the kubelet's version.
	Version string
	// Registry is the directory of the drivers' registration sockets.
	Registry string
	// Silence is a file. While it exists, the node sends no heartbeat and reports nothing.
	Silence string
	Client  kubernetes.Interface
	Log     *slog.Logger
}

// Run simulates the node until the context ends.
func (k *Kubelet) Run(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(k.Client, 0,
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector("metadata.name", k.Node).String()
		}))
	heart := newHeart(k, factory.Core().V1().Nodes())
	drivers, err := newRegistrar(k)
	if err != nil {
		return err
	}
	defer drivers.close()

	if err := k.register(ctx); err != nil {
		return fmt.Errorf("registering node %s: %w", k.Node, err)
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()

	var group sync.WaitGroup
	group.Go(func() { heart.run(ctx) })
	group.Go(func() { drivers.run(ctx) })
	group.Wait()
	return nil
}
