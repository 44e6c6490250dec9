/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/go-logr/logr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/mount"
)

// noteDevice notes the block device of what is mounted at path, so that the kernel can be asked about it once nothing
// is mounted any more. It is called while the volume is there: a device number may be another volume's later, and the
// node may be gone.
func (env *Environment) noteDevice(ctx context.Context, v *Volume, path string, at lookup) error {
	table, e, mounted, err := at(path)
	if err != nil || !mounted {
		return err
	}
	d, err := kubelet.OwnDevice(ctx, env.Mounts, env.Paths, table, e, v.Record.Block())
	if err != nil {
		return fmt.Errorf("finding the device of %s: %w", path, err)
	}
	r := v.Record
	if r.Block() && (d.Path == "" || otherDisk(d, r.Stage.Seq) || otherDisk(d, r.SeqAt(path))) {
		return nil // drivers mount anything at the staging path of a raw device, and another disk may be another volume's
	}
	r.AddDevice(d, env.Now().BootID)
	return nil
}

// noteDevices notes the devices of a publication. Where users see a part of the volume, only the driver's own mount
// shows that its filesystem belongs to the volume alone.
func (env *Environment) noteDevices(ctx context.Context, v *Volume, u *record.Use, at lookup) error {
	if u.Target != u.Path {
		if err := env.noteDevice(ctx, v, u.Target, at); err != nil {
			return err
		}
	}
	return env.noteDevice(ctx, v, u.Path, at)
}

// checkFree asks the kernel whether anything still holds a device of the volume: a container with a copy of the mount
// that no unmount reaches, or a process that has the raw device open. Devices that the kubelet has mounted are left to
// the end of its use.
func (env *Environment) checkFree(ctx context.Context, v *Volume) (leftToKubelet bool, err error) {
	r, kubelets := v.Record, env.Observer.Use(v.Name)
	for i := range r.Devices {
		d := &r.Devices[i]
		if d.BootID != env.Now().BootID {
			continue
		}
		if kubelets.Checks(d.Device) {
			d.Held, leftToKubelet = false, true
			continue
		}
		err := env.Mounts.CheckFree(ctx, d.Device, r.Block())
		var held *mount.HeldError
		if d.Held = errors.As(err, &held); d.Held {
			env.Holders.Await(v.Name, held)
		}
		if err != nil {
			return leftToKubelet, kubelet.HeldProblem(err)
		}
	}
	return leftToKubelet, nil
}

// checkReadable refuses to have a volume staged again whose driver might take it for empty: no driver formats what is
// mounted.
func (env *Environment) checkReadable(ctx context.Context, r *record.Record) error {
	for _, d := range r.Devices {
		if d.BootID != env.Now().BootID {
			continue
		}
		if err := env.Mounts.CheckReadable(ctx, d.Device); err != nil {
			return &failure.Problem{Reason: volumesv1alpha1.ReasonVolumeSick, Err: err,
				Message: "it is not staged again while its block device cannot be read, because a driver may take it for empty " +
					"and format it: repair the device, or delete the intent and create it again, which stages the volume anyway"}
		}
	}
	return nil
}

// What a driver has published is compared with what it has staged, see
// docs/decisions/0020-what-is-published-is-the-volume.md.

// ErrOwnDisk: what is mounted is a directory of the node's own disk.
var ErrOwnDisk = errors.New("the node's own disk")

// notVolume is why what is mounted at path cannot be the volume, nil if it can.
func (env *Environment) notVolume(ctx context.Context, r *record.Record, table *mount.Table, path string,
	e mount.Entry) error {
	if r.Block() {
		return env.notDevice(ctx, r, path)
	}
	staged, known := record.ParseSource(r.Stage.Source)
	if known && e.PartOf(staged) {
		return nil
	}
	if err := env.notOwn(table, r.Stage, e); err != nil || !known {
		return err
	}
	return fmt.Errorf("%s of %s is mounted at %s, and the volume is staged from %s", record.SourceOf(e), e.Source, path,
		r.Stage.Source)
}

// notOwn refuses a directory of the node's own disk that belongs to the kubelet or the agent, such as the bare staging
// path.
func (env *Environment) notOwn(table *mount.Table, s record.Stage, e mount.Entry) error {
	for _, dir := range []string{filepath.Dir(s.Path), env.Paths.Kubelet, env.Paths.Root} {
		if own, ok := table.Shown(dir); ok && e.PartOf(own) {
			return fmt.Errorf("%s is %s of the filesystem that holds %s: %w", e.Path, e.Root, dir, ErrOwnDisk)
		}
	}
	return nil
}

