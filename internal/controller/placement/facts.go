/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package placement

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
)

// facts are all that is known of one gated pod. What does not exist is nil.
type facts struct {
	pod     *corev1.Pod
	volumes []volumeFacts
	// nodes of today. They only serve to choose and to exclude.
	nodes []*corev1.Node
	// capacities of the StorageClasses whose drivers publish them.
	capacities []storagev1.CSIStorageCapacity
	// room has, for each driver with a limit, how many more volumes fit on a node. A node without a limit is not in it.
	room map[string]map[string]int
}

// volumeFacts are those of one inline volume of the pod: of a claim or of an intent.
type volumeFacts struct {
	// name of the pod's volume, and the object of the pod's namespace that it names.
	name, claimName, intentName string
	// invalid is what is wrong with the attributes; empty if nothing is.
	invalid string

	intent *volumesv1alpha1.VolumeAttachmentIntent
	// node that the intent or the claim names.
	node *corev1.Node

	claim  *corev1.PersistentVolumeClaim
	class  *storagev1.StorageClass
	driver *storagev1.CSIDriver
	pv     *corev1.PersistentVolume
	// pvErr is why the source of the volume translates to no CSI volume.
	pvErr error
	// attachedTo are the nodes that the volume is attached to.
	attachedTo map[string]bool
	users      users
}

// users of a claim or its volume, beside the pod itself.
type users struct {
	all []user
	// lock is the node that has the lock of the exclusive volume; empty for none.
	lock string
	// present are the nodes where the volume is in use.
	present []string
}

// user is a pod or an intent.
type user struct {
	// name as a message has it; empty for one of another namespace.
	name string
	// node is empty for a pod that has no node yet.
	node string
	pod  types.UID
	// leaving: it is being deleted, or its pod is gone.
	leaving bool
}

// staying are the users that nothing ends.
func (u users) staying() []user {
	return slices.DeleteFunc(slices.Clone(u.all), func(u user) bool { return u.leaving })
}

// bound reports whether the claim has its volume.
func (v *volumeFacts) bound() bool {
	return v.claim.Status.Phase == corev1.ClaimBound && v.claim.Spec.VolumeName != ""
}

// driverName is the driver that has or will have the volume; empty if there is none.
func (v *volumeFacts) driverName() string {
	switch {
	case v.pv != nil:
		return volume.DriverOf(v.pv)
	case v.class != nil:
		return v.class.Provisioner
	}
	return ""
}

// limited reports whether the volume counts against the limits of the nodes, which are about attachments.
func (v *volumeFacts) limited() bool {
	d := v.driver
	return v.claimName != "" && (d == nil || d.Spec.AttachRequired == nil || *d.Spec.AttachRequired)
}
