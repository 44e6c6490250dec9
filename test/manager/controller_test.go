/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

// TestController runs every scenario on one control plane, each with a manager, nodes and volumes of its own.
func TestController(t *testing.T) {
	w := newWorld(t)
	// What earlier scenarios leave behind, failing intents among it, must cost the later ones nothing.
	for _, s := range []struct {
		name     string
		scenario func(*testing.T, *world)
	}{
		{"invalid input is reported and recovers once repaired", invalidInputIsReportedAndRecoversOnceRepaired},
		{"a volume with the longest handle is attached", theLongestHandleIsAttached},
		{"a claim that is deleted while used waits for its intents", aClaimThatIsDeletedWhileUsedWaitsForItsIntents},
		{"a claim deleted during the release of its intent is removed after it",
			aClaimDeletedDuringTheReleaseOfItsIntentIsRemovedAfterIt},
		{"a claim that no intent uses any more is removed at once, and its name is free",
			aClaimThatNoIntentUsesAnyMoreIsRemovedAtOnce},
		{"a claim deleted while no manager ran is removed at the next start",
			aClaimDeletedWhileNoManagerRanIsRemovedAtTheNextStart},
		{"a claim is marked only while intents use it, where its deletion is refused",
			aClaimIsMarkedOnlyWhileIntentsUseItWhereItsDeletionIsRefused},
		{"an intent does not switch to a claim that was created again", anIntentDoesNotSwitchToAClaimThatWasCreatedAgain},
		{"an intent attaches its volume and its deletion detaches it", attachAndDetach},
		{"an exclusive volume waits for its holder and then moves", anExclusiveVolumeWaitsForItsHolderAndThenMoves},
		{"an attachment that timed out may have succeeded", anAttachmentThatTimedOutMayHaveSucceeded},
		{"a volume for a single pod refuses a second intent until the first is gone",
			aVolumeForASinglePodRefusesASecondIntentUntilTheFirstIsGone},
		{"a volume for a single pod passes to the next intent on its node",
			aVolumeForASinglePodPassesToTheNextIntentOnItsNode},
		{"a shared volume is attached to several nodes", aSharedVolumeIsAttachedToSeveralNodes},
		{"a volume without attach is written to the node at once", aVolumeWithoutAttachIsWrittenToTheNodeAtOnce},
		{"a failure of the attacher is reported and retried", aFailureOfTheAttacherIsReportedAndRetried},
		{"a slow attach is reported after a while", aSlowAttachIsReportedAfterAWhile},
		{"an attachment that another client deletes is created again", anAttachmentThatAnotherClientDeletesIsCreatedAgain},
		{"an attachment marked as detached is reported until it is attached again",
			anAttachmentMarkedAsDetachedIsReportedUntilItIsAttachedAgain},
		{"a failed detach is reported on its node until it succeeds", aFailedDetachIsReportedOnItsNodeUntilItSucceeds},
		{"a deleted intent reports that it waits for an unreachable agent",
			aDeletedIntentReportsThatItWaitsForAnUnreachableAgent},
		{"a node state is created and deleted with its Node", aNodeStateIsCreatedAndDeletedWithItsNode},
		{"a node state outlives its Node while a volume is attached", aNodeStateOutlivesItsNodeWhileAVolumeIsAttached},
		{"an unreachable agent is reported on its node state and intents",
			anUnreachableAgentIsReportedOnItsNodeStateAndIntents},
		{"a node out of service loses its volumes and gets none before its agent reports",
			aNodeOutOfServiceLosesItsVolumesAndGetsNoneBeforeItsAgentReports},
		{"a node that is not Ready for long is forced where the policy allows it",
			aNodeThatIsNotReadyForLongIsForcedWhereThePolicyAllowsIt},
		{"an expansion is written to the node state and the claim", anExpansionIsWrittenToTheNodeStateAndTheClaim},
		{"an attachment of upstream is shared under a hold", anAttachmentOfUpstreamIsSharedUnderAHold},
		{"an attachment under another name is shared too", anAttachmentUnderAnotherNameIsSharedToo},
		{"a volume that pods use is released but not detached", aVolumeThatPodsUseIsReleasedButNotDetached},
		{"a volume in the Node's list is left to upstream", aVolumeInTheNodesListIsLeftToUpstream},
		{"an exclusive volume that a pod uses elsewhere is waited for", anExclusiveVolumeThatAPodUsesElsewhereIsWaitedFor},
		{"a volume that the agent cannot release stays attached", aVolumeThatTheAgentCannotReleaseStaysAttached},
		{"two intents on one node are released one by one", twoIntentsOnOneNodeAreReleasedOneByOne},
		{"the next manager continues after a death at any write", theNextManagerContinuesAfterADeathAtAnyWrite},
		{"a hundred volumes at once share the writes of their node", aHundredVolumesAtOnceShareTheWritesOfTheirNode},
	} {
		t.Run(s.name, func(t *testing.T) { s.scenario(t, w) })
	}
}

