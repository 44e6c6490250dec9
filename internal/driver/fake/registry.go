/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package fake

import (
	"context"
	"slices"
	"strings"
	"sync"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
)

// Registry is a driver.Registry that tests fill.
type Registry struct {
	mu      sync.Mutex
	drivers map[string]driver.Driver
	changed chan struct{}
}

var _ driver.Registry = (*Registry)(nil)

// NewRegistry returns a Registry of these drivers.
func NewRegistry(drivers ...driver.Driver) *Registry {
	r := &Registry{drivers: map[string]driver.Driver{}, changed: make(chan struct{}, 1)}
	for _, d := range drivers {
		r.drivers[d.Name()] = d
	}
	return r
}

// Add registers the driver, or registers it again, and signals.
func (r *Registry) Add(d driver.Driver) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drivers[d.Name()] = d
	r.signal()
}

// Remove forgets the driver and signals.
func (r *Registry) Remove(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.drivers, name)
	r.signal()
}

func (r *Registry) signal() {
	select {
	case r.changed <- struct{}{}:
	default: // a signal that covers this change is already pending
	}
}

// Get returns the driver of that name.
func (r *Registry) Get(name string) (driver.Driver, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d, ok := r.drivers[name]
	return d, ok
}

// Drivers returns every driver's description, ordered by name.
func (r *Registry) Drivers() []volumesv1alpha1.NodeDriver {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := []volumesv1alpha1.NodeDriver{}
	for name, d := range r.drivers {
		line := volumesv1alpha1.NodeDriver{Name: name}
		if describer, ok := d.(driver.Describer); ok {
			if described, err := describer.Describe(context.Background()); err == nil {
				line = described
			}
		}
		lines = append(lines, line)
	}
	slices.SortFunc(lines, func(a, b volumesv1alpha1.NodeDriver) int { return strings.Compare(a.Name, b.Name) })
	return lines
}

// Changed is signalled by Add and Remove.
func (r *Registry) Changed() <-chan struct{} { return r.changed }
