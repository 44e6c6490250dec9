/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package metered

import (
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/driver/drivertest"
	"github.com/hawser-io/hawser/internal/driver/fake"
	"github.com/hawser-io/hawser/internal/metrics/metricstest"
)

var gibibyte = resource.MustParse("1Gi")

// get returns d as the registry wraps it.
func get(t *testing.T, d driver.Driver) driver.Driver {
	t.Helper()
	timed, ok := Wrap(fake.NewRegistry(d)).Get(d.Name())
	if !ok {
		t.Fatalf("driver %s is not known any more, want it known", d.Name())
	}
	return timed
}

func TestAMeasuredDriverConforms(t *testing.T) {
	var made atomic.Int64
	drivers := map[string]*fake.Driver{} // of the running test
	drivertest.Run(t, drivertest.Config{
		New: func(t *testing.T) driver.Driver {
			drivers[t.Name()] = fake.New("conformance.test", fake.Hooks{})
			return get(t, drivers[t.Name()])
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

func TestAMeasuredDriverHasNoCapabilityThatTheDriverLacks(t *testing.T) {
	full := fake.New("full.test", fake.Hooks{})
	for name, d := range map[string]driver.Driver{
		"none": struct{ driver.Driver }{full},
		"expander": struct {
			driver.Driver
			driver.Expander
		}{full, full},
		"stats": struct {
			driver.Driver
			driver.StatsReader
		}{full, full},
		"both": full,
	} {
		t.Run(name, func(t *testing.T) {
			timed := get(t, d)
			_, wantExpander := d.(driver.Expander)
			_, wantStats := d.(driver.StatsReader)
			_, expands := timed.(driver.Expander)
			_, reads := timed.(driver.StatsReader)
			if expands != wantExpander || reads != wantStats {
				t.Errorf("metered driver (%s): expander %t, stats %t; want %t, %t", name, expands, reads, wantExpander, wantStats)
			}
		})
	}
}

// counted are the operations of the driver's volumes and how often each was observed.
func counted(t *testing.T, name string) map[string]uint64 {
	t.Helper()
	counts := map[string]uint64{}
	for operation, sample := range metricstest.Operations(t, name) {
		counts[operation] = sample.Count
	}
	return counts
}

func TestOperationsAreCountedUnderUpstreamsNames(t *testing.T) {
	for _, c := range []struct {
		mode corev1.PersistentVolumeMode
		want map[string]uint64
	}{
		{corev1.PersistentVolumeFilesystem, map[string]uint64{
			"volume_mount success false": 1, "volume_mount fail-unknown false": 2,
			"volume_fs_resize success false": 1, "volume_unmount success false": 1, "unmount_device success false": 2,
		}},
		{corev1.PersistentVolumeBlock, map[string]uint64{
			"map_volume success false": 1, "map_volume fail-unknown false": 2,
			"volume_fs_resize success false": 1, "unmap_volume success false": 1, "unmap_device success false": 2,
		}},
	} {
		t.Run(string(c.mode), func(t *testing.T) {
			name := strings.ToLower(string(c.mode)) + ".test"
			d := fake.New(name, fake.Hooks{})
			d.AddVolume("vol", gibibyte)
			timed := get(t, d)
			failure := &driver.Error{Outcome: driver.Transient, Code: "Unavailable"}
			d.FailNext(fake.Stage, failure)
			d.FailNext(fake.Publish, failure)
			v := driver.Volume{Handle: "vol", Mode: c.mode, AccessMode: corev1.ReadWriteOnce}
			stage := driver.StageRequest{Volume: v, StagingPath: "/stage"}
			publish := driver.PublishRequest{Volume: v, StagingPath: "/stage", TargetPath: "/published"}
			unstage := driver.UnstageRequest{Handle: "vol", Mode: c.mode, StagingPath: "/stage"}
			expand := func() error {
				_, err := timed.(driver.Expander).Expand(t.Context(),
					driver.ExpandRequest{Volume: v, Path: "/published", Capacity: gibibyte})
				return err
			}
			for i, err := range []error{
				timed.Stage(t.Context(), stage), timed.Stage(t.Context(), stage),
				timed.Publish(t.Context(), publish), timed.Publish(t.Context(), publish), expand(),
				timed.Unpublish(t.Context(), driver.UnpublishRequest{Handle: "vol", Mode: c.mode, TargetPath: "/published"}),
				timed.Unstage(t.Context(), unstage), timed.Unstage(t.Context(), unstage),
			} {
				if failed := i == 0 || i == 2; failed != (err != nil) {
					t.Errorf("call %d of driver %s: error %v, want one: %t", i, name, err, failed)
				}
			}
			if got := counted(t, name); !maps.Equal(got, c.want) {
				t.Errorf("operations counted of driver %s: %v, want %v", name, got, c.want)
			}
		})
	}
}
