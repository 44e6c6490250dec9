/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

// MachineIdentity distinguishes machines that run under one node name. Equal systemUUIDs mean one machine, different
// ones two. If one of them has none, the machineIDs decide.
type MachineIdentity struct {
	// systemUUID is a hash of the system UUID in the firmware. Empty if there is none, or a known placeholder.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	SystemUUID string `json:"systemUUID,omitempty"`
	// machineID is a hash of the machine ID of the installation (/etc/machine-id). Empty if there is none.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	MachineID string `json:"machineID,omitempty"`
	// bootID of the machine's kernel when it last reported. It identifies a boot, not a machine. Empty in status.machine,
	// which has it in status.bootID.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	BootID string `json:"bootID,omitempty"`
}
