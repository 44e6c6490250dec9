/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/hawser-io/hawser/internal/mount"
)

// looked counts how often a device was looked up, which fails with err.
type looked struct {
	ObserverMounts
	err   error
	times int
}

func (l *looked) DeviceNode(context.Context, string) (mount.Device, error) {
	l.times++
	if l.err != nil {
		return mount.Device{}, l.err
	}
	return mount.Device{Path: "/dev/sda", Minor: 1}, nil
}

func TestADeviceThatCouldNotBeLookedUpIsLookedUpAgain(t *testing.T) {
	f, mounts := newFiled(t), &looked{err: errors.New("too many open files")}
	f.Mounts, f.Clock = mounts, clocktesting.NewFakeClock(time.Now())
	table := mount.NewTable([]mount.Entry{{Path: "/mnt"}})
	last := map[string]TrackedUse{}
	for times, want := range []struct {
		looked int
		known  bool
	}{{1, false}, {2, true}, {2, true}} {
		now := map[string]TrackedUse{"vol": {Mounts: []string{"/mnt"}, Block: true, Devices: last["vol"].Devices}}
		f.addDevices(table, last, now)
		if known := slices.Contains(now["vol"].Devices, mount.Device{Path: "/dev/sda", Minor: 1}); known != want.known ||
			mounts.times != want.looked {
			t.Errorf("after observation %d: the device is known %t and was looked up %d times, want %t and %d", times+1, known,
				mounts.times, want.known, want.looked)
		}
		f.replace(Observation{Uses: now})
		f.countLookups()
		if again := f.nextAttempt() != nil; again == want.known {
			t.Errorf("after observation %d: another one follows by itself %t, want %t", times+1, again, !want.known)
		}
		last, mounts.err = now, nil
	}
}
