/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/mount"
)

// seeDevice notes the block device of what is mounted at path, so that the kernel can be asked about it once nothing is mounted any
// more. It is called while the volume is there: a device number may be another volume's later, and the node may be gone.
func (a *Agent) seeDevice(ctx context.Context, v *volume, path string) error {
	table, err := a.Mounts.Table()
	if err != nil {
		return err
	}
	e, mounted := table.At(path)
	if !mounted {
		return nil
	}
	d, err := a.ownDevice(ctx, table, e, v.record.block())
	if err != nil {
		return fmt.Errorf("finding the device of %s: %w", path, err)
	}
	if d.Path != "" || !v.record.block() { // drivers mount anything at the staging path of a raw device
		v.record.see(d, a.bootID)
	}
	return nil
}

// ownDevice returns the block device that the volume has to itself; one without a path where there is none. A filesystem that
// the node has mounted elsewhere too, for itself or for other volumes, stays in use for good: it tells nothing.
func (a *Agent) ownDevice(ctx context.Context, table *mount.Table, e mount.Entry, block bool) (mount.Device, error) {
	switch {
	case block:
		return a.Mounts.DeviceNode(ctx, e.Path)
	case table.Own(e, a.paths.root, a.paths.kubelet):
		return a.Mounts.DeviceUnder(e)
	}
	return mount.Device{}, nil
}

// checkFree asks the kernel whether anything still holds a device of the volume: a container with a copy of the mount that no unmount
// reaches, or a process that has the raw device open.
func (a *Agent) checkFree(ctx context.Context, v *volume) error {
	r, kubelets := v.record, a.observer.use(v.name)
	for i := range r.Devices {
		d := &r.Devices[i]
		if d.BootID != a.bootID {
			continue
		}
		if kubelets.asks(d.Device) {
			d.Held = false
			continue
		}
		err := a.Mounts.CheckFree(ctx, d.Device, r.block())
		var held *mount.HeldError
		if d.Held = errors.As(err, &held); d.Held {
			a.awaitHolder(v.name, held)
		}
		if err != nil {
			return heldProblem(err)
		}
	}
	return nil
}

// asks reports whether the kubelet has the device mounted, so that its own use asks whether the device is free once that ends.
func (u *kubeletUse) asks(d mount.Device) bool {
	return u != nil && len(u.mounts) > 0 && slices.Contains(u.Devices, d)
}

func heldProblem(err error) *problem {
	var held *mount.HeldError
	if errors.As(err, &held) {
		return problemf(volumesv1alpha1.ReasonDeviceHeld, "the volume is unmounted, but counts as in use until its device is free: %v", held)
	}
	return &problem{reason: volumesv1alpha1.ReasonDeviceHeld, err: err,
		message: "the volume is unmounted, but counts as in use, because the kernel does not tell whether its device is free"}
}

// awaitHolder tries again once the first process that holds the device has ended. One that lets go without ending is noticed by
// the backoff.
func (a *Agent) awaitHolder(volume string, held *mount.HeldError) {
	i := slices.IndexFunc(held.Holders, func(h mount.Holder) bool { return h.PID != 0 })
	if i < 0 {
		return
	}
	pid := held.Holders[i].PID
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.awaited[pid] == nil {
		a.awaited[pid] = map[string]bool{}
		go a.awaitExit(pid)
	}
	a.awaited[pid][volume] = true
}

func (a *Agent) awaitExit(pid int) {
	err := mount.AwaitExit(a.lifetime, pid)
	a.mu.Lock()
	volumes := a.awaited[pid]
	delete(a.awaited, pid)
	a.mu.Unlock()
	if err != nil {
		a.Log.V(1).Info("the end of a process is not awaited", "pid", pid, "error", err.Error())
		return
	}
	signal(a.observer.wake)
	for name := range volumes {
		a.volume(name).nudge(nudgeHolder)
		a.queue.volume(name)
	}
}

// seeKubeletDevices notes the devices of the mounts that the look before did not show.
func (a *Agent) seeKubeletDevices(table *mount.Table, before, now map[string]kubeletUse) {
	for name, u := range now {
		for _, path := range u.mounts {
			e, mounted := table.At(path)
			if !mounted || slices.Contains(before[name].mounts, path) {
				continue
			}
			d, err := a.ownDevice(a.lifetime, table, e, u.Block)
			if err != nil {
				a.Log.Info("the device that the kubelet uses is not known", "volume", name, "path", path, "error", err.Error())
			}
			if d.Path != "" && !slices.Contains(u.Devices, d) {
				u.Devices = append(slices.Clone(u.Devices), d)
			}
		}
		now[name] = u
	}
}

// keepHeld keeps the uses that have ended while the kernel says that something still holds a device. Where the agent has the
// volume too, its own release asks.
func (a *Agent) keepHeld(before, now map[string]kubeletUse, own map[string]identity) {
	for name, u := range before {
		if _, lasts := now[name]; lasts {
			continue
		}
		if _, ours := own[name]; ours {
			a.volume(name).inherit(u.Devices)
			continue
		}
		if err := a.checkKubeletFree(name, u); err != nil {
			if u.held == nil || !a.Clock.Now().Before(u.held.NextAttemptTime.Time) {
				u.held = newFailure(u.held, act{verb: doClear}, "", err, a.Clock.Now())
			}
			u.StagedPath, u.mounts, u.published, u.waiting, u.doubt = "", nil, false, false, ""
			now[name] = u
		} else if len(u.Devices) == 0 {
			a.restOnMountTable(name, u.AttachmentUID)
		}
	}
}

func (a *Agent) checkKubeletFree(name string, u kubeletUse) error {
	for _, d := range u.Devices {
		err := a.Mounts.CheckFree(a.lifetime, d, u.Block)
		var held *mount.HeldError
		if errors.As(err, &held) {
			a.awaitHolder(name, held)
		}
		if err != nil {
			return heldProblem(err)
		}
	}
	return nil
}
