/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/agent/report"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/metrics"
	"github.com/hawser-io/hawser/internal/mount"
)

var persistStep = step{
	operation: "unpublish", event: eventFailedUnmount,
	run: func(_ context.Context, env *Environment, v *Volume, _ plan.Facts, _ types.UID) error {
		return env.Persist(v)
	},
}

// Options are what the steps need of the node and of the API.
type Options struct {
	NodeName      string
	Paths         record.Paths
	DriverTimeout time.Duration
	Clock         clock.WithTicker
	// Now is the present on the clock of the boot, whose ID it has.
	Now         func() record.Moment
	Mounts      Mounts
	Live        client.Client
	Secrets     SecretReader
	Registry    driver.Registry
	Filesystems FilesystemKnower
	Recorder    events.EventRecorder
	// Calls measures the calls that are under way. May be nil.
	Calls    *metrics.Calls
	Log      logr.Logger
	Store    *record.Store
	State    *report.Writer
	Node     *report.Node
	Intents  *report.IntentWriter
	Observer *kubelet.Observer
	Holders  *Holders
	// Pods are the binds of publications in pods.
	Pods *record.PodBinds
	// Directories of pods show publications.
	Directories Directories
	// Gather collects what is known of the volume now.
	Gather func(ctx context.Context, v *Volume) (plan.Facts, error)
	// Requeue has the volume reconciled, ExamineAgain examined.
	Requeue, ExamineAgain func(volume string)
	// Step is called between any two parts of a step, with their names.
	Step func(name string)
}

// Directories of pods show the publications of intents that their selectors match.
type Directories interface {
	// Withdraw takes the intent's publication of the volume out of every directory. The error is a *mount.HeldError while
	// a process of a pod uses it, and a *failure.Problem where it stays until a pod has ended.
	Withdraw(ctx context.Context, volume string, intent volumesv1alpha1.IntentReference) error
}

// SecretReader reads Secrets live.
type SecretReader interface {
	Get(ctx context.Context, key client.ObjectKey, secret client.Object, opts ...client.GetOption) error
}

// Environment is where steps run.
type Environment struct {
	Options
	// Lifetime is the context of driver calls: it ends some time after the agent's own.
	Lifetime context.Context
}

// Inform has the volume's line written when something else is, or soon.
func (env *Environment) Inform(v *Volume, f plan.Facts) {
	if v.Record != nil && v.Record.CountsAsInUse(f.Now) {
		f.Record = v.Record
		if f.Released() {
			v.Record.InUse = false // what is reported as the kubelet's alone is marked again before the agent uses it
		}
		env.State.SetReport(v.Name, report.NewVolumeReport(v.Snapshot(), f))
	}
}

