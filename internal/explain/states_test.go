/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

func TestOnlyAnIntentThatIsNotOfAPodIsToBeDeletedForAClaimThatIsGone(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*volumesv1alpha1.VolumeAttachmentIntent)
		way    string
	}{
		"never resolved": {func(*volumesv1alpha1.VolumeAttachmentIntent) {}, "Create the claim"},
		"resolved": {func(i *volumesv1alpha1.VolumeAttachmentIntent) {
			i.Status.ClaimUID = "first"
		}, "Delete the intent"},
		"of a pod": {func(i *volumesv1alpha1.VolumeAttachmentIntent) {
			i.Status.ClaimUID, i.Labels = "first", map[string]string{volumesv1alpha1.PodUIDLabel: "pod-uid"}
		}, "Create the claim"},
	} {
		f := healthy(failing(volumesv1alpha1.ReasonClaimNotFound), nil)
		v := &f.Volumes[0]
		v.Claim.Value, v.Claim.Found = nil, false
		v.Claim.Err = apierrors.NewNotFound(schema.GroupResource{Resource: "persistentvolumeclaims"}, "data")
		tt.change(v.Intent.Value)
		r := Explain(f)
		if got := r.Findings[0]; got.Reason != volumesv1alpha1.ReasonClaimNotFound || !strings.HasPrefix(got.Way, tt.way) {
			t.Errorf("%s: the cause is %s with the way out %q, want %s with %q", name, got.Reason, got.Way,
				volumesv1alpha1.ReasonClaimNotFound, tt.way)
		}
	}
}

func TestAPodNeedsItsClaimThoughItsIntentIsBeingDeleted(t *testing.T) {
	deleted := metav1.NewTime(now)
	for podVolume, level := range map[string]catalog.Level{"": catalog.Note, "data": ""} {
		v := &facts.Volume{PodVolume: podVolume, Intent: object(facts.KindIntent, "shop", "data",
			&volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &deleted}})}
		if got := unlessReleased(v); got != level {
			t.Errorf("volume %q of a pod: a claim that is missing has level %q, want %q", podVolume, got, level)
		}
	}
}

func TestADeclarationOfAllIsDoneOnlyOnceEachOfItsAttachmentsIsDeclared(t *testing.T) {
	line := func(uid types.UID, machine, fails bool) volumesv1alpha1.NodeVolume {
		l := volumesv1alpha1.NodeVolume{AttachmentUID: uid, InUse: true}
		if machine {
			l.Machine = &volumesv1alpha1.MachineIdentity{SystemUUID: "0123456789abcdef"}
		}
		if fails {
			l.Error = &volumesv1alpha1.OperationError{Operation: "unstage"}
		}
		return l
	}
	old, busy := line("old", true, false), line("busy", false, true)
	for name, tt := range map[string]struct {
		lines            []volumesv1alpha1.NodeVolume
		declared         string
		stuck, other     []string
		stuckIs, otherIs catalog.State
	}{
		"nothing": {stuckIs: catalog.Gone, otherIs: catalog.Gone},
		"one of each": {lines: []volumesv1alpha1.NodeVolume{old, busy}, stuck: []string{"busy"}, other: []string{"old"},
			stuckIs: catalog.Present, otherIs: catalog.Present},
		"that of the other machine is declared": {lines: []volumesv1alpha1.NodeVolume{old, busy}, declared: "old",
			stuck: []string{"busy"}, stuckIs: catalog.Present, otherIs: catalog.Done},
		"the release of the other machine failed": {lines: []volumesv1alpha1.NodeVolume{line("old", true, true)},
			other: []string{"old"}, stuckIs: catalog.Gone, otherIs: catalog.Present},
		"both machines use it": {lines: []volumesv1alpha1.NodeVolume{old, line("old", false, false)},
			stuckIs: catalog.Gone, otherIs: catalog.Shared},
		"it was declared, and both machines use it": {declared: "old", stuckIs: catalog.Gone, otherIs: catalog.Shared,
			lines: []volumesv1alpha1.NodeVolume{old, line("old", false, false)}},
		"one of two cannot be named": {lines: []volumesv1alpha1.NodeVolume{old, line("", true, false)}, declared: "old",
			stuckIs: catalog.Gone, otherIs: catalog.Gone},
	} {
		state := &volumesv1alpha1.NodeVolumeState{Status: volumesv1alpha1.NodeVolumeStateStatus{Volumes: tt.lines}}
		state.Annotations = map[string]string{volumesv1alpha1.DeclaredReleasedPrefix + tt.declared: "off"}
		if got, is := Undeclared(state, Stuck(&facts.Facts{})); !slices.Equal(got, tt.stuck) || is != tt.stuckIs {
			t.Errorf("%s: releases that fail %v in state %d, want %v in %d", name, got, is, tt.stuck, tt.stuckIs)
		}
		if got, is := Undeclared(state, OfOtherMachine); !slices.Equal(got, tt.other) || is != tt.otherIs {
			t.Errorf("%s: uses of another machine %v in state %d, want %v in %d", name, got, is, tt.other, tt.otherIs)
		}
	}
}

