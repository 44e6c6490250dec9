/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package nodestate

import (
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// SettleDeclaration removes the declaration from nvs if nothing in it names the attachment any more.
func SettleDeclaration(nvs *volumesv1alpha1.NodeVolumeState, uid types.UID) {
	if !Names(nvs, uid) {
		delete(nvs.Annotations, volumesv1alpha1.DeclaredReleasedPrefix+string(uid))
	}
}

// Names reports whether an entry or a line of nvs names the attachment.
func Names(nvs *volumesv1alpha1.NodeVolumeState, uid types.UID) bool {
	for i := range nvs.Spec.Attachments {
		if nvs.Spec.Attachments[i].AttachmentUID == uid {
			return true
		}
	}
	for i := range nvs.Status.Volumes {
		if nvs.Status.Volumes[i].AttachmentUID == uid {
			return true
		}
	}
	return false
}
