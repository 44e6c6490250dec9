/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package metered measures driver calls under the names of the kubelet's storage operation metrics.
package metered

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/metrics"
)

// Registry returns drivers whose calls are measured. A measured driver keeps the capabilities Expander and StatsReader.
type Registry struct {
	driver.Registry
	// staged is how long the stage of each unpublished volume took, by driver and staging path.
	staged sync.Map
}

var _ driver.Registry = (*Registry)(nil)

// Wrap measures the calls to the drivers of r.
func Wrap(r driver.Registry) *Registry { return &Registry{Registry: r} }

// Get returns the driver of that name.
func (r *Registry) Get(name string) (driver.Driver, bool) {
	d, ok := r.Registry.Get(name)
	if !ok {
		return nil, false
	}
	return r.wrap(d), true
}

// wrap returns a measured driver with exactly the capabilities of d.
func (r *Registry) wrap(d driver.Driver) driver.Driver {
	m := metered{Driver: d, registry: r}
	e, expands := d.(driver.Expander)
	s, reads := d.(driver.StatsReader)
	switch {
	case expands && reads:
		return struct {
			metered
			expander
			driver.StatsReader
		}{m, expander{d.Name(), e}, s}
	case expands:
		return struct {
			metered
			expander
		}{m, expander{d.Name(), e}}
	case reads:
		return struct {
			metered
			driver.StatsReader
		}{m, s}
	}
	return m
}

type metered struct {
	driver.Driver
	registry *Registry
}

type place struct{ driver, path string }

// operation selects the operation for a filesystem or for a device.
func operation(mode corev1.PersistentVolumeMode, filesystem, device metrics.Operation) metrics.Operation {
	if mode == corev1.PersistentVolumeBlock {
		return device
	}
	return filesystem
}

func (m metered) observe(o metrics.Operation, started time.Time, more time.Duration, err error) {
	// Only the controller knows if a volume is migrated. The node handles CSI volumes only.
	metrics.ObserveOperation(m.Name(), o, err == nil, false, time.Since(started)+more)
}

// Stage counts only if it fails: upstream's operation lasts until the volume is published.
func (m metered) Stage(ctx context.Context, req driver.StageRequest) error {
	started := time.Now()
	err := m.Driver.Stage(ctx, req)
	if err != nil {
		m.observe(operation(req.Mode, metrics.VolumeMount, metrics.MapVolume), started, 0, err)
		return err
	}
	m.registry.staged.Store(place{m.Name(), req.StagingPath}, time.Since(started))
	return nil
}

// Publish counts together with the Stage before it.
func (m metered) Publish(ctx context.Context, req driver.PublishRequest) error {
	var staging time.Duration
	if d, ok := m.registry.staged.LoadAndDelete(place{m.Name(), req.StagingPath}); ok {
		staging = d.(time.Duration)
	}
	started := time.Now()
	err := m.Driver.Publish(ctx, req)
	m.observe(operation(req.Mode, metrics.VolumeMount, metrics.MapVolume), started, staging, err)
	return err
}

// Unpublish implements driver.Driver.
func (m metered) Unpublish(ctx context.Context, req driver.UnpublishRequest) error {
	started := time.Now()
	err := m.Driver.Unpublish(ctx, req)
	m.observe(operation(req.Mode, metrics.VolumeUnmount, metrics.UnmapVolume), started, 0, undone(err))
	return err
}

// Unstage implements driver.Driver.
func (m metered) Unstage(ctx context.Context, req driver.UnstageRequest) error {
	m.registry.staged.Delete(place{m.Name(), req.StagingPath})
	started := time.Now()
	err := m.Driver.Unstage(ctx, req)
	m.observe(operation(req.Mode, metrics.UnmountDevice, metrics.UnmapDevice), started, 0, undone(err))
	return err
}

// undone treats a volume that the driver does not know as released.
func undone(err error) error {
	if driver.IsNotFound(err) {
		return nil
	}
	return err
}

type expander struct {
	driver string
	inner  driver.Expander
}

// Expand implements driver.Expander.
func (e expander) Expand(ctx context.Context, req driver.ExpandRequest) (resource.Quantity, error) {
	started := time.Now()
	seen, err := e.inner.Expand(ctx, req)
	metrics.ObserveOperation(e.driver, metrics.VolumeFSResize, err == nil, false, time.Since(started))
	return seen, err
}
