/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package advice

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/intentset"
	"github.com/hawser-io/hawser/test/csiloop/faults"
)

type set = volumesv1alpha1.VolumeAttachmentIntentSet

// set creates one with a claim for each of the first two nodes, and returns the question about it.
func (s *story) set(change ...func(*set)) question {
	s.t.Helper()
	o := &set{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSetSpec{
			NodeSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: corev1.LabelHostname, Operator: metav1.LabelSelectorOpIn, Values: []string{nodeA, nodeB}}}},
			ClaimTemplate: &volumesv1alpha1.ClaimTemplate{Spec: claimOf("").Spec}}}
	for _, c := range change {
		c(o)
	}
	s.create(o)
	s.t.Cleanup(func() {
		s.must(client.IgnoreNotFound(s.sys.Client.Delete(s.limited(), o, client.PropagationPolicy("Foreground"))))
		awaitGone(s, &volumesv1alpha1.VolumeAttachmentIntentSetList{}, o)
	})
	return question{command: []string{"why", "set", s.name}, namespace: s.namespace}
}

// setReady waits until both nodes have the volume.
func setReady(s *story) {
	s.t.Helper()
	await(s, &volumesv1alpha1.VolumeAttachmentIntentSetList{}, s.ofName(),
		func(o *set) bool { return o.Status.ObservedGeneration == o.Generation && o.Status.Ready == 2 })
}

// ofName is the set of the story.
func (s *story) ofName() *set {
	return &set{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name}}
}

func TestSets(t *testing.T) {
	play(t, map[string]situation{
		"a name that is taken": {code: "HWS151", way: "Delete or rename that object",
			comes: func(s *story) question {
				s.claim(intentset.IntentName(s.name, nodeA))
				return s.set()
			},
			act: func(s *story) { s.remove(claimOf(intentset.IntentName(s.name, nodeA))) }, ends: setReady},
		"an intent that a quota refuses": {code: "HWS152", way: "has the answer of the API server",
			comes: func(s *story) question {
				s.small("small-sets")
				return s.set()
			},
			act: func(s *story) { s.remove(s.quota()) }, ends: setReady},
		"a selector that cannot be read": {code: "HWS154", way: "Correct spec.nodeSelector",
			comes: func(s *story) question {
				return s.set(func(o *set) { o.Spec.NodeSelector.MatchExpressions[0].Operator = "Near" })
			},
			act: func(s *story) {
				s.patch(s.ofName(), `{"spec":{"nodeSelector":{"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"In",`+
					`"values":["node-a","node-b"]}]}}}`)
			}, ends: setReady},
		"a set without a node": {code: "HWS157", way: "Correct spec.nodeSelector",
			comes: func(s *story) question {
				return s.set(func(o *set) { o.Spec.NodeSelector.MatchExpressions[0].Values = []string{"node-z"} })
			},
			act: func(s *story) {
				s.patch(s.ofName(), `{"spec":{"nodeSelector":{"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"In",`+
					`"values":["node-a","node-b"]}]}}}`)
			}, ends: setReady},
		"intents that can never be ready": {code: "HWS115", way: "without spec.mount",
			comes: func(s *story) question {
				return s.set(func(o *set) {
					o.Spec.ClaimTemplate.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
					o.Spec.Template.Spec.Mount = &volumesv1alpha1.MountSpec{Options: []string{"noatime"}}
				})
			},
			act: func(s *story) { s.patch(s.ofName(), `{"spec":{"template":{"spec":{"mount":null}}}}`) }, ends: setReady},
		"a set that is deleted while a release fails": {code: "HWS309", way: "error names the cause",
			comes: func(s *story) question {
				s.set()
				setReady(s)
				pv := s.bound(claimOf(intentset.IntentName(s.name, nodeA)))
				s.fails(faults.Fault{Method: "NodeUnpublishVolume", Volume: pv.Spec.CSI.VolumeHandle, Code: 13,
					Message: "it broke"})
				s.must(s.sys.Client.Delete(s.limited(), s.ofName(), client.PropagationPolicy("Foreground")))
				return why("set", s.name)
			},
			act: repaired, ends: func(s *story) {
				awaitGone(s, &volumesv1alpha1.VolumeAttachmentIntentSetList{}, s.ofName())
			}},
	})
}

// small moves the story to a namespace of its own, in which no claim can be created.
func (s *story) small(name string) {
	s.t.Helper()
	s.namespace = name
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	await(s, &corev1.ServiceAccountList{}, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "default"}},
		func(a *corev1.ServiceAccount) bool { return a != nil })
	s.create(s.quota())
	await(s, &corev1.ResourceQuotaList{}, s.quota(), func(q *corev1.ResourceQuota) bool { return len(q.Status.Hard) > 0 })
}

// quota lets no claim be created.
func (s *story) quota() *corev1.ResourceQuota {
	return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			"count/persistentvolumeclaims": resource.MustParse("0")}}}
}
