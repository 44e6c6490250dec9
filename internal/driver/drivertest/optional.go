/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package drivertest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hawser-io/hawser/internal/driver"
)

// optional tests the capabilities that the driver has.
func (c Config) optional(t *testing.T) {
	t.Run("the driver describes itself under its name", func(t *testing.T) {
		c.Around(t, func(t *testing.T) {
			d := c.New(t)
			describer, ok := d.(driver.Describer)
			if !ok {
				t.Skip("the driver has no description")
			}
			if line, err := describer.Describe(deadline(t)); err != nil || line.Name != d.Name() {
				t.Errorf("description: %+v, error %v; want name %s", line, err, d.Name())
			}
		})
	})
	for _, mode := range c.Modes {
		t.Run("expand "+string(mode), func(t *testing.T) { c.Around(t, func(t *testing.T) { c.expand(t, mode) }) })
		t.Run("stats "+string(mode), func(t *testing.T) { c.Around(t, func(t *testing.T) { c.stats(t, mode) }) })
	}
}

func (c Config) expand(t *testing.T, mode corev1.PersistentVolumeMode) {
	if c.Grow == nil {
		t.Skip("the driver does not expand")
	}
	s := c.begin(t, mode)
	expander, ok := s.d.(driver.Expander)
	if !ok {
		t.Fatalf("driver %s (%T) is no Expander, want one, as the suite can grow its volumes", s.d.Name(), s.d)
	}
	ctx := deadline(t)
	must(t, s.stage(ctx), s.publish(ctx, "a", false))
	larger := c.Capacity.DeepCopy()
	larger.Add(c.Capacity)
	c.Grow(t, s.volume, larger)
	req := driver.ExpandRequest{Volume: s.volume, StagingPath: s.stagingPath(), Path: s.target("a"), Capacity: larger}
	for _, time := range []string{"first", "second"} {
		got, err := expander.Expand(ctx, req)
		if err != nil || got.Cmp(larger) < 0 {
			t.Errorf("capacity of volume %s, expanded the %s time: %s, error %v; want at least %s", s.volume.Handle, time,
				got.String(), err, larger.String())
		}
	}
	if now := s.capacity(t); now != nil && now.Cmp(c.Capacity) <= 0 {
		t.Errorf("capacity of volume %s after the expansion: %s, want above %s", s.volume.Handle, now.String(),
			c.Capacity.String())
	}
	s.expect(t, "a", View{Mode: mode})
	unknown := req
	unknown.Handle += "-unknown"
	if _, err := expander.Expand(ctx, unknown); !driver.IsNotFound(err) {
		t.Errorf("expanding unknown volume %s: error %v, want not found", unknown.Handle, err)
	}
	must(t, s.unpublish(ctx, "a"), s.unstage(ctx))
}

func (c Config) stats(t *testing.T, mode corev1.PersistentVolumeMode) {
	s := c.begin(t, mode)
	reader, ok := s.d.(driver.StatsReader)
	if !ok {
		t.Skip("the driver has no stats")
	}
	ctx := deadline(t)
	must(t, s.stage(ctx), s.publish(ctx, "a", false))
	if got := s.capacity(t); got == nil || got.Sign() <= 0 || got.Cmp(c.Capacity) > 0 {
		t.Errorf("capacity of volume %s: %v, want above 0 and at most %s", s.volume.Handle, got, c.Capacity.String())
	}
	unknown := driver.StatsRequest{Handle: s.volume.Handle + "-unknown", StagingPath: s.stagingPath(), Path: s.target("a")}
	if _, err := reader.Stats(ctx, unknown); !driver.IsNotFound(err) {
		t.Errorf("stats of unknown volume %s: error %v, want not found", unknown.Handle, err)
	}
	s.healthy(t, reader)
	must(t, s.unpublish(ctx, "a"))
	gone := driver.StatsRequest{Handle: s.volume.Handle, StagingPath: s.stagingPath(), Path: s.target("a")}
	if stats, err := reader.Stats(ctx, gone); err == nil {
		t.Errorf("stats of volume %s at a path that is no longer published: %+v, want an error", gone.Handle, stats)
	}
	must(t, s.unstage(ctx))
}

// healthy fails unless the driver reports no problem of the published volume, nor of its storage, as far as it reports
// health at all.
func (s *suite) healthy(t *testing.T, reader driver.StatsReader) {
	t.Helper()
	ctx := deadline(t)
	req := driver.StatsRequest{Handle: s.volume.Handle, StagingPath: s.stagingPath(), Path: s.target("a")}
	volume, err := reader.VolumeHealth(ctx, req)
	if driver.CodeOf(err) != "Unimplemented" && (err != nil || len(volume) > 0) {
		t.Errorf("health of volume %s: %+v, error %v; want no problem", req.Handle, volume, err)
	}
	storage, err := reader.StorageHealth(ctx)
	if driver.CodeOf(err) != "Unimplemented" && (err != nil || len(storage) > 0) {
		t.Errorf("health of the storage of driver %s: %+v, error %v; want no problem", s.d.Name(), storage, err)
	}
}

// capacity that the driver reports for the published volume, or nil if it reports none.
func (s *suite) capacity(t *testing.T) *resource.Quantity {
	t.Helper()
	reader, ok := s.d.(driver.StatsReader)
	if !ok {
		return nil
	}
	stats,
		err := reader.Stats(deadline(t),
		driver.StatsRequest{Handle: s.volume.Handle, StagingPath: s.stagingPath(), Path: s.target("a")})
	if err != nil {
		t.Fatal(err)
	}
	return stats.Capacity
}
