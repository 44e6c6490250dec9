/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package fake provides a driver that mounts nothing. It keeps staged and published volumes in memory and records every
// call. It fails or hangs as a test scripts it.
package fake

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
)

// Method of the driver interface and its capabilities.
type Method string

// The methods that can be scripted.
const (
	Stage         Method = "Stage"
	Publish       Method = "Publish"
	Unpublish     Method = "Unpublish"
	Unstage       Method = "Unstage"
	Expand        Method = "Expand"
	Stats         Method = "Stats"
	VolumeHealth  Method = "VolumeHealth"
	StorageHealth Method = "StorageHealth"
)

// Call is one recorded call.
type Call struct {
	Method Method
	Handle string
	// Path is the staging path of Stage and Unstage, otherwise the published one.
	Path string
	// Request is the method's request, such as a driver.StageRequest.
	Request any
}

// Hooks run at the moment of an effect, with the driver's lock held. A hook can for instance add a mount to the table
// that the tested code reads. An error fails the call and prevents the effect.
type Hooks struct {
	Stage     func(driver.StageRequest) error
	Publish   func(driver.PublishRequest) error
	Unpublish func(driver.UnpublishRequest) error
	Unstage   func(driver.UnstageRequest) error
}

// Driver is a fake driver with every capability. It is safe for concurrent use.
type Driver struct {
	name  string
	hooks Hooks

	mu      sync.Mutex
	volumes map[string]*volume
	storage []volumesv1alpha1.HealthProblem
	calls   []Call
	scripts map[Method][]*script
}

var (
	_ driver.Driver      = (*Driver)(nil)
	_ driver.Expander    = (*Driver)(nil)
	_ driver.StatsReader = (*Driver)(nil)
	_ driver.Describer   = (*Driver)(nil)
)

// volume is the driver's state of one volume.
type volume struct {
	// backend is the capacity that the volume can grow to, capacity the one that the node has seen.
	backend, capacity resource.Quantity
	stagedAt          string
	published         map[string]bool // target path -> read-only
	problems          []volumesv1alpha1.HealthProblem
	busy              bool
}

// New returns a driver without volumes.
func New(name string, hooks Hooks) *Driver {
	return &Driver{
		name: name, hooks: hooks,
		volumes: map[string]*volume{}, scripts: map[Method][]*script{},
	}
}

// Base returns the driver without its optional capabilities.
func (d *Driver) Base() driver.Driver { return struct{ driver.Driver }{d} }

// AddVolume adds a volume, or grows a known volume in the backend.
func (d *Driver) AddVolume(handle string, capacity resource.Quantity) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v := d.volumes[handle]; v != nil {
		v.backend = capacity
		return
	}
	d.volumes[handle] = &volume{backend: capacity, capacity: capacity, published: map[string]bool{}}
}

// Forget removes all stages and publications without a call, as a reboot does.
func (d *Driver) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, v := range d.volumes {
		v.stagedAt, v.published = "", map[string]bool{}
	}
}

// StagedAt returns the volume's staging path, or "".
func (d *Driver) StagedAt(handle string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v := d.volumes[handle]; v != nil {
		return v.stagedAt
	}
	return ""
}

// Published returns the volume's published paths and whether they are read-only.
func (d *Driver) Published(handle string) map[string]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v := d.volumes[handle]; v != nil {
		return maps.Clone(v.published)
	}
	return nil
}

// Calls returns every call so far, in order, including those that failed.
func (d *Driver) Calls() []Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// Methods returns the names of the calls for the volume so far, in order.
func (d *Driver) Methods(handle string) []Method {
	var methods []Method
	for _, call := range d.Calls() {
		if call.Handle == handle {
			methods = append(methods, call.Method)
		}
	}
	return methods
}

// Name of the driver.
func (d *Driver) Name() string { return d.name }

// Describe implements driver.Describer.
func (d *Driver) Describe(context.Context) (volumesv1alpha1.NodeDriver, error) {
	return volumesv1alpha1.NodeDriver{Name: d.name, NodeID: "fake",
		Capabilities: []string{"EXPAND_VOLUME", "GET_STORAGE_HEALTH", "GET_VOLUME_HEALTH", "GET_VOLUME_STATS",
			"STAGE_UNSTAGE_VOLUME"}}, nil
}