func TestDataStaysWithItsClaimOrByThePolicyOfItsVolume(t *testing.T) {
	deleted := metav1.NewTime(now)
	for name, tt := range map[string]struct {
		change func(*facts.Volume)
		want   catalog.State
	}{
		"the claim stays":            {func(*facts.Volume) {}, catalog.Unset},
		"the claim is being deleted": {func(v *facts.Volume) { v.Claim.Value.DeletionTimestamp = &deleted }, catalog.Gone},
		"the claim is gone": {func(v *facts.Volume) {
			v.Claim.Value, v.Claim.Found, v.Claim.Err = nil, false, apierrors.NewNotFound(schema.GroupResource{}, "data")
		}, catalog.Gone},
		"the claim was created again": {func(v *facts.Volume) { v.Claim.Value.UID = "second" }, catalog.Gone},
		"the claim has another volume by now": {func(v *facts.Volume) {
			v.Kept, v.Volume = v.Volume, object(facts.KindVolume, "", "pv-2", &corev1.PersistentVolume{})
			v.Claim.Value.Spec.VolumeName = "pv-2"
		}, catalog.Gone},
		"the policy is Retain": {func(v *facts.Volume) {
			v.Claim.Value.DeletionTimestamp = &deleted
			v.Volume.Value.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		}, catalog.Present},
		"the volume is gone": {func(v *facts.Volume) {
			v.Volume.Value, v.Volume.Found, v.Volume.Err = nil, false, apierrors.NewNotFound(schema.GroupResource{}, "pv-1")
		}, catalog.Unset},
		"the volume was not read": {func(v *facts.Volume) { v.Volume.Value, v.Volume.Found = nil, false }, catalog.Unread},
	} {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}}
		pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
		pv.Spec.ClaimRef = &corev1.ObjectReference{UID: "first"}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "first"}}
		claim.Spec.VolumeName = pv.Name
		v := facts.Volume{Claim: object(facts.KindClaim, "shop", "data", claim),
			Volume: object(facts.KindVolume, "", pv.Name, pv)}
		tt.change(&v)
		for _, f := range []*facts.Facts{{Volumes: []facts.Volume{v}}, {Keepers: []facts.Volume{v}}} {
			if got := newBuilder(f).retained("pv-1"); got != tt.want {
				t.Errorf("%s: policy Retain in state %d, want %d", name, got, tt.want)
			}
		}
	}
}

func TestADeclarationOfAllIsHeldIfEveryVolumeThatIsLeftIsInUse(t *testing.T) {
	fails := func(code string) volumesv1alpha1.NodeVolume {
		return volumesv1alpha1.NodeVolume{AttachmentUID: "uid", InUse: true,
			Error: &volumesv1alpha1.OperationError{Operation: "unstage", Code: code}}
	}
	held := fails(volumesv1alpha1.ReasonDeviceHeld)
	for name, tt := range map[string]struct {
		lines []volumesv1alpha1.NodeVolume
		want  catalog.State
	}{
		"nothing fails":         {nil, catalog.Gone},
		"one is in use":         {[]volumesv1alpha1.NodeVolume{held}, catalog.Held},
		"one of two is in use":  {[]volumesv1alpha1.NodeVolume{held, fails("Internal")}, catalog.Present},
		"the driver only fails": {[]volumesv1alpha1.NodeVolume{fails("Internal")}, catalog.Present},
	} {
		state := &volumesv1alpha1.NodeVolumeState{Status: volumesv1alpha1.NodeVolumeStateStatus{Volumes: tt.lines}}
		if got := stuck(&facts.Facts{}, state); got != tt.want {
			t.Errorf("%s: declaring all is in state %d, want %d", name, got, tt.want)
		}
	}
}
