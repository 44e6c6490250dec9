/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package driver is the agent's interface to the volume drivers of its node. It has a small interface that every driver
// implements, optional capabilities that callers find by type assertion, and typed outcomes.
//
// Every method is idempotent: a call after a success, a failure, or a crash brings about the same end. Every method
// honours its context. A call whose caller gave up may continue in the driver, so its outcome is Uncertain.
package driver

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// Driver stages and publishes volumes on one node.
type Driver interface {
	// Name is the driver's name, such as loop.csi.hawser.io.
	Name() string
	// Stage mounts (or maps) the volume once for the node at StagingPath. It does nothing if the driver has no staging.
	Stage(ctx context.Context, req StageRequest) error
	// Publish makes a staged volume usable at TargetPath.
	Publish(ctx context.Context, req PublishRequest) error
	// Unpublish undoes Publish. It succeeds if the target does not exist.
	Unpublish(ctx context.Context, req UnpublishRequest) error
	// Unstage undoes Stage. It succeeds if the staging path does not exist.
	Unstage(ctx context.Context, req UnstageRequest) error
}

// InfeasibleCodes are the codes that mean that the node can never expand the volume to that capacity. The kubelet has
// the same list.
var InfeasibleCodes = []string{"InvalidArgument", "OutOfRange", "NotFound"}

// What follows are optional capabilities. The agent sees those that metered.wrap passes on.

// Expander is a Driver that can show the node a larger capacity while the volume is in use.
type Expander interface {
	// Expand grows the filesystem (or the device) to req.Capacity and returns the capacity that the node then sees.
	Expand(ctx context.Context, req ExpandRequest) (resource.Quantity, error)
}

// StatsReader is a Driver that reports how full a volume is, whether it is healthy, and whether what stores it is. Of
// what its capabilities do not include it returns an Invalid error with the code Unimplemented, without a call.
type StatsReader interface {
	// Stats of the volume that is published at req.Path.
	Stats(ctx context.Context, req StatsRequest) (Stats, error)
	// VolumeHealth returns the problems of the volume on this node; none if it is healthy.
	VolumeHealth(ctx context.Context, req StatsRequest) ([]volumesv1alpha1.HealthProblem, error)
	// StorageHealth returns the problems of what stores the driver's volumes, as seen from this node.
	StorageHealth(ctx context.Context) ([]volumesv1alpha1.HealthProblem, error)
}

// Describer is a Driver that reports its capabilities on this node.
type Describer interface {
	// Describe returns the element for NodeVolumeState.status.drivers.
	Describe(ctx context.Context) (volumesv1alpha1.NodeDriver, error)
}

// Volume is the part that all requests have.
type Volume struct {
	// Handle is the driver's identifier of the volume.
	Handle string
	// PersistentVolume is the PersistentVolume's name.
	PersistentVolume string
	Mode             corev1.PersistentVolumeMode
	// AccessMode is the PersistentVolume's first access mode.
	AccessMode corev1.PersistentVolumeAccessMode
	FSType     string
	// Attributes is the PersistentVolume's volumeAttributes.
	Attributes map[string]string
	// PublishContext is the result of the driver's ControllerPublishVolume.
	PublishContext map[string]string
}

// StageRequest has exactly the arguments that the kubelet would use.
type StageRequest struct {
	Volume
	StagingPath  string
	MountOptions []string
	// FSGroup is passed to a driver with the capability VOLUME_MOUNT_GROUP.
	FSGroup *int64
	Secrets map[string]string
}

// PublishRequest requests one publication.
type PublishRequest struct {
	Volume
	StagingPath  string
	TargetPath   string
	ReadOnly     bool
	MountOptions []string
	FSGroup      *int64
	Secrets      map[string]string
}

// UnpublishRequest removes one publication.
type UnpublishRequest struct {
	Handle string
	// Mode of the volume, for metrics.
	Mode       corev1.PersistentVolumeMode
	TargetPath string
}

// UnstageRequest removes the stage.
type UnstageRequest struct {
	Handle string
	// Mode of the volume, for metrics.
	Mode        corev1.PersistentVolumeMode
	StagingPath string
}

// ExpandRequest makes the node see a larger capacity.
type ExpandRequest struct {
	Volume
	StagingPath string
	// Path is a published path, or the staging path.
	Path     string
	Capacity resource.Quantity
	Secrets  map[string]string
}

// StatsRequest requests one volume's figures, or its health.
type StatsRequest struct {
	Handle      string
	StagingPath string
	Path        string
}

// Stats of one volume. Fields that the driver does not report are nil.
type Stats struct {
	Capacity, Used, Available *resource.Quantity
	Inodes, InodesUsed        *int64
	// HasHealth: Problems are those of the volume. Drivers before version 1.13 of CSI report them with the figures.
	HasHealth bool
	Problems  []volumesv1alpha1.HealthProblem
}

// Registry tracks the drivers that are registered on the node.
type Registry interface {
	// Get returns the driver of that name, or false while it is not registered. A driver whose socket vanished
	// during a restart stays known, so that its calls fail as Transient.
	Get(name string) (Driver, bool)
	// Drivers returns every known driver, ordered by name.
	Drivers() []volumesv1alpha1.NodeDriver
	// Changed is signalled (capacity one, never closed) when a driver came or went.
	Changed() <-chan struct{}
}
