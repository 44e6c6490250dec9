/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package nodehealth

import (
	"context"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/volume"
)

// indexer gives a fake client the manager's indexes.
type indexer struct{ *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, o client.Object, field string, keys client.IndexerFunc) error {
	i.WithIndex(o, field, keys)
	return nil
}

func holding(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	b := fake.NewClientBuilder().WithScheme(controllertest.Scheme()).WithObjects(objects...).
		WithStatusSubresource(&volumesv1alpha1.NodeVolumeState{}, &volumesv1alpha1.VolumeAttachmentIntent{})
	if err := index.Register(t.Context(), indexer{b}); err != nil {
		t.Fatal(err)
	}
	return controllertest.Strict(t, b.Build())
}

const driverName = "d.example.com"

// attached is node n with a volume that was attached to its ID i-1.
func attached() (*volumesv1alpha1.NodeVolumeState, *storagev1.VolumeAttachment, *storagev1.CSINode) {
	nvs := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Spec: volumesv1alpha1.NodeVolumeStateSpec{Attachments: []volumesv1alpha1.NodeAttachment{{
			VolumeName: "v", AttachmentName: "va", AttachmentUID: "uid", Driver: driverName,
			State: volumesv1alpha1.AttachmentAttached}}}}
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va", UID: "uid",
		Annotations: map[string]string{volume.NodeIDAnnotation: "i-1"}},
		Spec: storagev1.VolumeAttachmentSpec{NodeName: "n", Attacher: driverName}}
	node := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driverName, NodeID: "i-1"}}}}
	return nvs, va, node
}

// reconcileNode returns the conditions of node n after a reconcile.
func reconcileNode(t *testing.T, c *Controller) *volumesv1alpha1.NodeVolumeState {
	t.Helper()
	key := client.ObjectKey{Name: "n"}
	if _, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
		t.Fatalf("reconciling node n: %v", err)
	}
	nvs := &volumesv1alpha1.NodeVolumeState{}
	if err := c.Client.Get(t.Context(), key, nvs); err != nil {
		t.Fatal(err)
	}
	return nvs
}

func expectCondition(t *testing.T, nvs *volumesv1alpha1.NodeVolumeState, kind string, status metav1.ConditionStatus,
	reason string) {
	t.Helper()
	c := meta.FindStatusCondition(nvs.Status.Conditions, kind)
	if c == nil || c.Status != status || c.Reason != reason {
		t.Errorf("condition %s of node n: %+v, want %s with reason %s", kind, c, status, reason)
	}
}

func TestAHealthyNodeCostsNoWrite(t *testing.T) {
	nvs, va, node := attached()
	c := &Controller{Client: holding(t, nvs, va, node)}
	before := &volumesv1alpha1.NodeVolumeState{}
	if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(nvs), before); err != nil {
		t.Fatal(err)
	}
	if after := reconcileNode(t, c); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("node state n was written: %+v, want no write", after.Status)
	}
}

func TestTheConditionOfAnEarlierReleaseGoes(t *testing.T) {
	nvs, va, node := attached()
	nvs.Status.Conditions = []metav1.Condition{{Type: "AttachmentsVerified", Status: metav1.ConditionFalse,
		Reason: "UnexpectedPublication"}, {Type: volumesv1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	after := reconcileNode(t, &Controller{Client: holding(t, nvs, va, node)})
	if got := after.Status.Conditions; len(got) != 1 || got[0].Type != volumesv1alpha1.ConditionReady {
		t.Errorf("conditions of node n: %+v, want Ready only", got)
	}
}

func TestANodeThatADriverRegistersUnderAnotherIDIsReportedUntilItHasTheOldOneAgain(t *testing.T) {
	nvs, va, node := attached()
	c := &Controller{Client: holding(t, nvs, va, node)}
	for _, step := range []struct {
		id, reason string
		status     metav1.ConditionStatus
	}{
		{"i-2", volumesv1alpha1.ReasonNodeIDChanged, metav1.ConditionFalse},
		{"i-1", volumesv1alpha1.ReasonAsExpected, metav1.ConditionTrue},
	} {
		node.Spec.Drivers[0].NodeID = step.id
		if err := c.Client.Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		expectCondition(t, reconcileNode(t, c), volumesv1alpha1.ConditionAttachmentsHealthy, step.status, step.reason)
	}
}

// The CSINode goes with its Node, and may come back with its drivers in one write, or in one step of a watch.
func TestTheCSINodeOfANodeThatIsCreatedAgainIsComparedAtOnce(t *testing.T) {
	nvs, va, node := attached()
	c := &Controller{Client: holding(t, nvs, va, node)}
	again := node.DeepCopy()
	again.ResourceVersion, again.Spec.Drivers[0].NodeID = "", "i-2"
	if !registeredAgain.Create(event.CreateEvent{Object: again}) {
		t.Error("creation of the CSINode of node n: no reconcile, want one")
	}
	if err := c.Client.Delete(t.Context(), node, client.Preconditions{UID: &node.UID}); err != nil {
		t.Fatal(err)
	}
	if err := c.Client.Create(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	expectCondition(t, reconcileNode(t, c), volumesv1alpha1.ConditionAttachmentsHealthy, metav1.ConditionFalse,
		volumesv1alpha1.ReasonNodeIDChanged)
}

// An attacher that compares with the driver's list replaces the ID on the attachment before it attaches again.
func TestWhatIsNotAttachedAgainIsReportedWhereTheAttacherHasReplacedTheID(t *testing.T) {
	nvs, va, node := attached()
	node.Spec.Drivers[0].NodeID = "i-2"
	va.Annotations[volume.NodeIDAnnotation] = "i-2"
	va.Status.Attached = true
	before := va.DeepCopy()
	va.Status.AttachError = &storagev1.VolumeError{Message: "in use by i-1"}
	if !attachmentChanged.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: va}) {
		t.Error("an attachment that is not attached again starts no reconcile, want one")
	}
	c := &Controller{Client: holding(t, nvs, va, node)}
	expectCondition(t, reconcileNode(t, c), volumesv1alpha1.ConditionAttachmentsHealthy, metav1.ConditionFalse,
		volumesv1alpha1.ReasonAttachFailed)
}

func TestADetachThatDoesNotSucceedStandsInTheNodeState(t *testing.T) {
	for _, test := range []struct {
		name, reason string
		of           *storagev1.VolumeError
	}{
		{"the attacher reports an error", volumesv1alpha1.ReasonDetachFailed, &storagev1.VolumeError{Message: "busy"}},
		{"the attacher is silent", volumesv1alpha1.ReasonAttacherSilent, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			nvs, va, node := attached()
			nvs.Spec.Attachments[0].State = volumesv1alpha1.AttachmentDetaching
			nvs.Spec.Attachments[0].DetachError = "the volume is busy"
			va.Status.DetachError = test.of
			c := &Controller{Client: holding(t, nvs, va, node)}
			expectCondition(t, reconcileNode(t, c), volumesv1alpha1.ConditionAttachmentsHealthy, metav1.ConditionFalse,
				test.reason)
		})
	}
}

