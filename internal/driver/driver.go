/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package driver is what the agent needs of a volume driver on its node: a small interface that every driver
// has, optional capabilities that are asked for by type assertion, and typed outcomes.
//
// Every method is idempotent: called again after success, after a failure, or after a crash in the
// middle, it brings about the same end. Every method honours its context; a call that is given up
// may still go on in the driver, therefore its outcome is Uncertain.
package driver

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// Driver brings volumes onto one node.
type Driver interface {
	// Name is the driver's name, such as loop.csi.hawser.io.
	Name() string
	// Stage mounts (or maps) the volume once for the node at StagingPath. A driver without staging does nothing.
	Stage(ctx context.Context, req StageRequest) error
	// Publish makes a staged volume usable at TargetPath.
	Publish(ctx context.Context, req PublishRequest) error
	// Unpublish undoes Publish. A target that is not there is done.
	Unpublish(ctx context.Context, req UnpublishRequest) error
	// Unstage undoes Stage. A staging path that is not there is done.
	Unstage(ctx context.Context, req UnstageRequest) error
}

// InfeasibleCodes are the codes with which a driver says that the node can never expand the volume to that capacity. They are the kubelet's.
var InfeasibleCodes = []string{"InvalidArgument", "OutOfRange", "NotFound"}

// Expander is a Driver that can make a larger capacity known to the node while the volume is in use.
type Expander interface {
	// Expand grows the filesystem (or the device) to req.Capacity and returns what the node sees afterwards.
	Expand(ctx context.Context, req ExpandRequest) (resource.Quantity, error)
}

// StatsReader is a Driver that tells how full a volume is and whether it is healthy.
type StatsReader interface {
	// Stats of the volume that is published at req.Path.
	Stats(ctx context.Context, req StatsRequest) (Stats, error)
}

// Describer is a Driver that tells what it can do on this node.
type Describer interface {
	// Describe returns the line for NodeVolumeState.status.drivers.
	Describe(ctx context.Context) (volumesv1alpha1.NodeDriver, error)
}

// Volume is what every request carries.
type Volume struct {
	// Handle is the driver's name of the volume.
	Handle string
	// PersistentVolume is the PersistentVolume's name.
	PersistentVolume string
	Mode             corev1.PersistentVolumeMode
	// AccessMode is the PersistentVolume's first access mode.
	AccessMode corev1.PersistentVolumeAccessMode
	FSType     string
	// Attributes is the PersistentVolume's volumeAttributes.
	Attributes map[string]string
	// PublishContext is the answer of the driver's ControllerPublishVolume.
	PublishContext map[string]string
}

// StageRequest carries exactly the arguments that the kubelet would use.
type StageRequest struct {
	Volume
	StagingPath  string
	MountOptions []string
	// FSGroup is handed to a driver that is capable of VOLUME_MOUNT_GROUP.
	FSGroup *int64
	Secrets map[string]string
}

// PublishRequest asks for one publication.
type PublishRequest struct {
	Volume
	StagingPath  string
	TargetPath   string
	ReadOnly     bool
	MountOptions []string
	FSGroup      *int64
	Secrets      map[string]string
}

// UnpublishRequest undoes one publication.
type UnpublishRequest struct {
	Handle string
	// Mode of the volume, for those who count.
	Mode       corev1.PersistentVolumeMode
	TargetPath string
}

// UnstageRequest undoes the stage.
type UnstageRequest struct {
	Handle string
	// Mode of the volume, for those who count.
	Mode        corev1.PersistentVolumeMode
	StagingPath string
}

// ExpandRequest asks the node to see a larger capacity.
type ExpandRequest struct {
	Volume
	StagingPath string
	// Path is a published path, or the staging path.
	Path     string
	Capacity resource.Quantity
	Secrets  map[string]string
}

// StatsRequest asks for one volume's figures.
type StatsRequest struct {
	Handle      string
	StagingPath string
	Path        string
}

// Stats of one volume. Fields that the driver does not tell are nil.
type Stats struct {
	Capacity, Used, Available *resource.Quantity
	Inodes, InodesUsed        *int64
	// Abnormal volume condition, with the driver's message.
	Abnormal bool
	Message  string
}

// Registry knows the drivers that are registered on the node.
type Registry interface {
	// Get returns the driver of that name; false while it is not registered. A driver whose socket
	// vanished while it restarts stays known for its calls to fail as Transient.
	Get(name string) (Driver, bool)
	// Drivers returns every driver that is known, in order of name.
	Drivers() []volumesv1alpha1.NodeDriver
	// Changed is signalled (capacity one, never closed) when a driver came or went.
	Changed() <-chan struct{}
}
