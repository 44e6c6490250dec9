/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package index

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// SetKey is the key of a VolumeAttachmentIntentSet in index Set.
func SetKey(namespace, set string) string { return namespace + "/" + set }

// SetOf names the VolumeAttachmentIntentSet that owns the intent or, if nothing does, that its label names.
func SetOf(intent *volumesv1alpha1.VolumeAttachmentIntent) string {
	owner := metav1.GetControllerOf(intent)
	switch {
	case owner == nil:
		return intent.Labels[volumesv1alpha1.IntentSetLabel]
	case owner.Kind == "VolumeAttachmentIntentSet" && owner.APIVersion == volumesv1alpha1.GroupVersion.String():
		return owner.Name
	}
	return ""
}

func intentSet(o client.Object) []string {
	intent := o.(*volumesv1alpha1.VolumeAttachmentIntent)
	if set := SetOf(intent); set != "" {
		return []string{SetKey(intent.Namespace, set)}
	}
	return nil
}