// notDevice refuses what is no device node, another device than the one at the staging path, and another disk under the
// number of that one or of what was published at path before.
func (env *Environment) notDevice(ctx context.Context, r *record.Record, path string) error {
	d, err := env.Mounts.DeviceOf(ctx, path)
	s := r.Stage
	switch {
	case err != nil:
		return fmt.Errorf("reading the device: %w", err)
	case !d.Node:
		return fmt.Errorf("%s is no device node", path)
	case s.Device != "" && d.Path != "" && d.Path != s.Device:
		return fmt.Errorf("%s is device %s, and the volume is staged as %s", path, d.Path, s.Device)
	case otherDisk(d, s.Seq), otherDisk(d, r.SeqAt(path)):
		return fmt.Errorf("%s is device %s, and %s", path, d.Path, anotherDisk(d))
	}
	return nil
}

// otherDisk reports whether the device is not of the disk with that sequence number. Without one it is not known.
func otherDisk(d mount.Device, seq uint64) bool { return seq != 0 && d.Seq != 0 && d.Seq != seq }

// lostNumber is why what the node at path leads to is not the volume any more; nil if it is, or if that is not known.
func lostNumber(r *record.Record, path string, node mount.Device) *record.Sickness {
	if !otherDisk(node, r.SeqAt(path)) {
		return nil
	}
	return &record.Sickness{Remountable: true, Cause: fmt.Sprintf(
		"its block device is gone from the node: %s", anotherDisk(node))}
}

// anotherDisk is for messages. The kernel gives a disk that comes back another sequence number too.
func anotherDisk(d mount.Device) string {
	return fmt.Sprintf("the number %d:%d has another disk there, or the disk has come back as a new one", d.Major, d.Minor)
}

// noteStagedDevice notes the device of the stage. For a block volume that is the device node at the staging path: what
// else a driver mounts there, such as the filesystem that holds an image, is not what it publishes. A node that was
// there before the call stays of the disk that it was of.
func (env *Environment) noteStagedDevice(ctx context.Context, r *record.Record) {
	d := env.deviceAt(ctx, r.Stage.Path)
	if r.Block() && !d.Node {
		d = mount.Device{}
	}
	r.Stage.Device = d.Path
	if d.Node && r.Stage.Seq == 0 {
		r.Stage.Seq = d.Seq
	}
}

// deviceAt is the device behind path, where there is one. One that is not found is not shown, and not compared later.
func (env *Environment) deviceAt(ctx context.Context, path string) mount.Device {
	d, err := env.Mounts.DeviceOf(ctx, path)
	if err != nil {
		env.Log.V(1).Info("no device found", "path", path, "error", err.Error())
		return mount.Device{}
	}
	return d
}

// Holders awaits the end of processes that hold a volume's device.
type Holders struct {
	log logr.Logger
	// ended is called with the volumes that a process held which has ended.
	ended func(volumes []string)
	// Lifetime is the context of the waiting.
	Lifetime context.Context

	mu      sync.Mutex
	awaited map[int]map[string]bool
}

// NewHolders returns holders that call ended with the volumes of each process that ends.
func NewHolders(log logr.Logger, ended func(volumes []string)) *Holders {
	return &Holders{log: log, ended: ended, awaited: map[int]map[string]bool{}}
}

// Await tries again once the first process that holds the device has ended. One that lets go without ending is noticed
// by the backoff.
func (h *Holders) Await(volume string, held *mount.HeldError) {
	i := slices.IndexFunc(held.Holders, func(holder mount.Holder) bool { return holder.PID != 0 })
	if i < 0 {
		return
	}
	pid := held.Holders[i].PID
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.awaited[pid] == nil {
		h.awaited[pid] = map[string]bool{}
		go h.awaitExit(pid)
	}
	h.awaited[pid][volume] = true
}

func (h *Holders) awaitExit(pid int) {
	err := mount.AwaitExit(h.Lifetime, pid)
	h.mu.Lock()
	volumes := h.awaited[pid]
	delete(h.awaited, pid)
	h.mu.Unlock()
	if err != nil {
		h.log.V(1).Info("the end of a process is not awaited", "pid", pid, "error", err.Error())
		return
	}
	h.ended(slices.Collect(maps.Keys(volumes)))
}
