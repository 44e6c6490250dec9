/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package report

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/plan"
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
