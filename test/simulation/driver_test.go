/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"fmt"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/driver/drivertest"
)

func TestASimulatedDriverDoesWhatEveryDriverMustDo(t *testing.T) {
	var m *machine
	drivertest.Run(t, drivertest.Config{
		Around: func(t *testing.T, test func(*testing.T)) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(1, t.TempDir())
				w.chance.cease()
				w.nodes["a"] = w.machine("a")
				m = w.nodes["a"]
				test(t)
				w.end()
			})
		},
		New: func(*testing.T) driver.Driver { return &driverOf{m: m, p: m.world.process("somebody", "", nil)} },
		Dir: func(*testing.T) string { return m.dir },
		Volume: func(_ *testing.T, mode corev1.PersistentVolumeMode) driver.Volume {
			m.world.mu.Lock()
			defer m.world.mu.Unlock()
			name := fmt.Sprint(len(m.devices))
			m.world.volume(name, corev1.ReadWriteMany, mode)
			handle := "vol-" + name
			m.devices[handle] = m.newDevice(types.UID(handle))
			return driver.Volume{Handle: handle, Mode: mode}
		},
		ViewOf: func(_ *testing.T, v driver.Volume, path string) drivertest.View {
			m.world.mu.Lock()
			defer m.world.mu.Unlock()
			e, ok := m.at(path)
			if !ok || e.handle != v.Handle {
				return drivertest.View{}
			}
			return drivertest.View{Mode: v.Mode, ReadOnly: e.ReadOnly()}
		},
		BindsAnything: true,
	})
}