func TestAnIntentWhoseAttacherIsSilentMarksItsNode(t *testing.T) {
	nvs, va, node := attached()
	nvs.Spec.Attachments = nil
	intent := &volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{NodeName: "n"}}
	intent.Status.Conditions = []metav1.Condition{{Type: volumesv1alpha1.ConditionAttached, Status: metav1.ConditionFalse,
		Reason: volumesv1alpha1.ReasonAttacherSilent, Message: "nothing since noon", LastTransitionTime: metav1.Now()}}
	c := &Controller{Client: holding(t, nvs, va, node, intent)}
	expectCondition(t, reconcileNode(t, c), volumesv1alpha1.ConditionAttachmentsHealthy, metav1.ConditionFalse,
		volumesv1alpha1.ReasonAttacherSilent)
}

func TestOfANodeThatIsOutOfReachAnotherOneWithItsAttachmentIsReported(t *testing.T) {
	nvs, va, node := attached()
	nvs.Status.Conditions = []metav1.Condition{{Type: volumesv1alpha1.ConditionReady, Status: metav1.ConditionUnknown,
		Reason: volumesv1alpha1.ReasonAgentUnreachable, LastTransitionTime: metav1.NewTime(time.Now())}}
	other := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "new"}}
	other.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: "v", AttachmentUID: "uid", InUse: true}}
	c := &Controller{Client: holding(t, nvs, va, node, other)}
	expectCondition(t, reconcileNode(t, c), volumesv1alpha1.ConditionAttachmentsHealthy, metav1.ConditionFalse,
		volumesv1alpha1.ReasonNodeRenamed)
}

// TestAUseWithoutAnEntryWakesTheNodesThatHaveOne, also when the node that has it is unreachable already.
func TestAUseWithoutAnEntryWakesTheNodesThatHaveOne(t *testing.T) {
	nvs, va, node := attached()
	renamed := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "n-2"}}
	using := renamed.DeepCopy()
	using.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: "v", AttachmentUID: "uid", InUse: true}}
	own := using.DeepCopy()
	own.Spec.Attachments = nvs.Spec.Attachments
	c := &Controller{Client: holding(t, nvs, va, node, using)}
	for name, change := range map[string]struct {
		before, after *volumesv1alpha1.NodeVolumeState
		want          bool
	}{
		"it comes": {renamed, using, true}, "it ends": {using, renamed, true}, "it stays": {using, using, false},
		"it has an entry": {renamed, own, false},
	} {
		e := event.UpdateEvent{ObjectOld: change.before, ObjectNew: change.after}
		if got := strangersChanged.Update(e); got != change.want {
			t.Errorf("%s: node n-2 wakes others %t, want %t", name, got, change.want)
		}
	}
	if got := c.otherNodes(t.Context(), using); len(got) != 1 || got[0].Name != "n" {
		t.Errorf("nodes that volume v on node n-2 wakes: %v, want n", got)
	}
}

func TestNothingIsReportedOfAnotherAttachmentThanThatOfTheEntry(t *testing.T) {
	for name, change := range map[string]func(va *storagev1.VolumeAttachment, other *volumesv1alpha1.NodeVolumeState){
		"it has the name of the entry's": func(va *storagev1.VolumeAttachment, _ *volumesv1alpha1.NodeVolumeState) {
			va.UID, va.Annotations[volume.NodeIDAnnotation] = "later", "i-2"
		},
		"another node uses the volume by it": func(_ *storagev1.VolumeAttachment, other *volumesv1alpha1.NodeVolumeState) {
			other.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: "v", AttachmentUID: "other", InUse: true}}
		},
	} {
		nvs, va, node := attached()
		nvs.Status.Conditions = []metav1.Condition{{Type: volumesv1alpha1.ConditionReady, Status: metav1.ConditionUnknown,
			Reason: volumesv1alpha1.ReasonAgentUnreachable, LastTransitionTime: metav1.NewTime(time.Now())}}
		other := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "new"}}
		change(va, other)
		after := reconcileNode(t, &Controller{Client: holding(t, nvs, va, node, other)})
		if c := own(after); c != nil {
			t.Errorf("condition of node n, where %s: %+v, want none", name, c)
		}
	}
}
