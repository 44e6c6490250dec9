/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package report

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/plan/plantest"
	"github.com/hawser-io/hawser/internal/agent/record"
)

// TestWhatIsReportedAfterAStepThatMadeARecordAndFailed has facts from before the step: it marked the volume as in use,
// and the API server did not answer.
func TestWhatIsReportedAfterAStepThatMadeARecordAndFailed(t *testing.T) {
	intent := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "uid-i"}}
	entry := &volumesv1alpha1.NodeAttachment{VolumeName: "v", AttachmentUID: "uid-1",
		State: volumesv1alpha1.AttachmentAttached}
	before := plan.Facts{Name: "v", Entry: entry, Intents: []*volumesv1alpha1.VolumeAttachmentIntent{intent}}
	made := &record.Record{VolumeName: "v", AttachmentUID: "uid-1", InUse: true,
		Uses: []record.Use{{Intent: volumesv1alpha1.IntentReference{Namespace: "shop", Name: "data", UID: "uid-i"}}}}
	v := Snapshot{Name: "v", Record: made}
	if got := NewIntentReport(v, before, intent); got.Published == nil || got.Published.OK {
		t.Errorf("report of intent %s: condition Published %+v, want one that is not true yet", intent.Name, got.Published)
	}
	if got := NewVolumeReport(v, before).Line; !got.InUse || got.AttachmentUID != "uid-1" {
		t.Errorf("report of volume v: %+v, want it in use for uid-1", got)
	}
}

func TestAReleaseThatHangsNamesWhatDoesNotAnswer(t *testing.T) {
	intent := &volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data",
		UID: "uid-i", DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)}}}
	hangs := &record.Sickness{Cause: "it does not answer"}
	for name, test := range map[string]struct {
		sick    *record.Sickness
		failure failure.Failure
		reason  string
		message []string
	}{
		"the volume does not answer": {hangs,
			failure.Failure{Reason: volumesv1alpha1.ReasonOutcomeUncertain,
				OperationError: volumesv1alpha1.OperationError{Message: "still running"}},
			volumesv1alpha1.ReasonVolumeSick, []string{"it does not answer", "since 1970", "still running"}},
		"the driver has another reason": {hangs, failure.Failure{Reason: volumesv1alpha1.ReasonUnpublishFailed},
			volumesv1alpha1.ReasonUnpublishFailed, nil},
		"the volume answers": {&record.Sickness{Remountable: true},
			failure.Failure{Reason: volumesv1alpha1.ReasonOutcomeUncertain}, volumesv1alpha1.ReasonOutcomeUncertain, nil},
		"the volume works": {nil, failure.Failure{Reason: volumesv1alpha1.ReasonOutcomeUncertain},
			volumesv1alpha1.ReasonOutcomeUncertain, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if test.sick != nil {
				test.sick.Since = time.Unix(0, 0)
			}
			r := &record.Record{VolumeName: "v", AttachmentUID: "uid-1", InUse: true, Sick: test.sick,
				Stage: record.Stage{Phase: record.PhaseDone},
				Uses:  []record.Use{{Intent: volumesv1alpha1.IntentReference{UID: "uid-i"}}}}
			v := Snapshot{Name: "v", Record: r, Failures: plan.Failures{
				{Kind: plan.Unpublish, Intent: "uid-i"}: &test.failure}}
			got := NewIntentReport(v, plan.Facts{Name: "v"}, intent)
			if got.Published == nil || got.Published.reason != test.reason {
				t.Fatalf("Published of an intent that cannot be released: %+v, want reason %s", got.Published, test.reason)
			}
			for _, text := range test.message {
				if !strings.Contains(got.Published.Message, text) {
					t.Errorf("message %q, want that it has %q", got.Published.Message, text)
				}
			}
			if got.staged == nil || got.staged.OK != (test.sick == nil) {
				t.Errorf("Staged of an intent that cannot be released: %+v, want it true %t", got.staged, test.sick == nil)
			}
		})
	}
}

// The agent may read the Secret for staging as long as the intent has its conditions.
func TestAnIntentWhoseVolumeIsToBeStagedAgainForTheKubeletKeepsItsConditions(t *testing.T) {
	f := plantest.Situation()
	plantest.Unused(f)
	f.Kubelet, f.Stage, f.Reference = &kubelet.TrackedUse{}, record.Missing, record.Missing
	f.Record.Stage.Phase, f.Record.Stage.Unstaging = record.PhaseUncertain, true
	fails := &failure.Failure{Reason: volumesv1alpha1.ReasonSecretNotReadable}
	deleted := f.Intents[0].DeepCopy()
	lowered := deleted.DeepCopy()
	lowered.DeletionTimestamp, lowered.Spec.DesiredState = nil, volumesv1alpha1.DesiredAttached
	lowered.Status.Conditions = []metav1.Condition{{Type: volumesv1alpha1.ConditionStaged}}
	for _, i := range []*volumesv1alpha1.VolumeAttachmentIntent{deleted, lowered} {
		v := Snapshot{Name: f.Name, Record: f.Record}
		if got := NewIntentReport(v, *f, i); !got.Skip {
			t.Errorf("before the first attempt: %+v, want that nothing is written", got)
		}
		v.Failures = plan.Failures{{Kind: plan.Stage}: fails}
		if got := NewIntentReport(v, *f, i); got.Skip || got.failure != fails || got.Published == nil ||
			got.Published.reason != fails.Reason {
			t.Errorf("after one that failed: %+v, want the failure", got)
		}
	}
}
