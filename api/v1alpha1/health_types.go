/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HealthStatus is the kind of a problem that a driver reports. The names are those of Kubernetes for the values of the
// CSI specification.
// +kubebuilder:validation:Enum=Degraded;Inaccessible;DataLoss;StorageDegraded;StorageUnreachable;Abnormal
type HealthStatus string

const (
	// HealthDegraded: the volume can be used, but does not work as well as it should.
	HealthDegraded HealthStatus = "Degraded"
	// HealthInaccessible: the volume cannot be accessed from this node.
	HealthInaccessible HealthStatus = "Inaccessible"
	// HealthDataLoss: data of the volume is lost, or probably lost.
	HealthDataLoss HealthStatus = "DataLoss"
	// HealthStorageDegraded: the storage behind the driver can be used from this node, but not as it should.
	HealthStorageDegraded HealthStatus = "StorageDegraded"
	// HealthStorageUnreachable: the storage behind the driver cannot be reached from this node.
	HealthStorageUnreachable HealthStatus = "StorageUnreachable"
	// HealthAbnormal: a driver of a CSI version before 1.13 reports that the volume is abnormal, and no more.
	HealthAbnormal HealthStatus = "Abnormal"
)

// HealthProblem is one problem that a driver reports.
type HealthProblem struct {
	// status is what is wrong: Degraded, Inaccessible, DataLoss or Abnormal of a volume, StorageDegraded or
	// StorageUnreachable of what stores the volumes.
	// +required
	Status HealthStatus `json:"status,omitempty"`
	// reason is the driver's word for it.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Reason string `json:"reason,omitempty"`
	// message of the driver, as it was when this set of problems was first reported.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
	// accessMode of the volumes that the problem of the storage is about. Absent if it is about all.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +optional
	AccessMode corev1.PersistentVolumeAccessMode `json:"accessMode,omitempty"`
	// volumeMode of the volumes that the problem of the storage is about. Absent if it is about all.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +optional
	VolumeMode corev1.PersistentVolumeMode `json:"volumeMode,omitempty"`
}

// String is the problem in one line.
func (p HealthProblem) String() string {
	words := slices.DeleteFunc([]string{string(p.Status), p.Reason, string(p.VolumeMode), string(p.AccessMode)},
		func(word string) bool { return word == "" })
	return strings.TrimSuffix(strings.Join(words, " ")+": "+p.Message, ": ")
}

// Health is what a driver reports to be wrong.
type Health struct {
	// problems that the driver reports. At most 16 are listed, and fewer where the node state would become too large.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +required
	Problems []HealthProblem `json:"problems,omitempty"`
	// since is when the agent first read this set of problems. A change of messages alone is not another set.
	// +required
	Since metav1.Time `json:"since"`
}
