/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package volume

import (
	storagev1 "k8s.io/api/storage/v1"
	storagehelpers "k8s.io/component-helpers/storage/volume"
)

// WaitsForFirstConsumer reports whether claims of the class, which may be nil, get a volume once a node is known.
func WaitsForFirstConsumer(class *storagev1.StorageClass) bool {
	return class != nil && class.VolumeBindingMode != nil &&
		*class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// Provisions reports whether volumes of the class are made. To name a node to a claim of another class keeps the
// scheduler from binding one of the volumes that exist.
func Provisions(class *storagev1.StorageClass) bool {
	return class.Provisioner != "" && class.Provisioner != storagehelpers.NotSupportedProvisioner
}
