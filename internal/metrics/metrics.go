/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package metrics has the metrics that manager and agent share. If upstream measures the same, they have upstream's
// names, labels and values of labels. Existing dashboards and alerts then continue to work.
package metrics

import (
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Operation names one kind of storage operation as upstream does.
type Operation string

// Operations of the manager, then those of the agent.
const (
	VolumeAttach   Operation = "volume_attach"
	VolumeDetach   Operation = "volume_detach"
	VolumeMount    Operation = "volume_mount"
	VolumeUnmount  Operation = "volume_unmount"
	UnmountDevice  Operation = "unmount_device"
	MapVolume      Operation = "map_volume"
	UnmapVolume    Operation = "unmap_volume"
	UnmapDevice    Operation = "unmap_device"
	VolumeFSResize Operation = "volume_fs_resize"
)

// Phase of a volume's life.
type Phase string

const (
	// Attach lasts from when an intent was first seen until its volume is attached.
	Attach Phase = "attach"
	// Stage lasts from when the agent saw that the volume is attached until it is staged.
	Stage Phase = "stage"
	// Publish lasts from when the volume is staged, or a further intent for it was seen, until it is published.
	Publish Phase = "publish"
	// Detach lasts from when the volume is marked Detaching, because its node released it, until it is detached.
	Detach Phase = "detach"
)

var (
	operations = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "storage_operation_duration_seconds",
		Help:    "Duration of storage operations, in seconds.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, []string{"volume_plugin", "operation_name", "status", "migrated"})

	phases = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "hawser_phase_duration_seconds",
		Help:    "Duration of the phases of a volume's life (attach, stage, publish, detach), in seconds.",
		Buckets: []float64{.025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, []string{"driver", "phase"})
)

// Register adds the metrics of this package to reg.
func Register(reg prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{operations, phases} {
		if err := reg.Register(c); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}

// PluginName is upstream's name for the plugin of a CSI driver's volumes.
func PluginName(driver string) string { return "kubernetes.io/csi:" + driver }

// ObserveOperation counts an attempt at an operation on a volume of driver. migrated is true if the volume's source is
// an in-tree plugin that the driver replaces.
func ObserveOperation(driver string, o Operation, ok, migrated bool, d time.Duration) {
	status := "success"
	if !ok {
		status = "fail-unknown"
	}
	operations.WithLabelValues(PluginName(driver), string(o), status, strconv.FormatBool(migrated)).Observe(d.Seconds())
}

// ObservePhase counts a phase that has ended.
func ObservePhase(driver string, p Phase, d time.Duration) {
	phases.WithLabelValues(driver, string(p)).Observe(max(d, 0).Seconds())
}
