/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package fake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/driver/drivertest"
)

var gibibyte = resource.MustParse("1Gi")

func TestConformance(t *testing.T) {
	var made atomic.Int64
	drivers := map[string]*Driver{} // of the running test
	drivertest.Run(t, drivertest.Config{
		New: func(t *testing.T) driver.Driver {
			drivers[t.Name()] = New("fake.csi.test", Hooks{})
			return drivers[t.Name()]
		},
		Dir: func(t *testing.T) string { return t.TempDir() },
		Volume: func(t *testing.T, mode corev1.PersistentVolumeMode) driver.Volume {
			handle := fmt.Sprintf("vol-%d", made.Add(1))
			drivers[t.Name()].AddVolume(handle, gibibyte)
			return driver.Volume{Handle: handle, Mode: mode, AccessMode: corev1.ReadWriteOnce}
		},
		Capacity: gibibyte,
		Grow: func(t *testing.T, v driver.Volume, capacity resource.Quantity) {
			drivers[t.Name()].AddVolume(v.Handle, capacity)
		},
		ViewOf: func(t *testing.T, v driver.Volume, path string) drivertest.View {
			if readOnly, ok := drivers[t.Name()].Published(v.Handle)[path]; ok {
				return drivertest.View{Mode: v.Mode, ReadOnly: readOnly && v.Mode == corev1.PersistentVolumeFilesystem}
			}
			return drivertest.View{}
		},
	})
}

func fixture() (*Driver, driver.StageRequest) {
	d := New("fake.csi.test", Hooks{})
	d.AddVolume("vol", gibibyte)
	return d, driver.StageRequest{Volume: driver.Volume{Handle: "vol"}, StagingPath: "/stage"}
}

func TestAScriptedErrorComesOnce(t *testing.T) {
	d, req := fixture()
	scripted := &driver.Error{Outcome: driver.Uncertain, Code: "Internal", Message: "scripted"}
	d.FailNext(Stage, scripted)
	d.FailNextAfterEffect(Stage, scripted)
	if err := d.Stage(t.Context(), req); !errors.Is(err, scripted) || d.StagedAt("vol") != "" {
		t.Errorf("first stage of vol: error %v, staged at %q; want the scripted error and no effect", err, d.StagedAt("vol"))
	}
	if err := d.Stage(t.Context(), req); !errors.Is(err, scripted) || d.StagedAt("vol") != "/stage" {
		t.Errorf("second stage of vol: error %v, staged at %q; want the scripted error after the effect", err,
			d.StagedAt("vol"))
	}
	if err := d.Stage(t.Context(), req); err != nil {
		t.Errorf("third stage of vol: error %v, want none", err)
	}
	if got := d.Methods("vol"); !slices.Equal(got, []Method{Stage, Stage, Stage}) {
		t.Errorf("calls for vol: %v, want three times %s", got, Stage)
	}
}

func TestACallThatHangsMayHaveItsEffectAfterItsCallerGaveUp(t *testing.T) {
	d, req := fixture()
	hang := d.HangNext(Stage)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-hang.Entered()
		cancel()
	}()
	if err := d.Stage(ctx, req); !driver.IsUncertain(err) || !errors.Is(err, context.Canceled) {
		t.Errorf("stage of vol whose caller gave up: error %v, want Uncertain, canceled", err)
	}
	err := d.Unstage(t.Context(), driver.UnstageRequest{Handle: "vol", StagingPath: "/stage"})
	if driver.CodeOf(err) != "Aborted" || !driver.IsUncertain(err) {
		t.Errorf("unstage of vol during the hanging stage: error %v, want Aborted and Uncertain", err)
	}
	hang.Release()
	<-hang.Ended()
	if d.StagedAt("vol") != "/stage" {
		t.Errorf("vol after the hang was released is staged at %q, want /stage", d.StagedAt("vol"))
	}
}

func TestAHangThatIsDroppedHasNoEffect(t *testing.T) {
	d, req := fixture()
	hang := d.HangNext(Stage)
	go func() {
		<-hang.Entered()
		hang.Drop()
	}()
	if err := d.Stage(t.Context(), req); !driver.IsUncertain(err) || d.StagedAt("vol") != "" {
		t.Errorf("stage of vol whose hang was dropped: error %v, staged at %q; want Uncertain and no effect", err,
			d.StagedAt("vol"))
	}
}

func TestAHookThatFailsVoidsTheEffect(t *testing.T) {
	broken := errors.New("the table is full")
	d := New("fake.csi.test", Hooks{Stage: func(driver.StageRequest) error { return broken }})
	d.AddVolume("vol", gibibyte)
	_, req := fixture()
	if err := d.Stage(t.Context(), req); !errors.Is(err, broken) || d.StagedAt("vol") != "" {
		t.Errorf("stage of vol with a failing hook: error %v, staged at %q; want the hook's error and no effect", err,
			d.StagedAt("vol"))
	}
}

func TestTheHealthIsWhatWasSet(t *testing.T) {
	d, _ := fixture()
	volume := volumesv1alpha1.HealthProblem{Status: volumesv1alpha1.HealthDegraded, Reason: "PathLost"}
	storage := volumesv1alpha1.HealthProblem{Status: volumesv1alpha1.HealthStorageDegraded, Reason: "Slow"}
	d.SetHealth("vol", volume)
	d.SetStorageHealth(storage)
	if got, err := d.VolumeHealth(t.Context(), driver.StatsRequest{Handle: "vol"}); err != nil || len(got) != 1 ||
		got[0] != volume {
		t.Errorf("health of vol: %v, error %v; want %v", got, err, volume)
	}
	if got, err := d.StorageHealth(t.Context()); err != nil || len(got) != 1 || got[0] != storage {
		t.Errorf("health of the storage of %s: %v, error %v; want %v", d.Name(), got, err, storage)
	}
	broken := &driver.Error{Outcome: driver.Transient, Code: "Internal"}
	d.FailNext(StorageHealth, broken)
	if got, err := d.StorageHealth(t.Context()); !errors.Is(err, broken) {
		t.Errorf("health of the storage of a driver that fails: %v, error %v; want the scripted error", got, err)
	}
}

func TestTheBaseHasNoCapability(t *testing.T) {
	d, _ := fixture()
	base := d.Base()
	if _, ok := base.(driver.Expander); ok {
		t.Errorf("the base of driver %s is an Expander, want none", d.Name())
	}
	if base.Name() != d.Name() {
		t.Errorf("name of the base: %s, want %s", base.Name(), d.Name())
	}
}

func TestTheRegistrySignalsChanges(t *testing.T) {
	d, _ := fixture()
	r := NewRegistry()
	if _, ok := r.Get(d.Name()); ok {
		t.Errorf("driver %s is known before it was added, want it unknown", d.Name())
	}
	r.Add(d)
	<-r.Changed()
	if lines := r.Drivers(); len(lines) != 1 || lines[0].NodeID != "fake" {
		t.Errorf("known drivers: %+v, want one with node ID fake", lines)
	}
	r.Remove(d.Name())
	<-r.Changed()
	if _, ok := r.Get(d.Name()); ok {
		t.Errorf("driver %s is known after it was removed, want it unknown", d.Name())
	}
}
