/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/mount"
)

var recordStep = step{
	operation: "unpublish", event: eventFailedUnmount,
	run: func(ctx context.Context, e *Environment, v *volume, f facts, _ types.UID) error {
		return e.save(v)
	},
}

// Options are what the steps need of the node and of the API.
type StepOptions struct {
	NodeName      string
	Paths         paths
	BootID        string
	DriverTimeout time.Duration
	Clock         clock.WithTicker
	// Now is the present on the clock of the boot.
	Now         func() moment
	Mounts      Mounts
	Live        client.Client
	Registry    driver.Registry
	Filesystems FilesystemKnower
	Recorder    events.EventRecorder
	Log         logr.Logger
	Store       *store
	State       *stateWriter
	Node        *nodeReport
	Intents     *intentWriter
	Observer    *observer
	Holders     *holders
	// Requeue has the volume reconciled.
	Requeue func(volume string)
	// Step is called between any two parts of a step, with their names.
	Step func(name string)
}

// Environment is where steps run.
type Environment struct {
	StepOptions
	// lifetime is the context of driver calls: it ends some time after the agent's own.
	lifetime context.Context
}

// Inform has the volume's line written when something else is, or soon.
func (a *Environment) Inform(v *volume, f facts) {
	if v.record != nil && v.record.held(f.now) {
		f.record = v.record
		a.State.inform(v.name, lineOf(v.snapshot(), f))
	}
}

// ReportIntents writes the status of every intent of the volume, as far as it changes.
func (a *Environment) ReportIntents(ctx context.Context, v *volume, f facts) error {
	var errs []error
	for _, i := range f.intents {
		s := viewOf(v.snapshot(), f, i)
		if s.skip {
			continue
		}
		if err := a.Intents.update(ctx, i, s); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// save brings the record to the disk.
func (a *Environment) save(v *volume) error {
	a.Step("before record")
	if err := a.keep(v); err != nil {
		return &problem{reason: volumesv1alpha1.ReasonRecordFailed, message: "the record of the volume cannot be written, so nothing is done", err: err}
	}
	a.Step("after record")
	return nil
}

func (a *Environment) keep(v *volume) error {
	err := a.Store.save(v.record)
	if err == nil {
		v.unsaved = false
	}
	return err
}

// driverOf returns the volume's driver.
func (a *Environment) driverOf(v *volume) (driver.Driver, error) {
	d, ok := a.Registry.Get(v.record.Driver)
	if !ok {
		return nil, &problem{reason: volumesv1alpha1.ReasonDriverNotFound, waits: true,
			message: fmt.Sprintf("driver %s is not registered on node %s", v.record.Driver, a.NodeName)}
	}
	return d, nil
}

// removeMount unmounts what the agent itself has bound at path and removes the mount point.
func (a *Environment) removeMount(ctx context.Context, path string) error {
	if err := a.Mounts.Unmount(ctx, path); err != nil {
		return err
	}
	return a.Mounts.RemoveMountPoint(ctx, path)
}

// unbind takes away what an earlier agent bound for the kubelet to see. A device node that is there by now stays.
func (a *Environment) unbind(ctx context.Context, u *Use) error {
	if u.Bound == "" {
		return nil
	}
	if err := a.removeMount(ctx, u.Bound); err != nil && !errors.Is(err, mount.ErrOccupied) {
		return fmt.Errorf("removing the device that an earlier agent bound: %w", err)
	}
	u.Bound = ""
	return nil
}

// removeEmpty removes directories that are shared with others, as far as they are empty.
func (a *Environment) removeEmpty(ctx context.Context, dirs ...string) {
	for _, dir := range dirs {
		if err := a.Mounts.RemoveMountPoint(ctx, dir); err != nil {
			a.Log.V(1).Info("directory stays", "path", dir, "why", err.Error())
			return
		}
	}
}

// kubeletStages reports whether the kubelet's record of a stage of the volume is there.
func (a *Environment) kubeletStages(r *Record) (bool, error) {
	_, err := os.Lstat(a.Paths.kubeletData(r.Driver, r.Handle, r.PersistentVolume, r.Mode))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("looking for the kubelet's use: %w", err)
	}
	return err == nil, nil
}

func (a *Environment) referencer() referencer { return referencer{a} }

func (a *Environment) publisher() publisher { return publisher{a} }

func (a *Environment) unpublisher() unpublisher { return unpublisher{a} }

func (a *Environment) unstager() unstager { return unstager{a} }

func (a *Environment) stager() stager { return stager{a} }
