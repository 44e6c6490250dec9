/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
