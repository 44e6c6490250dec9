/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

func TestAnAttachmentNamesWhatCreatedItAndWhetherHawserHoldsIt(t *testing.T) {
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va-1",
		ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate,
				FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:attacher":{},"f:nodeName":{}}}`)},
			{Manager: "csi-attacher", Operation: metav1.ManagedFieldsOperationUpdate,
				FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{}}}`)},
			{Manager: "csi-attacher", Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status",
				FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:attached":{}}}`)}}}}
	va.Annotations = map[string]string{volumesv1alpha1.HoldAnnotation: "2026-11-25T11:20:00Z"}
	va.Spec.Attacher, va.Spec.NodeName, va.Status.Attached = "d", "node-b", true
	ref := facts.Ref{Kind: facts.KindAttachment, Name: va.Name}
	f := &facts.Facts{Subject: ref, Volumes: []facts.Volume{{Node: "node-b",
		Attachment: facts.Object[*storagev1.VolumeAttachment]{Ref: ref, Value: va, Found: true}}}}
	want := "attached to node-b, created by kube-controller-manager, held by Hawser"
	if got := Explain(f).Chain[0].Text; !strings.HasPrefix(got, want) {
		t.Errorf("the attachment is %q, want %q", got, want)
	}
}
