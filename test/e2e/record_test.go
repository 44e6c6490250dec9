/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/csiloop/faults"
	"github.com/hawser-io/hawser/test/record"
)

// stages of an intent's life, as a watch shows them.
const (
	fresh = iota
	waiting
	arrived
	leaving
)

func stageOf(i *volumesv1alpha1.VolumeAttachmentIntent) int {
	switch {
	case i.DeletionTimestamp != nil:
		return leaving
	case i.Status.ObservedGeneration != i.Generation:
		return fresh
	case meta.IsStatusConditionTrue(i.Status.Conditions, volumesv1alpha1.ConditionReady):
		return arrived
	}
	return waiting
}

func TestAWatchShowsEachStageOfAnIntentsLifeOnce(t *testing.T) {
	t.Parallel()
	v := newVolume(t)
	intents := record.Start(t, sys.Client, &volumesv1alpha1.VolumeAttachmentIntentList{}, client.InNamespace(namespace),
		client.MatchingFields{"spec.volume.persistentVolumeClaim.claimName": v.name})
	states := record.Start(t, sys.Client, &volumesv1alpha1.NodeVolumeStateList{},
		client.MatchingFields{metav1.ObjectNameField: nodeA})
	refused := v.fault(faults.Fault{Method: "NodeStageVolume", When: faults.Before, Action: faults.Error,
		Code: codes.Internal, Message: "not yet"})
	name := v.intent(nodeA)
	v.await(name, func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return i != nil && i.Status.LastError != nil && stageOf(i) == waiting
	})
	v.removeFault(refused)
	v.ready(name)
	v.release(name)
	versions := intents()
	var stages []int
	for _, object := range versions {
		stages = append(stages, stageOf(object.(*volumesv1alpha1.VolumeAttachmentIntent)))
	}
	if want := []int{fresh, waiting, arrived, leaving}; !slices.Equal(slices.Compact(slices.Clone(stages)), want) {
		t.Errorf("the stages of intent %s are %v, want %v, each once", name, stages, want)
	}
	record.Keep(t, "intent", versions)
	record.Keep(t, "nodestate", states())
}

func TestAWatchShowsThatAnIntentIsStalled(t *testing.T) {
	t.Parallel()
	ctx := limited(t)
	const name = "recorded-nfs"
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity: claimSpec().Resources.Requests, AccessModes: claimSpec().AccessModes,
		ClaimRef: &corev1.ObjectReference{Namespace: namespace, Name: name},
		PersistentVolumeSource: corev1.PersistentVolumeSource{
			NFS: &corev1.NFSVolumeSource{Server: "nfs.example.com", Path: "/"}}}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: claimSpec()}
	claim.Spec.StorageClassName, claim.Spec.VolumeName = ptr.To(""), name
	for _, o := range []client.Object{pv, claim} {
		if err := sys.Client.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := sys.Client.Delete(limited(t), o); err != nil {
				t.Error(err)
			}
		})
	}
	v := &volume{t: t, name: name}
	intents := record.Start(t, sys.Client, &volumesv1alpha1.VolumeAttachmentIntentList{}, client.InNamespace(namespace),
		client.MatchingFields{"spec.volume.persistentVolumeClaim.claimName": name})
	intent := v.intent(nodeA)
	v.await(intent, func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return i != nil && meta.IsStatusConditionTrue(i.Status.Conditions, volumesv1alpha1.ConditionStalled)
	})
	v.release(intent)
	record.Keep(t, "intent-stalled", intents())
}
