/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package drivertest is the conformance suite of driver.Driver. The tests of each driver run it.
package drivertest

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hawser-io/hawser/internal/driver"
)

// View is what the driver published at a path.
type View struct {
	// Mode is Filesystem or Block, or empty if nothing is staged or published there.
	Mode corev1.PersistentVolumeMode
	// ReadOnly of a Filesystem. It is not checked for a device node: a read-only mount does not prevent writes to the
	// device. The program that passes the node on has to prevent them.
	ReadOnly bool
}

// Config says how to test a driver.
type Config struct {
	// New returns a new driver for each test.
	New func(t *testing.T) driver.Driver
	// Dir returns a directory for staging and published paths, which is removed after the test.
	Dir func(t *testing.T) string
	// Volume creates a volume that is ready to be staged on this node and is removed after the test. It fills every
	// field of a request's Volume.
	Volume func(t *testing.T, mode corev1.PersistentVolumeMode) driver.Volume
	// Capacity of such a volume.
	Capacity resource.Quantity
	// Grow enlarges a volume outside of the node. If it is nil, the suite skips the tests of Expand.
	Grow func(t *testing.T, v driver.Volume, capacity resource.Quantity)
	// ViewOf returns what is published at a path. The default reads the mount table.
	ViewOf func(t *testing.T, v driver.Volume, path string) View
	// Modes that the driver supports. The default is both.
	Modes []corev1.PersistentVolumeMode
	// WithoutStaging is true if Publish needs no Stage.
	WithoutStaging bool
	// BindsAnything is true if Publish binds whatever is at the staging path, even if nothing is staged there.
	BindsAnything bool
	// Around runs each test. The default only calls it.
	Around func(t *testing.T, test func(*testing.T))
}

// Run runs the suite.
func Run(t *testing.T, c Config) {
	if c.Modes == nil {
		c.Modes = []corev1.PersistentVolumeMode{corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock}
	}
	if c.ViewOf == nil {
		c.ViewOf = mountTableView
	}
	if c.Around == nil {
		c.Around = func(t *testing.T, test func(*testing.T)) { test(t) }
	}
	for _, mode := range c.Modes {
		t.Run(string(mode), func(t *testing.T) {
			c.run(t, mode)
		})
	}
	c.optional(t)
}

func (c Config) run(t *testing.T, mode corev1.PersistentVolumeMode) {
	for name, test := range map[string]func(*testing.T, *suite){
		"a repeated call succeeds":                       everyCallMayComeTwice,
		"one stage serves several publications":          oneStageServesSeveral,
		"a read-only publication cannot be written":      readOnly,
		"releasing an absent volume succeeds":            releasingNothing,
		"an unknown volume is not found":                 unknownVolume,
		"a publish before the stage leaves nothing":      publishBeforeStage,
		"an ended context does not affect the next call": endedContext,
		"a volume can be staged again after its release": stageAgain,
		"volumes do not delay each other":                severalAtOnce,
	} {
		t.Run(name, func(t *testing.T) {
			c.Around(t, func(t *testing.T) { test(t, c.begin(t, mode)) })
		})
	}
}

// suite is one test's driver, volume and paths.
type suite struct {
	Config
	d      driver.Driver
	dir    string
	volume driver.Volume
}

func (c Config) begin(t *testing.T, mode corev1.PersistentVolumeMode) *suite {
	t.Helper()
	return &suite{Config: c, d: c.New(t), dir: c.Dir(t), volume: c.Volume(t, mode)}
}

// another is the same driver with another volume.
func (s *suite) another(t *testing.T) *suite {
	t.Helper()
	other := *s
	other.volume = s.Volume(t, s.volume.Mode)
	return &other
}

func (s *suite) stagingPath() string {
	return filepath.Join(s.dir, "staging-"+filepath.Base(s.volume.Handle))
}

func (s *suite) target(name string) string {
	return filepath.Join(s.dir, "published-"+filepath.Base(s.volume.Handle)+"-"+name)
}

func (s *suite) stage(ctx context.Context) error {
	if err := makeDir(s.stagingPath()); err != nil {
		return err
	}
	return s.d.Stage(ctx, driver.StageRequest{Volume: s.volume, StagingPath: s.stagingPath()})
}

func (s *suite) publish(ctx context.Context, name string, readOnly bool) error {
	return s.d.Publish(ctx, driver.PublishRequest{
		Volume: s.volume, StagingPath: s.stagingPath(), TargetPath: s.target(name), ReadOnly: readOnly,
	})
}

func (s *suite) unpublish(ctx context.Context, name string) error {
	return s.d.Unpublish(ctx, driver.UnpublishRequest{Handle: s.volume.Handle, TargetPath: s.target(name)})
}

func (s *suite) unstage(ctx context.Context) error {
	return s.d.Unstage(ctx, driver.UnstageRequest{Handle: s.volume.Handle, StagingPath: s.stagingPath()})
}

func (s *suite) expect(t *testing.T, name string, want View) {
	t.Helper()
	if got := s.ViewOf(t, s.volume, s.target(name)); got != want {
		t.Errorf("volume %s at target %s: %+v, want %+v", s.volume.Handle, name, got, want)
	}
}

