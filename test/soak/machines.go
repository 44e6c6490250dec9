/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/machine"
)

// droppedOfOthers finds the uses that ended between two versions of a node state although the machine that reports is
// not the one that used the volume, and no administrator has ended the use.
func droppedOfOthers(was, is *volumesv1alpha1.NodeVolumeState) []error {
	var wrong []error
	for i := range was.Status.Volumes {
		line := &was.Status.Volumes[i]
		user := machine.UserOf(was, line)
		if !line.InUse || machine.Compare(user, is.Status.Machine) != machine.Other {
			continue
		}
		uid := line.AttachmentUID
		if uses(is, line.VolumeName, user) || ended(was, line.VolumeName, uid) || ended(is, line.VolumeName, uid) {
			continue
		}
		wrong = append(wrong, fmt.Errorf("machine %s of %s reports %s (attachment %s) released, which machine %s uses",
			is.Status.Machine.SystemUUID, is.Name, line.VolumeName, uid, user.SystemUUID))
	}
	return wrong
}

func uses(nvs *volumesv1alpha1.NodeVolumeState, volume string, user volumesv1alpha1.MachineIdentity) bool {
	for i := range nvs.Status.Volumes {
		l := &nvs.Status.Volumes[i]
		if l.VolumeName == volume && l.InUse && machine.Compare(machine.UserOf(nvs, l), user) == machine.Same {
			return true
		}
	}
	return false
}

// ended reports whether an administrator has ended the use of the attachment; one without a UID belongs to the entry.
func ended(nvs *volumesv1alpha1.NodeVolumeState, volume string, uid types.UID) bool {
	for i := range nvs.Spec.Attachments {
		e := &nvs.Spec.Attachments[i]
		if e.VolumeName != volume || uid != "" && e.AttachmentUID != uid {
			continue
		}
		uid = e.AttachmentUID
		if e.DetachedTime != nil && e.Evidence != nil && e.Evidence.Type == volumesv1alpha1.EvidenceOutOfServiceTaint {
			return true
		}
	}
	return nvs.Annotations[volumesv1alpha1.DeclaredReleasedPrefix+string(uid)] != ""
}
