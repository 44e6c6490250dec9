/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package v1alpha1 holds the first version of the volumes.hawser.io API:
// VolumeAttachmentIntent says which volume is wanted on which node and how far,
// VolumeAttachmentIntentSet keeps one intent for each node that a selector matches,
// NodeVolumeState is the state of a node's volumes,
// VolumeManager is how Hawser itself is set up.
//
// +kubebuilder:object:generate=true
// +groupName=volumes.hawser.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the group and version of every kind in this package.
	GroupVersion = schema.GroupVersion{Group: "volumes.hawser.io", Version: "v1alpha1"}

	// SchemeBuilder collects the functions that add this package's kinds to a scheme.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme adds this package's kinds to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&VolumeAttachmentIntent{}, &VolumeAttachmentIntentList{},
		&VolumeAttachmentIntentSet{}, &VolumeAttachmentIntentSetList{},
		&NodeVolumeState{}, &NodeVolumeStateList{},
		&VolumeManager{}, &VolumeManagerList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
