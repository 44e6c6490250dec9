/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/hawser-io/hawser/internal/controller"
	"github.com/hawser-io/hawser/internal/controller/cached"
)

// managed is a manager.Manager whose live reads, and events, go to the world.
type managed struct {
	manager.Manager
	live live
}

func (m managed) GetAPIReader() client.Reader { return m.live }

func (m managed) GetEventRecorder(string) recorder.EventRecorder { return silent{} }

// silent drops events.
type silent struct{}

func (silent) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

func (silent) AnnotatedEventf(
	runtime.Object, runtime.Object, map[string]string, string, string, string, string, ...any,
) {
}

// inForce stands for admission policies.
type inForce struct{}

func (inForce) Missing() string { return "" }

func (inForce) Changed() <-chan event.GenericEvent { return make(chan event.GenericEvent) }

// manage has a manager lead, some time after the one before it is gone.
func (w *World) manage() {
	w.mu.Lock()
	w.managers++
	name := fmt.Sprintf("manager %d", w.managers)
	w.mu.Unlock()
	p := w.process(name, managerKilled, func() {
		w.later(w.chance.between("manager", time.Second, 20*time.Second), w.manage)
	})
	w.mu.Lock()
	w.leader = p
	p.tired.Store(w.heir)
	w.heir = nil
	w.mu.Unlock()
	mode := controller.Coexist
	if w.replace {
		mode = controller.Replace
	}
	c := live{p}
	mgr, err := manager.New(nowhere, manager.Options{
		Scheme: scheme, Cache: cached.Options(), NewCache: c.newCache,
		NewClient: func(_ *rest.Config, o client.Options) (client.Client, error) {
			return cachedClient{live: c, cache: o.Cache.Reader}, nil
		},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
		Metrics:        metricsserver.Options{BindAddress: "0"},
		Controller:     config.Controller{SkipNameValidation: ptr.To(true)},
		Logger:         w.logger(p.name),
	})
	w.must(err)
	p.begun = mgr.Elected() // a controller-runtime manager that is stopped while it starts turns in circles for ever
	ctx, cancel := context.WithCancel(context.Background())
	w.must(controller.Register(ctx, managed{Manager: mgr, live: c}, controller.Options{
		AttachMode: mode, PodIntents: w.replace, Clock: w.clockOf("the managers"), Policies: inForce{}, Leases: c,
		FenceSources: w.fenceSources(), FenceObjects: fenceObjects{live: c}, ManageOutOfServiceTaint: w.managesTaint,
	}))
	w.log("%s starts", p.name)
	w.running.Go(func() {
		select {
		case <-w.ctx.Done():
			<-p.begun
			cancel()
		case <-ctx.Done():
		}
	})
	w.running.Go(func() {
		defer cancel()
		err := mgr.Start(ctx)
		if !p.isDead() && w.ctx.Err() == nil {
			w.log("%s ends: %v", p.name, err)
			p.kill()
			w.later(time.Second, w.manage)
		}
	})
}
