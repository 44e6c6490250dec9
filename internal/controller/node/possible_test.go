/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package node

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/controller/liveness/livenesstest"
)

// unreachable is a node whose agent was marked so.
func unreachable(nvs *volumesv1alpha1.NodeVolumeState) {
	meta.SetStatusCondition(&nvs.Status.Conditions, metav1.Condition{Type: volumesv1alpha1.ConditionReady,
		Status: metav1.ConditionUnknown, Reason: volumesv1alpha1.ReasonAgentUnreachable})
}

func possible(nvs *volumesv1alpha1.NodeVolumeState) *metav1.Condition {
	return meta.FindStatusCondition(nvs.Status.Conditions, volumesv1alpha1.ConditionDetachPossible)
}

func TestWhatIsMissingForADetachIsWrittenWithTheMarkThatTheAgentIsUnreachable(t *testing.T) {
	nvs, node := stateOf("n", attached("v", "va")), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	w := over(t, []client.Object{nvs, node}, []client.Object{nvs, node})
	if _, err := w.showEvidence(t.Context(), nvs); err != nil || w.observed != 0 {
		t.Fatalf("a node whose agent is not silent: error %v, %d writes; want neither", err, w.observed)
	}
	w.Tracker.Silence("n")
	w.pass(2 * liveness.DefaultDuration)
	if _, err := w.watchOver(t.Context(), nvs); err != nil {
		t.Fatal(err)
	}
	marked := w.state(t, "n")
	c := possible(marked)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != volumesv1alpha1.ReasonEvidenceMissing {
		t.Fatalf("condition of node n: %+v, want that evidence is missing", c)
	}
	if _, err := w.showEvidence(t.Context(), marked); err != nil || w.observed != 1 {
		t.Errorf("error %v and %d writes of node state n, want none beside the mark", err, w.observed)
	}
}

func TestANodeThatIsGoneIsEvidenceOnceItsAgentHasBeenSilentForLong(t *testing.T) {
	nvs := stateOf("n", attached("v", "va"))
	w := over(t, []client.Object{nvs}, []client.Object{nvs})
	w.Tracker.Silence("n")
	w.pass(liveness.DefaultDuration + time.Minute)
	if _, err := w.watchOver(t.Context(), nvs); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		passes time.Duration
		due    time.Duration
		reason string
	}{
		{0, decision.GoneAfter - time.Minute, volumesv1alpha1.ReasonEvidenceMissing},
		{decision.GoneAfter - time.Minute, never, volumesv1alpha1.ReasonEvidenceGiven},
	} {
		w.pass(c.passes)
		due, err := w.showEvidence(t.Context(), w.state(t, "n"))
		if err != nil || due != c.due {
			t.Errorf("after %s more: next in %s, error %v; want in %s", c.passes, due, err, c.due)
		}
		if got := possible(w.state(t, "n")); got == nil || got.Reason != c.reason {
			t.Errorf("after %s more: condition %+v, want reason %s", c.passes, got, c.reason)
		}
	}
}

func TestTheConditionFollowsTheEvidenceAndGoesWithTheLastVolume(t *testing.T) {
	silent := func(nvs *volumesv1alpha1.NodeVolumeState) {
		unreachable(nvs)
		meta.SetStatusCondition(&nvs.Status.Conditions, metav1.Condition{Type: volumesv1alpha1.ConditionDetachPossible,
			Status: metav1.ConditionFalse, Reason: volumesv1alpha1.ReasonEvidenceMissing, Message: "of before"})
	}
	withTaint := func(nvs *volumesv1alpha1.NodeVolumeState) {
		nvs.Status.Node.OutOfService = &volumesv1alpha1.OutOfServiceObservation{Value: "down",
			Effect: corev1.TaintEffectNoExecute}
	}
	for name, c := range map[string]struct {
		nvs  *volumesv1alpha1.NodeVolumeState
		want string
	}{
		"the taint is set":          {stateOf("n", attached("v", "va"), silent, withTaint), "EvidenceGiven"},
		"the taint is not recorded": {stateOf("n", attached("v", "va"), silent), "EvidenceMissing"},
		"the volume is being detached": {stateOf("n", silent, withTaint,
			detaching("v", "va", volumesv1alpha1.EvidenceOutOfServiceTaint)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := over(t, []client.Object{c.nvs, tainted("down")}, []client.Object{c.nvs, tainted("down")})
			for range 2 {
				if _, err := w.showEvidence(t.Context(), w.state(t, "n")); err != nil {
					t.Fatal(err)
				}
			}
			got := possible(w.state(t, "n"))
			if (got == nil) != (c.want == "") || got != nil && got.Reason != c.want || w.observed != 1 {
				t.Errorf("condition %+v after %d writes, want reason %q after 1", got, w.observed, c.want)
			}
		})
	}
}

