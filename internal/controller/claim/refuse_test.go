/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package claim

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func TestTheDeletionOfAClaimThatIntentsUseIsAnEvent(t *testing.T) {
	using := func(name string) volumesv1alpha1.VolumeAttachmentIntent {
		return volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:   volumesv1alpha1.VolumeAttachmentIntentSpec{NodeName: "n"},
			Status: volumesv1alpha1.VolumeAttachmentIntentStatus{ClaimUID: "uid"}}
	}
	leaving := using("gone")
	leaving.DeletionTimestamp = ptr.To(metav1.Now())
	five := []volumesv1alpha1.VolumeAttachmentIntent{using("e"), using("d"), using("c"), using("b"), using("a")}
	for name, c := range map[string]struct {
		deleting bool
		intents  []volumesv1alpha1.VolumeAttachmentIntent
		want     string
	}{
		"one that is not being deleted": {false, five, ""},
		"one that is used by none":      {true, nil, ""},
		"one whose intents are leaving": {true, []volumesv1alpha1.VolumeAttachmentIntent{leaving}, ""},
		"one that an intent uses": {true,
			[]volumesv1alpha1.VolumeAttachmentIntent{leaving, using("a")}, ": a on node n. "},
		"one that many intents use":      {true, five, ": a on node n, b on node n, c on node n and 2 more. "},
		"one of a name that was used by": {true, []volumesv1alpha1.VolumeAttachmentIntent{{}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(1)
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}
			if c.deleting {
				claim.DeletionTimestamp = ptr.To(metav1.Now())
			}
			(&Controller{Events: recorder}).warn(claim, c.intents)
			got := ""
			select {
			case got = <-recorder.Events:
			default:
			}
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) ||
				got != "" && !strings.Contains(got, "Warning "+EventInUse) {
				t.Errorf("event of a claim: %q, want %q", got, c.want)
			}
		})
	}
}
