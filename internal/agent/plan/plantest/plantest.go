/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package plantest has a volume for tests of what is planned and reported.
package plantest

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
)

// Volume is the unique name of the volume.
const Volume = "kubernetes.io/csi/fake^vol"

// Situation is a volume that is published for intent-1, and all is well; tests change it.
func Situation() *plan.Facts {
	f := &plan.Facts{
		Name: Volume, Paths: record.Paths{Root: "/r", Kubelet: "/k"},
		Now: record.Moment{BootID: "boot", Uptime: time.Hour},
		Entry: &volumesv1alpha1.NodeAttachment{
			VolumeName: Volume, AttachmentUID: "uid", State: volumesv1alpha1.AttachmentAttached,
			PersistentVolumeName: "pv",
			VolumeMode:           corev1.PersistentVolumeFilesystem,
		},
		Stage: record.Present, Reference: record.Present,
		Uses: map[types.UID]record.Presence{"intent-1": record.Present},
	}
	f.Intents = []*volumesv1alpha1.VolumeAttachmentIntent{Intent("intent-1")}
	f.Record = &record.Record{
		VolumeName: Volume, AttachmentUID: "uid", InUse: true, Mode: corev1.PersistentVolumeFilesystem,
		Stage: record.Stage{Phase: record.PhaseDone, Path: "/k/stage", Source: "7:1/", BootID: "boot"},
	}
	f.Record.Uses = f.Joined()
	f.Record.Uses[0].Phase, f.Record.Uses[0].BootID, f.Record.Uses[0].Source = record.PhaseDone, "boot", "7:1/"
	return f
}

// Intent wants the volume to be published.
func Intent(uid types.UID) *volumesv1alpha1.VolumeAttachmentIntent {
	return &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: string(uid), UID: uid,
			Finalizers: []string{volumesv1alpha1.ReleaseFinalizer}},
		Spec:   volumesv1alpha1.VolumeAttachmentIntentSpec{DesiredState: volumesv1alpha1.DesiredPublished},
		Status: volumesv1alpha1.VolumeAttachmentIntentStatus{UniqueVolumeName: Volume, VolumeName: "pv"},
	}
}

// Deleting has the first intent deleted.
func Deleting(f *plan.Facts) { f.Intents[0].DeletionTimestamp = ptr.To(metav1.Now()) }

// Unused has the only intent deleted, and nothing published for it.
func Unused(f *plan.Facts) {
	f.Record.Uses, f.Uses = nil, nil
	Deleting(f)
}

// Unpublishing has the agent killed during the call that unpublishes, which has done its work.
func Unpublishing(f *plan.Facts) {
	f.Record.Uses[0].Phase, f.Uses["intent-1"] = record.PhaseUncertain, record.Missing
	f.Record.Unfinished = &record.Call{Operation: "unpublish", Target: f.Record.Uses[0].Target, BootID: "boot"}
}

// Unfinalized leaves nothing that keeps the intent until its volume is released.
func Unfinalized(f *plan.Facts) { f.Intents[0].Finalizers = []string{"example.com/other"} }

// Scratched is the health of a volume whose disk has a scratch.
func Scratched() *volumesv1alpha1.Health {
	return &volumesv1alpha1.Health{Since: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
		Problems: []volumesv1alpha1.HealthProblem{
			{Status: volumesv1alpha1.HealthDegraded, Reason: "Scratched", Message: "one platter"}}}
}
