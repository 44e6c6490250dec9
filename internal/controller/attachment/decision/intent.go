/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/resolve"
)

// Intent is one intent for the volume.
type Intent struct {
	Object *volumesv1alpha1.VolumeAttachmentIntent
	Result resolve.Result
	// Claim that it names; nil where there is none.
	Claim *corev1.PersistentVolumeClaim
	// Protected: its own finalizer and its claim's are in place, as far as it needs them.
	Protected bool

	// refused by limitUses, and because of its namespace.
	refused, namespaceFull bool
}

// mayAttach reports whether something may be attached for the intent now.
func (i *Intent) mayAttach() bool { return i.Result.OK && i.Protected }

// Pinned reports whether the intent's status names its volume.
func (i *Intent) Pinned() bool { return i.Object.Status.UniqueVolumeName != "" }

// Name is the intent's namespace and name.
func (i *Intent) Name() string { return i.Object.Namespace + "/" + i.Object.Name }

// older puts pinned intents before others and then goes by age and name.
func (i *Intent) older(j *Intent) bool {
	if i.Pinned() != j.Pinned() {
		return i.Pinned()
	}
	if a, b := i.Object.CreationTimestamp, j.Object.CreationTimestamp; !a.Equal(&b) {
		return a.Before(&b)
	}
	return i.Name() < j.Name()
}

// ByAgent reports whether the agent publishes for the intent, not the kubelet.
func (i *Intent) ByAgent() bool { return i.Object.Spec.Publisher != volumesv1alpha1.PublisherKubelet }