// Stage implements driver.Driver.
func (d *Driver) Stage(ctx context.Context, req driver.StageRequest) error {
	return d.carryOut(ctx, Call{Stage, req.Handle, req.StagingPath, req}, func(v *volume) error {
		switch {
		case v == nil:
			return notFound(req.Handle)
		case v.stagedAt == req.StagingPath:
			return nil
		case v.stagedAt != "":
			return transient("FailedPrecondition", "volume %s is staged at %s", req.Handle, v.stagedAt)
		}
		if err := run(d.hooks.Stage, req); err != nil {
			return err
		}
		v.stagedAt = req.StagingPath
		return nil
	})
}

// Publish implements driver.Driver.
func (d *Driver) Publish(ctx context.Context, req driver.PublishRequest) error {
	return d.carryOut(ctx, Call{Publish, req.Handle, req.TargetPath, req}, func(v *volume) error {
		if v == nil {
			return notFound(req.Handle)
		}
		if v.stagedAt == "" || v.stagedAt != req.StagingPath {
			return transient("FailedPrecondition", "volume %s is not staged at %q", req.Handle, req.StagingPath)
		}
		if readOnly, published := v.published[req.TargetPath]; published && readOnly == req.ReadOnly {
			return nil
		} else if published {
			return transient("AlreadyExists", "volume %s is published at %s with read-only %v", req.Handle,
				req.TargetPath, readOnly)
		}
		if err := run(d.hooks.Publish, req); err != nil {
			return err
		}
		v.published[req.TargetPath] = req.ReadOnly
		return nil
	})
}

// Unpublish implements driver.Driver.
func (d *Driver) Unpublish(ctx context.Context, req driver.UnpublishRequest) error {
	return d.carryOut(ctx, Call{Unpublish, req.Handle, req.TargetPath, req}, func(v *volume) error {
		if v == nil {
			return nil
		}
		if _, published := v.published[req.TargetPath]; !published {
			return nil
		}
		if err := run(d.hooks.Unpublish, req); err != nil {
			return err
		}
		delete(v.published, req.TargetPath)
		return nil
	})
}

// Unstage implements driver.Driver. It fails while the volume is published.
func (d *Driver) Unstage(ctx context.Context, req driver.UnstageRequest) error {
	return d.carryOut(ctx, Call{Unstage, req.Handle, req.StagingPath, req}, func(v *volume) error {
		if v == nil || v.stagedAt != req.StagingPath {
			return nil
		}
		if len(v.published) != 0 {
			return transient("FailedPrecondition", "volume %s is still published", req.Handle)
		}
		if err := run(d.hooks.Unstage, req); err != nil {
			return err
		}
		v.stagedAt = ""
		return nil
	})
}

func run[Request any](hook func(Request) error, req Request) error {
	if hook == nil {
		return nil
	}
	return hook(req)
}

// Expand implements driver.Expander. Beyond the capacity of the backend it is Invalid.
func (d *Driver) Expand(ctx context.Context, req driver.ExpandRequest) (resource.Quantity, error) {
	capacity := req.Capacity
	err := d.carryOut(ctx, Call{Expand, req.Handle, req.Path, req}, func(v *volume) error {
		switch {
		case v == nil:
			return notFound(req.Handle)
		case v.stagedAt == "":
			return transient("FailedPrecondition", "volume %s is not staged", req.Handle)
		case req.Capacity.Cmp(v.backend) > 0:
			return &driver.Error{
				Outcome: driver.Invalid, Code: "OutOfRange",
				Message: fmt.Sprintf("volume %s has %s, not %s", req.Handle, v.backend.String(), req.Capacity.String()),
			}
		}
		v.capacity = v.backend
		capacity = v.capacity
		return nil
	})
	if err != nil {
		return req.Capacity, err // a call that hangs may still write to capacity
	}
	return capacity, nil
}

// Stats implements driver.StatsReader.
func (d *Driver) Stats(ctx context.Context, req driver.StatsRequest) (driver.Stats, error) {
	var stats driver.Stats
	err := d.carryOut(ctx, Call{Stats, req.Handle, req.Path, req}, func(v *volume) error {
		if v == nil {
			return notFound(req.Handle)
		}
		if _, published := v.published[req.Path]; !published && v.stagedAt != req.Path {
			return notFound(req.Handle + " at " + req.Path)
		}
		capacity := v.capacity.DeepCopy()
		stats.Capacity = &capacity
		return nil
	})
	if err != nil {
		return driver.Stats{}, err // a call that hangs may still write to stats
	}
	return stats, nil
}

func notFound(what string) error {
	return &driver.Error{Outcome: driver.NotFound, Code: "NotFound", Message: "no volume " + what}
}

func transient(code, format string, args ...any) error {
	return &driver.Error{Outcome: driver.Transient, Code: code, Message: fmt.Sprintf(format, args...)}
}