func TestWhatMayBeOfBeforeARestoreIsShownToBeNoEvidenceUntilTheNodeIsExcused(t *testing.T) {
	nvs := stateOf("n", attached("v", "va"), unreachable, func(nvs *volumesv1alpha1.NodeVolumeState) {
		nvs.Status.Node.OutOfService = &volumesv1alpha1.OutOfServiceObservation{Value: "down",
			Effect: corev1.TaintEffectNoExecute}
	})
	w := over(t, []client.Object{nvs, tainted("down")}, []client.Object{nvs, tainted("down")})
	livenesstest.Restore(t, w.Tracker, w.live, "b", "this-restore")
	for _, c := range []struct {
		excuse string
		due    time.Duration
		reason string
		says   string
	}{
		{"", pastAgain, volumesv1alpha1.ReasonEvidenceMissing, "restored from a backup"},
		{"this-restore", never, volumesv1alpha1.ReasonEvidenceGiven, corev1.TaintNodeOutOfService},
	} {
		nvs := w.state(t, "n")
		metav1.SetMetaDataAnnotation(&nvs.ObjectMeta, volumesv1alpha1.ExcusedFromRestoreAnnotation, c.excuse)
		if err := w.live.Update(t.Context(), nvs); err != nil {
			t.Fatal(err)
		}
		due, err := w.showEvidence(t.Context(), w.state(t, "n"))
		got := possible(w.state(t, "n"))
		if err != nil || due != c.due || got == nil || got.Reason != c.reason || !strings.Contains(got.Message, c.says) {
			t.Errorf("excused from %q: condition %+v, next in %s, error %v; want %s with %q, next in %s", c.excuse, got, due,
				err, c.reason, c.says, c.due)
		}
	}
}

func TestANodeIsReconciledWhereTheConditionMayChange(t *testing.T) {
	before := stateOf("n", attached("v", "va"), attached("w", "wa"), unreachable)
	for name, c := range map[string]struct {
		change func(*volumesv1alpha1.NodeVolumeState)
		want   bool
	}{
		"nothing changes": {func(*volumesv1alpha1.NodeVolumeState) {}, false},
		"one of two is detached": {func(nvs *volumesv1alpha1.NodeVolumeState) {
			nvs.Spec.Attachments[0].State = volumesv1alpha1.AttachmentDetaching
		}, false},
		"the last one is detached": {func(nvs *volumesv1alpha1.NodeVolumeState) {
			nvs.Spec.Attachments[0].State = volumesv1alpha1.AttachmentDetaching
			nvs.Spec.Attachments[1].State = volumesv1alpha1.AttachmentDetaching
		}, true},
		"a fence is recorded": {func(nvs *volumesv1alpha1.NodeVolumeState) {
			nvs.Status.Node.Fences = []volumesv1alpha1.FenceObservation{{}}
		}, true},
		"the taint is recorded": {func(nvs *volumesv1alpha1.NodeVolumeState) {
			nvs.Status.Node.OutOfService = &volumesv1alpha1.OutOfServiceObservation{}
		}, true},
		"the absence is recorded": {func(nvs *volumesv1alpha1.NodeVolumeState) {
			nvs.Status.Node.Absence = &volumesv1alpha1.AbsenceObservation{}
		}, true},
		"the agent reports": {func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Status.Conditions = nil }, true},
		"a hand sets the condition": {func(nvs *volumesv1alpha1.NodeVolumeState) {
			meta.SetStatusCondition(&nvs.Status.Conditions, metav1.Condition{
				Type: volumesv1alpha1.ConditionDetachPossible, Status: metav1.ConditionFalse})
		}, true},
	} {
		after := before.DeepCopy()
		c.change(after)
		if got := evidenceChanged(before, after); got != c.want {
			t.Errorf("%s: reconciled %t, want %t", name, got, c.want)
		}
	}
}
