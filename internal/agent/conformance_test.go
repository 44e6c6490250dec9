/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/driver/drivertest"
	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/internal/mount/mounttest"
)

// TestAFakeNodeMountsAsARealKernel also where its calls can be held.
func TestAFakeNodeMountsAsARealKernel(t *testing.T) {
	for name, test := range mounttest.Cases {
		t.Run(name, func(t *testing.T) {
			n, minor := newFakeNode(), 0
			test(t, mounttest.Host{Mounts: newHeldMounts(n), Dir: t.TempDir(), Mount: func(path string) {
				minor++
				n.mount(mount.Entry{Path: path, Root: "/", Major: 7, Minor: minor, FSType: "ext4"})
			}})
		})
	}
}

func TestAFakeDriverDoesWhatEveryDriverMustDo(t *testing.T) {
	var d *fakeDriver
	drivertest.Run(t, drivertest.Config{
		Around: func(t *testing.T, test func(*testing.T)) {
			d = newFakeDriver(newFakeNode())
			d.known = map[string]bool{}
			test(t)
		},
		New: func(*testing.T) driver.Driver { return d },
		Dir: func(t *testing.T) string { return t.TempDir() },
		Volume: func(_ *testing.T, mode corev1.PersistentVolumeMode) driver.Volume {
			handle := fmt.Sprintf("vol-%d", len(d.known))
			d.known[handle] = true
			return driver.Volume{Handle: handle, Mode: mode, FSType: "ext4"}
		},
		Capacity: resource.MustParse("1Gi"),
		Grow:     func(*testing.T, driver.Volume, resource.Quantity) {},
		ViewOf: func(_ *testing.T, v driver.Volume, path string) drivertest.View {
			e, ok := d.node.at(path)
			if !ok || e.Minor != minorOf(v.Handle) {
				return drivertest.View{}
			}
			return drivertest.View{Mode: v.Mode, ReadOnly: v.Mode == corev1.PersistentVolumeFilesystem && e.ReadOnly()}
		},
		BindsAnything: true,
	})
}
