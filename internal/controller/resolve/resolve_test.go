/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package resolve

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	storagehelpers "k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// The kinds are upgraded before the manager, which then reads neither of the sources that it knows.
func TestAnIntentWithTheSourceOfANewerVersionIsReportedAsNotSupported(t *testing.T) {
	intent := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"},
		Spec:       volumesv1alpha1.VolumeAttachmentIntentSpec{NodeName: "node-a"},
	}
	f, err := Gather(t.Context(), fake.NewFakeClient(), intent)
	if err != nil {
		t.Fatalf("gathering the facts of an intent with an unknown source: error %v, want none", err)
	}
	r := Intent(f)
	if r.OK || r.Stalled || r.Reason != volumesv1alpha1.ReasonVolumeNotSupported ||
		!strings.Contains(r.Message, "upgrade Hawser's manager") {
		t.Errorf("an intent with an unknown source resolves to %+v, want VolumeNotSupported and what to upgrade, "+
			"not Stalled: the intent need not change", r)
	}
}

// Its claim goes once that was written, so nothing else may be written in its place.
func TestThatItsClaimIsBeingDeletedIsTheFirstThingThatIsWrongWithAnIntentThatIsNotPinned(t *testing.T) {
	intent := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{NodeName: "absent", Volume: volumesv1alpha1.VolumeSource{
			PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "data"}}},
	}
	now := metav1.Now()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data",
		UID: "this", DeletionTimestamp: &now}}
	for pinned, want := range map[types.UID]string{"": volumesv1alpha1.ReasonClaimDeleting,
		"this": volumesv1alpha1.ReasonNodeNotFound} {
		intent.Status.ClaimUID = pinned
		if r := Intent(Facts{Intent: intent, Claim: claim}); r.OK || r.Reason != want {
			t.Errorf("intent on an absent node whose claim is being deleted, pinned to claim %q: %+v, want %s", pinned, r, want)
		}
	}
}

// The scheduler binds none of the volumes that exist to a claim that a node was named to.
func TestNoNodeIsNamedToAClaimWhoseVolumesNoProvisionerMakes(t *testing.T) {
	intent := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{NodeName: "node", Volume: volumesv1alpha1.VolumeSource{
			PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "data"}}},
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	for _, c := range []struct {
		provisioner, selected, want string
	}{
		{"disk.example.com", "", volumesv1alpha1.ReasonWaitForFirstConsumer},
		{storagehelpers.NotSupportedProvisioner, "", volumesv1alpha1.ReasonNoProvisioner},
		{"", "", volumesv1alpha1.ReasonNoProvisioner},
		{storagehelpers.NotSupportedProvisioner, "node", volumesv1alpha1.ReasonWaitForFirstConsumer}, // by the scheduler
	} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}}
		if c.selected != "" {
			claim.Annotations = map[string]string{storagehelpers.AnnSelectedNode: c.selected}
		}
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: c.provisioner,
			VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}
		r := Intent(Facts{Intent: intent, Node: node, Claim: claim, Class: class})
		if r.Reason != c.want || r.SelectNode != (c.want == volumesv1alpha1.ReasonWaitForFirstConsumer) {
			t.Errorf("a claim of provisioner %q, with the node %q selected: %+v, want %s, and a node only for a provisioner",
				c.provisioner, c.selected, r, c.want)
		}
	}
}
