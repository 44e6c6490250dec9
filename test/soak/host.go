/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/hawser-io/hawser/internal/controller"
	"github.com/hawser-io/hawser/internal/driver/csi"
	"github.com/hawser-io/hawser/test/soak/kubelet"
)

// host is the part of a node that the soak simulates: its kubelet.
type host struct {
	*soak
	node     string
	registry *csi.Registry

	mu sync.Mutex
	// end stops the running kubelet; nil if none runs.
	end func()
}

func newHost(s *soak, node string, _ uint64) (*host, error) {
	registry, err := csi.NewRegistry(csi.Options{KubeletDir: s.sys.KubeletDir(node)})
	if err != nil {
		return nil, fmt.Errorf("finding the drivers of node %s: %w", node, err)
	}
	return &host{soak: s, node: node, registry: registry}, nil
}

// startKubelet runs a kubelet that starts with the records on disk only. In Coexist it first reports the volumes of its
// records as in use, because upstream relies on the kubelet's list.
func (h *host) startKubelet(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	k := &kubelet.Kubelet{Node: h.node, Dir: h.sys.KubeletDir(h.node), Client: h.sys.Client, Drivers: h.registry,
		Recalls: h.Mode == controller.Coexist, Log: h.out}
	var group sync.WaitGroup
	for _, run := range []func(context.Context) error{h.registry.Start, k.Run} {
		group.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				h.fail(fmt.Errorf("the kubelet of %s: %w", h.node, err))
			}
		})
	}
	h.end = func() { cancel(); group.Wait() }
}

// stopKubelet stops the kubelet at any point, including its driver calls.
func (h *host) stopKubelet() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end != nil {
		h.end()
		h.end = nil
	}
}
