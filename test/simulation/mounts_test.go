/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"testing"
	"testing/synctest"

	"github.com/hawser-io/hawser/internal/mount/mounttest"
)

func TestASimulatedKernelMountsAsARealOne(t *testing.T) {
	for name, test := range mounttest.Cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(1, t.TempDir())
				w.chance.cease()
				w.nodes["a"] = w.machine("a")
				m, minor := w.nodes["a"], 0
				test(t, mounttest.Host{
					Mounts: kernel{m: m, p: w.process("somebody", "", nil)}, Dir: m.dir,
					Mount: func(path string) {
						w.mu.Lock()
						defer w.mu.Unlock()
						minor++
						e := mounted{seq: uint64(minor)}
						e.Path, e.Root, e.Major, e.Minor = path, "/", loopMajor, minor
						m.mount(e)
					},
				})
				w.end()
			})
		})
	}
}