// deadline is the context of a call: none is made without a deadline.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func everyCallMayComeTwice(t *testing.T, s *suite) {
	ctx := deadline(t)
	must(t, s.stage(ctx), s.stage(ctx))
	must(t, s.publish(ctx, "a", false), s.publish(ctx, "a", false))
	s.expect(t, "a", View{Mode: s.volume.Mode})
	must(t, s.unpublish(ctx, "a"), s.unpublish(ctx, "a"))
	s.expect(t, "a", View{})
	must(t, s.unstage(ctx), s.unstage(ctx))
}

func oneStageServesSeveral(t *testing.T, s *suite) {
	ctx := deadline(t)
	must(t, s.stage(ctx), s.publish(ctx, "a", false), s.publish(ctx, "b", false))
	s.expect(t, "a", View{Mode: s.volume.Mode})
	s.expect(t, "b", View{Mode: s.volume.Mode})
	must(t, s.unpublish(ctx, "a"))
	s.expect(t, "a", View{})
	s.expect(t, "b", View{Mode: s.volume.Mode})
	must(t, s.unpublish(ctx, "b"), s.unstage(ctx))
	s.expect(t, "b", View{})
}

func readOnly(t *testing.T, s *suite) {
	ctx := deadline(t)
	must(t, s.stage(ctx), s.publish(ctx, "a", true), s.publish(ctx, "b", false))
	s.expect(t, "a", View{Mode: s.volume.Mode, ReadOnly: s.volume.Mode == corev1.PersistentVolumeFilesystem})
	s.expect(t, "b", View{Mode: s.volume.Mode})
	must(t, s.unpublish(ctx, "a"), s.unpublish(ctx, "b"), s.unstage(ctx))
}

func releasingNothing(t *testing.T, s *suite) {
	ctx := deadline(t)
	must(t, s.unpublish(ctx, "a"), s.unstage(ctx))
	must(t, s.stage(ctx), s.unpublish(ctx, "a"), s.unstage(ctx), s.unstage(ctx))
}

func unknownVolume(t *testing.T, s *suite) {
	s.volume.Handle += "-unknown"
	if err := s.stage(deadline(t)); !driver.IsNotFound(err) && !s.WithoutStaging {
		t.Errorf("stage of unknown volume %s: outcome %s, error %v; want not found", s.volume.Handle, driver.OutcomeOf(err),
			err)
	}
	err := s.publish(deadline(t), "a", false)
	if err == nil || driver.IsUncertain(err) {
		t.Errorf("publish of unknown volume %s: error %v, want one that is certain", s.volume.Handle, err)
	}
	s.expect(t, "a", View{})
}

func publishBeforeStage(t *testing.T, s *suite) {
	if s.WithoutStaging || s.BindsAnything {
		t.Skip("the driver needs no staging")
	}
	ctx := deadline(t)
	must(t, makeDir(s.stagingPath()))
	if err := s.publish(ctx, "a", false); err == nil || driver.IsUncertain(err) {
		t.Errorf("publish of volume %s before its stage: error %v, want one that is certain", s.volume.Handle, err)
	}
	s.expect(t, "a", View{})
	must(t, s.stage(ctx), s.publish(ctx, "a", false))
	s.expect(t, "a", View{Mode: s.volume.Mode})
	must(t, s.unpublish(ctx, "a"), s.unstage(ctx))
}

func endedContext(t *testing.T, s *suite) {
	ended, cancel := context.WithCancel(deadline(t))
	cancel()
	ctx := deadline(t)
	steps := []struct {
		name string
		call func(context.Context) error
	}{
		{"stage", s.stage},
		{"publish", func(ctx context.Context) error { return s.publish(ctx, "a", false) }},
		{"unpublish", func(ctx context.Context) error { return s.unpublish(ctx, "a") }},
		{"unstage", s.unstage},
	}
	if s.WithoutStaging { // its stage and unstage have nothing to do
		steps = steps[1:3]
	}
	for _, step := range steps {
		if err := step.call(ended); err == nil {
			t.Errorf("%s of volume %s with an ended context: no error, want one", step.name, s.volume.Handle)
		} else if outcome := driver.OutcomeOf(err); outcome != driver.Transient && outcome != driver.Uncertain {
			t.Errorf("%s of volume %s with an ended context: outcome %s, error %v; want Transient or Uncertain", step.name,
				s.volume.Handle, outcome, err)
		}
		must(t, step.call(ctx))
	}
	s.expect(t, "a", View{})
}

func stageAgain(t *testing.T, s *suite) {
	ctx := deadline(t)
	for range 2 {
		must(t, s.stage(ctx), s.publish(ctx, "a", false))
		s.expect(t, "a", View{Mode: s.volume.Mode})
		must(t, s.unpublish(ctx, "a"), s.unstage(ctx))
		s.expect(t, "a", View{})
	}
}

func severalAtOnce(t *testing.T, s *suite) {
	const volumes = 4
	all := []*suite{s}
	for len(all) < volumes {
		all = append(all, s.another(t))
	}
	errs := make([]error, len(all))
	var group sync.WaitGroup
	for i, one := range all {
		group.Go(func() {
			ctx := deadline(t)
			errs[i] = errors.Join(one.stage(ctx), one.publish(ctx, "a", false))
		})
	}
	group.Wait()
	must(t, errs...)
	for i, one := range all {
		one.expect(t, "a", View{Mode: one.volume.Mode})
		if err := errors.Join(one.unpublish(deadline(t), "a"), one.unstage(deadline(t))); err != nil {
			t.Errorf("releasing volume %s, number %d of several at once: error %v, want none", one.volume.Handle, i, err)
		}
	}
}
