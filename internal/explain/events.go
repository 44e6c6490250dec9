/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"cmp"
	"regexp"
	"strings"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// sign is a text in the message of a component of Kubernetes, and what it means. Events have no finer reasons.
type sign struct {
	pattern *regexp.Regexp
	reason  string
}

func signs(pairs ...string) []sign {
	var list []sign
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, sign{regexp.MustCompile(pairs[i]), pairs[i+1]})
	}
	return list
}

// mountSigns are for events of the attach/detach controller and the kubelet. The first that matches counts.
var mountSigns = signs(
	`Multi-Attach error|Waiting for detach for volume`, catalog.MultiAttach, // up to 1.36, from 1.37 on
	`not found in the list of registered CSI drivers`, volumesv1alpha1.ReasonDriverNotFound,
	`does not contain driver|no CSIDriver|CSINode .* not found`, volumesv1alpha1.ReasonDriverNotInstalled,
	`(configmap|secret)s? "[^"]+" not found|references non-existent (config|secret) key|object "[^"]+" not registered`,
	catalog.PodMissingObject,
	`PVC is not bound`, catalog.PodUnboundClaims,
	`unmounted volumes=`, catalog.MountWaits,
	`volume attachment limit|max(imum)? (number of )?volumes|ResourceExhausted`, volumesv1alpha1.ReasonNodeLimitReached,
	`DeadlineExceeded|context deadline exceeded|operation with the given .* already exists`, catalog.CallTimedOut,
	`unknown filesystem type`, volumesv1alpha1.ReasonUnknownFSType,
	`executable file not found`, volumesv1alpha1.ReasonFormatToolMissing,
)

// classGone is what the controller of claims reports of a class that does not exist.
var classGone = regexp.MustCompile(`storageclass\.storage\.k8s\.io "[^"]+" not found`)

// attachSigns are for what an attacher reports before it calls its driver. The first that matches counts.
var attachSigns = signs(
	`does not contain driver|CSINode .* not found|has no NodeID`, volumesv1alpha1.ReasonDriverNotInstalled,
	`volume attachment limit|max(imum)? (number of )?volumes|ResourceExhausted`, volumesv1alpha1.ReasonNodeLimitReached,
)

// schedulerSigns are for the message of PodScheduled. Each that matches counts.
var schedulerSigns = signs(
	`persistentvolumeclaim "[^"]+" not found`, volumesv1alpha1.ReasonClaimNotFound,
	`persistentvolumeclaim "[^"]+" is being deleted`, volumesv1alpha1.ReasonClaimDeleting,
	`non-existent pv`, volumesv1alpha1.ReasonVolumeNotFound,
	`volume node affinity conflict|match PersistentVolume's node affinity|no available volume zone`, catalog.PodAffinity,
	`unbound immediate PersistentVolumeClaims`, catalog.PodUnboundClaims,
	`exceed max volume count`, catalog.PodVolumeLimit,
	`didn't find available persistent volumes to bind|did not have enough free storage`, catalog.PodNoStorage,
	`ReadWriteOncePod access mode already in-use`, catalog.PodSingleUser,
	`waiting for ephemeral volume controller`, catalog.PodEphemeralClaim,
)

// notYetAuthorized is what the API server answers a kubelet that is faster than the server's own view of its pods. The
// kubelet asks again at once.
var notYetAuthorized = regexp.MustCompile(`no relationship found between node`)

// mountReason is what an event of a pod means; empty if it is about no volume.
func mountReason(e facts.Event) string {
	if e.Reason != "FailedAttachVolume" && e.Reason != "FailedMount" && e.Reason != "FailedMapVolume" ||
		notYetAuthorized.MatchString(e.Message) {
		return ""
	}
	for _, s := range mountSigns {
		if s.pattern.MatchString(e.Message) {
			return s.reason
		}
	}
	if e.Reason == "FailedAttachVolume" {
		return catalog.AttachEvent
	}
	return catalog.MountFailed
}

// busy is what the kernel answers to an unmount of what is in use, as drivers repeat it.
var busy = regexp.MustCompile(`(target|device|mount|resource) is busy|[Dd]evice or resource busy|EBUSY`)

// releases are the reasons of a release that fails.
var releases = map[string]bool{volumesv1alpha1.ReasonUnpublishFailed: true, volumesv1alpha1.ReasonUnstageFailed: true,
	catalog.VolumeError: true}

// unlessBusy distinguishes a release that fails because the volume is in use. Its driver can do nothing about that.
func unlessBusy(a about) about {
	if releases[a.reason] && busy.MatchString(a.detail) {
		a.reason = catalog.VolumeBusy
	}
	return a
}

// attachReason is what the error of an attachment means.
func attachReason(message string) string {
	for _, s := range attachSigns {
		if s.pattern.MatchString(message) {
			return s.reason
		}
	}
	return volumesv1alpha1.ReasonAttachFailed
}

// schedulerReasons are all that the scheduler's message names.
func schedulerReasons(message string) []string {
	var reasons []string
	for _, s := range schedulerSigns {
		if s.pattern.MatchString(message) {
			reasons = append(reasons, s.reason)
		}
	}
	if len(reasons) == 0 {
		return []string{catalog.PodUnscheduled}
	}
	return reasons
}

// claimReason is what the newest event of a claim means; empty if it means nothing that the claim waits for.
func claimReason(e facts.Event) string {
	switch e.Reason {
	case "ProvisioningFailed":
		if classGone.MatchString(e.Message) {
			return catalog.ClassMissing
		}
		return catalog.ProvisioningFailed
	case "FailedBinding":
		if strings.Contains(e.Message, "no storage class is set") {
			return catalog.ClassUnset
		}
		return volumesv1alpha1.ReasonClaimNotBound
	case "ExternalProvisioning", "Provisioning":
		return catalog.WaitsForProvisioner
	case "WaitForFirstConsumer", "WaitForPodScheduled":
		return catalog.WaitsForPod
	default:
		return ""
	}
}

// damaged is what mount, fsck and the kernel report of a filesystem that may be damaged.
var damaged = regexp.MustCompile(`(?i)superblock|fsck|structure needs cleaning|corrupt|bad magic|journal`)

// device is one that such a message names, without the punctuation after it.
var device = regexp.MustCompile(`/dev/[^\s,;'"()]*[^\s,;'"():.]`)

// warned is a warning about the data of a filesystem that cannot be mounted and may be damaged; empty for all else.
func warned(a about) string {
	if a.reason != catalog.MountFailed && a.reason != volumesv1alpha1.ReasonStageFailed || !damaged.MatchString(a.detail) {
		return ""
	}
	on := cmp.Or(device.FindString(a.detail), "DEVICE")
	return " If the filesystem is damaged, its data is at risk: first take a snapshot or a copy of the volume, and try " +
		"fsck on that. Run it on the volume only while no node has it mounted, and never format it. On the node, " +
		"`blkid -p " + on + "` and `wipefs " + on + "` show what is on the device, and change nothing. If the volume is " +
		"new, and its node failed while the driver formatted it, there is nothing to save: delete the claim and create " +
		"it again, for another volume."
}