func attachAndDetach(t *testing.T, w *world) {
	requests, _ := w.manage(t, managerOptions{})
	w.node(t, "simple-a")
	claim := w.volume(t, "simple", volumeOptions{})
	until(t, w, stateOf("simple-a"), "the agent has reported", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return exists(s) && s.Status.Protocol.ObservedUID == s.UID
	})
	requests.reset()
	intent := w.intent(t, "simple", "simple-a", "simple")
	w.attached(t, intent)
	if n, what := requests.writes(); n > 5 {
		t.Errorf("%d writes to attach volume simple, want at most 5: %s", n, what)
	}
	if intent.Status.UniqueVolumeName != uniqueName("simple") || intent.Status.ClaimUID != claim.UID ||
		intent.Status.VolumeName != "pv-simple" {
		t.Errorf("status of intent %s: %s; want volume pv-simple and claim UID %s", intent.Name,
			dump(intent.Status), claim.UID)
	}
	va := until(t, w, attachmentOf("simple", "simple-a"), "the attachment is held",
		func(va *storagev1.VolumeAttachment) bool {
			return va.Annotations[volumesv1alpha1.HoldAnnotation] != ""
		})
	state := until(t, w, stateOf("simple-a"), "the volume is in use", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return len(s.Status.Volumes) == 1 && s.Status.Volumes[0].InUse
	})
	if e := state.Spec.Attachments[0]; e.AttachmentUID != va.UID || e.PublishContext["device"] != "/dev/pv-simple" ||
		e.FSType != "ext4" {
		t.Errorf("entry of volume simple: %s; want attachment UID %s and what the volume and the attacher give",
			dump(e), va.UID)
	}
	until(t, w, intent, "the intent is Ready", isReady)

	claim = until(t, w, claim, "the claim is protected", protected)
	requests.reset()
	w.releaseAndDetach(t, intent, "simple")
	if n, what := requests.writes(); n > 4 {
		t.Errorf("%d writes to detach volume simple, want at most 4: %s", n, what)
	}

	version := claim.ResourceVersion
	requests.reset()
	again := w.intent(t, "simple-again", "simple-a", "simple")
	w.attached(t, again)
	if n, what := requests.writes(); n > 3 {
		t.Errorf("%d writes to attach volume simple again, want at most 3: %s", n, what)
	}
	until(t, w, again, "the second intent is Ready", isReady)
	requests.reset()
	w.releaseAndDetach(t, again, "simple")
	if n, what := requests.writes(); n > 4 {
		t.Errorf("%d writes to detach volume simple again, want at most 4: %s", n, what)
	}
	until(t, w, claim, "the claim is protected as before", protected)
	if claim.ResourceVersion != version {
		t.Errorf("claim %s was written again: version %s, want %s", claim.Name, claim.ResourceVersion, version)
	}
}

// releaseAndDetach deletes the only intent of a claim's volume and waits until nothing is left of its attachment.
func (w *world) releaseAndDetach(t *testing.T, intent *volumesv1alpha1.VolumeAttachmentIntent, claim string) {
	t.Helper()
	node := intent.Spec.NodeName
	w.delete(t, intent)
	gone(t, w, intent)
	gone(t, w, attachmentOf(claim, node))
	until(t, w, stateOf(node), "the entry is gone", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return handshake.AttachmentOf(s, uniqueName(claim)) == nil
	})
}

func isReady(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return exists(i) && meta.IsStatusConditionTrue(i.Status.Conditions, volumesv1alpha1.ConditionReady)
}

// protected: the claim carries the finalizer that makes its deletion wait for intents.
func protected(claim *corev1.PersistentVolumeClaim) bool {
	return slices.Contains(claim.Finalizers, volumesv1alpha1.ClaimFinalizer)
}
