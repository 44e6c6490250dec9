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

// PodPhase is a part of the time between the creation of a pod and its use of an inline volume. The phases follow one
// another. The manager counts the first three, the agent the others.
type PodPhase string

const (
	// PodGate lasts from when the manager first sees a gated pod until its gate is lifted.
	PodGate PodPhase = "gate"
	// PodScheduled lasts from there until the pod has a node.
	PodScheduled PodPhase = "scheduled"
	// PodIntent lasts from there until the intent for the pod's claim exists.
	PodIntent PodPhase = "intent"
	// PodAttached lasts from when the manager first saw the intent until its volume is attached.
	PodAttached PodPhase = "attached"
	// PodStaged lasts from there until the volume is staged.
	PodStaged PodPhase = "staged"
	// PodPublished lasts from there until the volume is published.
	PodPublished PodPhase = "published"
	// PodBound lasts from there until the volume is mounted in the pod; for the volume of an intent that is not the
	// pod's own, from the kubelet's call.
	PodBound PodPhase = "bound"
)

var (
	podPhases = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "hawser_pod_volume_seconds",
		Help: "Duration of the phases until a pod has its inline volume, in seconds. The manager has gate: from its first " +
			"observation of the pod until it lifts the gate; scheduled: from there until the pod has a node; intent: from " +
			"there until the intent for the pod's claim exists. The agent has, for the volume of a claim, attached: from the " +
			"manager's first observation of the intent until its volume is attached; staged and published: from there on; " +
			"bound: from there until the volume is mounted in the pod. For the volume of an intent it has bound only, from " +
			"the kubelet's call.",
		Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600},
	}, []string{"phase"})

	operations = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "storage_operation_duration_seconds",
		Help: "Duration of storage operations, in seconds. The manager has volume_attach and volume_detach: how long the " +
			"driver's attacher took; each error that it reports ends one attempt (fail-unknown) and begins the next. The " +
			"agent has volume_mount, volume_unmount, unmount_device, map_volume, unmap_volume, unmap_device and " +
			"volume_fs_resize; the first volume_mount of a volume includes its stage.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, []string{"volume_plugin", "operation_name", "status", "migrated"})

	phases = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "hawser_phase_duration_seconds",
		Help: "Duration of the phases of a volume's life, in seconds. The manager has attach: from its first observation " +
			"of the intent until Attached, waiting included; and detach: from the node's release until the volume is " +
			"detached. The agent has stage: from its observation that the volume is attached and wanted until it is " +
			"staged; and publish: from there, or from the observation of a further intent, until it is published.",
		Buckets: []float64{.025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, []string{"driver", "phase"})
)

// Collectors are the metrics that both programs have.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{operations, phases, podPhases}
}

// Register adds the metrics of this package to reg.
func Register(reg prometheus.Registerer) error {
	for _, c := range Collectors() {
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

// ObservePodPhase counts a phase of a pod that has ended.
func ObservePodPhase(p PodPhase, d time.Duration) {
	podPhases.WithLabelValues(string(p)).Observe(max(d, 0).Seconds())
}

// ObservePhase counts a phase that has ended.
func ObservePhase(driver string, p Phase, d time.Duration) {
	phases.WithLabelValues(driver, string(p)).Observe(max(d, 0).Seconds())
}
