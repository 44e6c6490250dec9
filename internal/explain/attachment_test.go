/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/catalog"
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

func TestAnErrorOfAnAttachThatNothingNeedsIsNoCause(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*facts.Volume)
		want   string
	}{
		"an intent waits": {func(*facts.Volume) {}, volumesv1alpha1.ReasonAttachFailed},
		"an intent is Ready since": {func(v *facts.Volume) {
			v.Intent.Value.Status.Conditions = []metav1.Condition{{Type: volumesv1alpha1.ConditionReady,
				Status: metav1.ConditionTrue, LastTransitionTime: ago(time.Minute)}}
		}, ""},
		"an intent was Ready before": {func(v *facts.Volume) {
			v.Intent.Value.Status.Conditions = []metav1.Condition{{Type: volumesv1alpha1.ConditionReady,
				Status: metav1.ConditionTrue, LastTransitionTime: ago(time.Hour)}}
		}, volumesv1alpha1.ReasonAttachFailed},
		"the node has the driver again": {func(v *facts.Volume) {
			v.Attachment.Value.Status.AttachError.Message = "CSINode node-b does not contain driver disk.example.com"
		}, catalog.Outdated},
		"a pod waits": {func(v *facts.Volume) {
			v.Intent, v.PodVolume = facts.Object[*volumesv1alpha1.VolumeAttachmentIntent]{}, "data"
		}, ""},
	} {
		f := healthy(failing(volumesv1alpha1.ReasonAttaching), nil)
		f.Volumes[0].Attachment.Value.Status.AttachError = &storagev1.VolumeError{Message: "locked",
			Time: ago(10 * time.Minute)}
		tt.change(&f.Volumes[0])
		f.Subject = f.Volumes[0].Attachment.Ref
		r, got := Explain(f), ""
		for _, found := range r.Findings {
			if found.Object == f.Subject && found.Reason != catalog.AttachmentUnused {
				got = found.Reason
			}
		}
		if got != tt.want {
			t.Errorf("%s: reason %q of the attachment, want %q; findings %+v", name, got, tt.want, r.Findings)
		}
	}
}

func TestPodsThatAlreadyGoAreNotToBeDeleted(t *testing.T) {
	for name, tt := range map[string]struct {
		deleting bool
		want     string
	}{
		"it runs": {false, "kubectl delete pod old -n shop"},
		"it goes": {true, "kubectl get pods -A -o wide --field-selector spec.nodeName=node-a"},
	} {
		f := healthy(failing(volumesv1alpha1.ReasonAttaching), nil)
		v := &f.Volumes[0]
		v.Exclusive, v.Attachment.Value.Status.Attached = true, false
		v.Elsewhere.Items = []storagev1.VolumeAttachment{{ObjectMeta: metav1.ObjectMeta{Name: "csi-2"},
			Spec:   storagev1.VolumeAttachmentSpec{Attacher: v.Driver, NodeName: "node-a"},
			Status: storagev1.VolumeAttachmentStatus{Attached: true}}}
		v.Pods.Items = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "old"},
			Spec: corev1.PodSpec{NodeName: "node-a"}}}
		if tt.deleting {
			v.Pods.Items[0].DeletionTimestamp = ptr.To(ago(time.Minute))
		}
		for _, found := range Explain(f).Findings {
			if found.Reason == catalog.HeldElsewhere && !tt.deleting &&
				found.Remarks["kubectl delete pod old -n shop"] != "only if it may end" {
				t.Errorf("%s: remarks %v, want that of the deletion", name, found.Remarks)
			}
			if found.Reason == catalog.HeldElsewhere && (len(found.Run) == 0 || found.Run[0] != tt.want ||
				strings.Contains(found.Way, "being deleted already") != tt.deleting) {
				t.Errorf("%s: way out %q with %q, want the command %q first", name, found.Way, found.Run, tt.want)
			}
		}
	}
}

func TestOnlyTheFinalizerOfTheAttacherIsToBeRemoved(t *testing.T) {
	const attacher = facts.AttacherFinalizer + "disk-example-com"
	remove := func(index int) string {
		return fmt.Sprintf("kubectl patch volumeattachment va-1 --type=json -p "+
			`'[{"op":"test","path":"/metadata/finalizers/%d","value":"%s"},`+
			`{"op":"remove","path":"/metadata/finalizers/%d"}]'`, index, attacher, index)
	}
	for name, tt := range map[string]struct {
		finalizers []string
		want       string
	}{
		"the only one":                   {[]string{attacher}, remove(0)},
		"beside Hawser's":                {[]string{volumesv1alpha1.ForcedAwayFinalizer, attacher}, remove(1)},
		"of two attachers":               {[]string{attacher, facts.AttacherFinalizer + "other"}, ""},
		"before that of another program": {[]string{attacher, "example.com/stays"}, remove(0)},
	} {
		va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va-1", Finalizers: tt.finalizers,
			DeletionTimestamp: ptr.To(ago(time.Hour))}, Spec: storagev1.VolumeAttachmentSpec{Attacher: "disk.example.com"}}
		ref, got := facts.Ref{Kind: facts.KindAttachment, Name: va.Name}, ""
		report := Explain(&facts.Facts{Now: now, Installed: true, Subject: ref, Volumes: []facts.Volume{{Nowhere: true,
			Driver: va.Spec.Attacher, Attachment: facts.Object[*storagev1.VolumeAttachment]{Ref: ref, Value: va, Found: true}}}})
		found := report.Findings[0]
		for _, command := range found.Run {
			if strings.Contains(command, "patch") {
				got = command
			}
		}
		if found.Reason != catalog.FinalizerStays || !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") ||
			!strings.Contains(found.Detail, strings.Join(tt.finalizers, ", ")) {
			t.Errorf("%s: %s with %q and command %q, want %s with all finalizers and %q", name, found.Reason, found.Detail, got,
				catalog.FinalizerStays, tt.want)
		}
	}
}
