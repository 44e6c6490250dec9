/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package claim

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/test/apiserver"
)

func TestTheResultOfAnExpansionIsWrittenToTheClaim(t *testing.T) {
	const name = "kubernetes.io/csi/driver^handle"
	size := func(s string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(s)}
	}
	line := func(capacity, operation, code string) volumesv1alpha1.NodeVolume {
		v := volumesv1alpha1.NodeVolume{VolumeName: name, InUse: true, Capacity: ptr.To(resource.MustParse(capacity))}
		if code != "" {
			v.Error = &volumesv1alpha1.OperationError{Operation: operation, Code: code, Message: "its words"}
		}
		return v
	}
	for _, c := range []struct {
		name     string
		line     volumesv1alpha1.NodeVolume
		volume   string
		capacity string
		status   corev1.ClaimResourceStatus
		failed   bool
	}{
		{"it is done", line("2Gi", "", ""), "2Gi", "2Gi", "", false},
		{"it is not done yet", line("1Gi", "", ""), "2Gi", "1Gi", corev1.PersistentVolumeClaimNodeResizePending, false},
		{"the volume's new capacity is not known yet", line("1Gi", "", ""), "1Gi", "1Gi",
			corev1.PersistentVolumeClaimNodeResizePending, false},
		{"InvalidArgument", line("1Gi", "expand", "InvalidArgument"), "2Gi", "1Gi",
			corev1.PersistentVolumeClaimNodeResizeInfeasible, true},
		{"OutOfRange", line("1Gi", "expand", "OutOfRange"), "2Gi", "1Gi",
			corev1.PersistentVolumeClaimNodeResizeInfeasible, true},
		{"NotFound", line("1Gi", "expand", "NotFound"), "2Gi", "1Gi",
			corev1.PersistentVolumeClaimNodeResizeInfeasible, true},
		{"FailedPrecondition passes", line("1Gi", "expand", "FailedPrecondition"), "2Gi", "1Gi",
			corev1.PersistentVolumeClaimNodeResizePending, false},
		{"Unavailable passes", line("1Gi", "expand", "Unavailable"), "2Gi", "1Gi",
			corev1.PersistentVolumeClaimNodeResizePending, false},
		{"another operation fails", line("1Gi", "publish", "NotFound"), "2Gi", "1Gi",
			corev1.PersistentVolumeClaimNodeResizePending, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", UID: "uid"}}
			claim.Spec.VolumeName, claim.Status.Capacity = "pv", size("1Gi")
			claim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{
				corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizePending,
			}
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
			pv.Spec.Capacity, pv.Spec.ClaimRef = size(c.volume), &corev1.ObjectReference{UID: "uid"}
			pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "driver", VolumeHandle: "handle"}
			state := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
			state.Status.Volumes = []volumesv1alpha1.NodeVolume{c.line}
			cl := fake.NewClientBuilder().WithScheme(apiserver.Scheme()).
				WithObjects(claim, pv, state).WithStatusSubresource(claim).
				WithIndex(state, index.Volume, func(client.Object) []string { return []string{name} }).Build()
			controller := &Controller{Client: controllertest.Strict(t, cl)}
			reconcile := func() *corev1.PersistentVolumeClaim {
				now := &corev1.PersistentVolumeClaim{}
				if err := cl.Get(t.Context(), client.ObjectKeyFromObject(claim), now); err != nil {
					t.Fatal(err)
				}
				if err := controller.expanded(t.Context(), now, make([]volumesv1alpha1.VolumeAttachmentIntent, 1)); err != nil {
					t.Fatal(err)
				}
				if err := cl.Get(t.Context(), client.ObjectKeyFromObject(claim), now); err != nil {
					t.Fatal(err)
				}
				return now
			}
			got := reconcile()
			capacity := got.Status.Capacity[corev1.ResourceStorage]
			failed := len(got.Status.Conditions) == 1 &&
				got.Status.Conditions[0].Type == corev1.PersistentVolumeClaimNodeResizeError &&
				got.Status.Conditions[0].Message == "its words"
			if status := got.Status.AllocatedResourceStatuses[corev1.ResourceStorage]; capacity.String() != c.capacity ||
				status != c.status || failed != c.failed {
				t.Errorf("status of claim c: %+v, want capacity %s, resize status %q, the driver's error: %t", got.Status,
					c.capacity, c.status, c.failed)
			}
			if again := reconcile(); again.ResourceVersion != got.ResourceVersion {
				t.Errorf("version of claim c after the second reconcile: %s, want %s", again.ResourceVersion, got.ResourceVersion)
			}
		})
	}
}