// ReportIntents writes the status of every intent of the volume, as far as it changes.
func (env *Environment) ReportIntents(ctx context.Context, v *Volume, f plan.Facts) error {
	var errs []error
	for _, i := range f.Intents {
		s := report.NewIntentReport(v.Snapshot(), f, i)
		if s.Skip {
			continue
		}
		if err := env.Intents.Update(ctx, i, s); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// lookup returns what is mounted at path, and a table that has it there.
type lookup func(path string) (table *mount.Table, e mount.Entry, mounted bool, err error)

// atNow is the lookup before something is undone. All that its table has is of now.
func (env *Environment) atNow(path string) (*mount.Table, mount.Entry, bool, error) {
	table, err := env.Mounts.Table()
	if err != nil {
		return nil, mount.Entry{}, false, err
	}
	e, mounted := table.At(path)
	return table, e, mounted, nil
}

// Persist writes the record to the disk. Without that nothing is done.
func (env *Environment) Persist(v *Volume) error {
	env.Step("before record")
	if err := env.WriteRecord(v); err != nil {
		return &failure.Problem{Reason: volumesv1alpha1.ReasonRecordFailed,
			Message: "the record of the volume cannot be written, so nothing is done", Err: err}
	}
	env.Step("after record")
	return nil
}

// WriteRecord writes the record to the disk, unless the disk has it.
func (env *Environment) WriteRecord(v *Volume) error {
	err := env.Store.Save(v.Record)
	if err == nil {
		v.Unsaved = false
	}
	return err
}

// driverOf returns the volume's driver.
func (env *Environment) driverOf(v *Volume) (driver.Driver, error) {
	d, ok := env.Registry.Get(v.Record.Driver)
	if !ok {
		return nil, &failure.Problem{Reason: volumesv1alpha1.ReasonDriverNotFound, AwaitsEvent: true,
			Message: fmt.Sprintf("driver %s is not registered on node %s", v.Record.Driver, env.NodeName)}
	}
	return d, nil
}

// removeMount unmounts what the agent itself has bound at path and removes the mount point.
func (env *Environment) removeMount(ctx context.Context, path string) error {
	if err := env.Mounts.Unmount(ctx, path); err != nil {
		return err
	}
	return env.Mounts.RemoveMountPoint(ctx, path)
}

// unbind takes away what an earlier agent bound for the kubelet to see. A device node that is there by now stays.
func (env *Environment) unbind(ctx context.Context, u *record.Use) error {
	if u.Bound == "" {
		return nil
	}
	if err := env.removeMount(ctx, u.Bound); err != nil && !errors.Is(err, mount.ErrOccupied) {
		return fmt.Errorf("removing the device that an earlier agent bound: %w", err)
	}
	u.Bound = ""
	return nil
}

// removeEmpty removes directories that are shared with others, as far as they are empty.
func (env *Environment) removeEmpty(ctx context.Context, dirs ...string) {
	for _, dir := range dirs {
		if err := env.Mounts.RemoveMountPoint(ctx, dir); err != nil {
			env.Log.V(1).Info("directory stays", "path", dir, "why", err.Error())
			return
		}
	}
}

// kubeletStages reports whether the kubelet's record of a stage of the volume is there.
func (env *Environment) kubeletStages(r *record.Record) (bool, error) {
	data := env.Paths.KubeletData(r.VolumeSource())
	if data == "" {
		return false, nil
	}
	_, err := os.Lstat(data)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("checking the kubelet's use: %w", err)
	}
	return err == nil, nil
}

// Mounts is what the agent needs of the node's mounts.
type Mounts interface {
	Table() (*mount.Table, error)
	// TableWithin is mount.Mounter's: nothing may be undone or released by it.
	TableWithin(age time.Duration) (*mount.Table, error)
	// At is mount.Mounter's, the lookup for what is done and then verified.
	At(path string) (*mount.Table, mount.Entry, bool, error)
	Busy(path string) (mount.Call, bool)
	Bind(ctx context.Context, source, target string, readOnly bool, options []string) error
	BindFile(ctx context.Context, source *os.File, target string, readOnly bool, options []string) error
	BindAlone(ctx context.Context, source *os.File, target string, readOnly bool) error
	OpenBeneath(ctx context.Context, root, subPath string) (*os.File, error)
	// Shows is mount.Mounter's.
	Shows(ctx context.Context, path, root, subPath string) (bool, error)
	OpenMount(ctx context.Context, path string) (*os.File, error)
	Unmount(ctx context.Context, path string) error
	EnsureDir(ctx context.Context, path string, perm fs.FileMode) error
	EnsureFile(ctx context.Context, path string, perm fs.FileMode) error
	RemoveMountPoint(ctx context.Context, path string) error
	MakeDirectory(ctx context.Context, path, label string) error
	MakePlace(ctx context.Context, dir, place string) error
	ClearPlace(ctx context.Context, place mount.Place) error
	DeviceNodes(dir string) ([]string, error)
	SetDeviceNodes(ctx context.Context, dir string, names []string) error
	DeviceOf(ctx context.Context, path string) (mount.Device, error)
	DeviceNode(ctx context.Context, path string) (mount.Device, error)
	DeviceUnder(e mount.Entry) (mount.Device, error)
	CheckFree(ctx context.Context, d mount.Device, raw bool) error
	CheckReadable(ctx context.Context, d mount.Device) error
	Examine(ctx context.Context, path string) (mount.Health, error)
	Users(ctx context.Context, path string) ([]mount.Holder, error)
	ReadOnly(ctx context.Context, d mount.Device) (bool, error)
	SetReadOnly(ctx context.Context, d mount.Device, readOnly bool) error
	ShutdownFilesystem(ctx context.Context, path string, still func() error, within ...string) error
	SetOwnership(ctx context.Context, root string, fsGroup int64, policy corev1.PodFSGroupChangePolicy,
		progress func(files int)) error
}

var _ Mounts = (*mount.Mounter)(nil)

// FilesystemKnower reports whether the kernel or a program of the node knows a filesystem.
type FilesystemKnower interface {
	Known(fsType string) bool
}
