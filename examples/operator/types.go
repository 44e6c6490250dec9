/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Dataset puts the volume of a claim on nodes, read-only. crd.yaml is its schema.
type Dataset struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              DatasetSpec   `json:"spec"`
	Status            DatasetStatus `json:"status,omitempty"`
}

// DatasetSpec is what the author of a Dataset wants.
type DatasetSpec struct {
	ClaimName string   `json:"claimName"`
	Nodes     []string `json:"nodes"`
}

// DatasetStatus is what has come of it.
type DatasetStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Nodes              []NodeStatus       `json:"nodes,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// NodeStatus is the volume on one node. Reason is empty once it can be used at Path.
type NodeStatus struct {
	Name   string `json:"name"`
	Path   string `json:"path,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// DatasetList is a list of Datasets.
type DatasetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Dataset `json:"items"`
}

var groupVersion = schema.GroupVersion{Group: "data.example.com", Version: "v1"}

func addToScheme(scheme *runtime.Scheme) {
	scheme.AddKnownTypes(groupVersion, &Dataset{}, &DatasetList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
}

// DeepCopyObject is what controller-gen would generate.
func (d *Dataset) DeepCopyObject() runtime.Object {
	out := *d
	out.ObjectMeta = *d.ObjectMeta.DeepCopy()
	out.Spec.Nodes = slices.Clone(d.Spec.Nodes)
	out.Status.Nodes = slices.Clone(d.Status.Nodes)
	out.Status.Conditions = slices.Clone(d.Status.Conditions)
	return &out
}

// DeepCopyObject is what controller-gen would generate.
func (l *DatasetList) DeepCopyObject() runtime.Object {
	out := *l
	out.ListMeta = *l.ListMeta.DeepCopy()
	out.Items = nil
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*Dataset))
	}
	return &out
}
