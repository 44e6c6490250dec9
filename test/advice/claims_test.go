/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package advice

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/csiloop/faults"
	"github.com/hawser-io/hawser/test/system"
)

// loseVolume deletes a PersistentVolume under its claim.
func (s *story) loseVolume(pv *corev1.PersistentVolume) {
	s.t.Helper()
	s.remove(pv)
	s.patch(pv, `{"metadata":{"finalizers":null}}`)
	awaitGone(s, &corev1.PersistentVolumeList{}, pv)
}

// ofPodVolume makes an intent one for an inline volume of a pod.
func ofPodVolume(pod string) func(*intent) {
	return func(i *intent) {
		i.Spec.Volume = volumesv1alpha1.VolumeSource{
			PodVolume: &volumesv1alpha1.PodVolumeSource{PodName: pod, VolumeName: "data"}}
		i.Spec.Publisher, i.Spec.DesiredState = volumesv1alpha1.PublisherKubelet, volumesv1alpha1.DesiredAttached
	}
}

// inTree gives a pod an inline volume that Kubernetes had built in once.
func inTree(pod *corev1.Pod) {
	pod.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{
		GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "disk"}}
}

func readOnlyMany(pv *corev1.PersistentVolume) {
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
}

func onLabelled(pv *corev1.PersistentVolume) {
	pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{nodeB}}}}}}}
}

// claimAgain deletes the story's claim although it is used, and creates another one of its name.
func (s *story) claimAgain() {
	s.t.Helper()
	claim := claimOf(s.name)
	s.remove(claim)
	s.patch(claim, `{"metadata":{"finalizers":null}}`)
	awaitGone(s, &corev1.PersistentVolumeClaimList{}, claim)
	s.claim(s.name)
}

func TestClaimsAndVolumes(t *testing.T) {
	play(t, map[string]situation{
		"a claim that does not exist": {code: "HWS101", way: "Create the claim",
			comes: func(s *story) question { return s.wants(nodeA) },
			act:   func(s *story) { s.claim(s.name) }, ends: (*story).ready},
		"a claim that is created again": {code: "HWS106", ends: (*story).isGone,
			comes: func(s *story) question {
				pv := s.volume()
				s.fails(faults.Fault{Method: "ControllerPublishVolume", Volume: pv.Spec.CSI.VolumeHandle, Code: codes.Internal,
					Message: "it broke"})
				q := s.wants(nodeA)
				_, err := s.sys.AwaitIntent(s.limited(), namespace, s.intent,
					system.HasReason(volumesv1alpha1.ConditionAttached, volumesv1alpha1.ReasonAttachFailed))
				s.must(err)
				s.claimAgain()
				return q
			}},
		"a node that does not exist": {code: "HWS117", way: "Correct the name",
			comes: func(s *story) question { s.volume(); return s.wants("node-z") },
			act:   func(s *story) { s.again(nodeA) }, ends: (*story).ready},
		"a claim whose volume does not exist": {code: "HWS107", way: "Create the PersistentVolume again",
			comes: func(s *story) question {
				s.claim(s.name, ofVolume(s.name))
				return s.wants(nodeA)
			},
			act: func(s *story) {
				donor := s.bound(s.claim(s.name + "-donor"))
				s.create(s.pv(donor.Spec.CSI.VolumeHandle))
			}, ends: (*story).ready},
		"a claim that has lost its volume": {code: "HWS104", way: "into another claim, and use that claim",
			comes: func(s *story) question {
				s.loseVolume(s.volume())
				await(s, &corev1.PersistentVolumeClaimList{}, claimOf(s.name), func(c *corev1.PersistentVolumeClaim) bool {
					return c.Status.Phase == corev1.ClaimLost
				})
				return s.wants(nodeA)
			},
			act: func(s *story) { s.another(nodeA) }, ends: (*story).ready},
		"a claim that is being deleted": {code: "HWS105", way: "create the claim again",
			comes: func(s *story) question {
				s.volume()
				s.pod(s.name, s.name, nodeA)
				s.remove(claimOf(s.name))
				return s.wants(nodeA)
			},
			act: func(s *story) {
				s.remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.name}})
				awaitGone(s, &corev1.PersistentVolumeClaimList{}, claimOf(s.name))
				s.claim(s.name)
			}, ends: (*story).ready},
		"a volume that was created again": {code: "HWS109",
			comes: func(s *story) question {
				pv := s.handmade(func(*corev1.PersistentVolume) {})
				q := s.wants(nodeA)
				s.ready()
				s.loseVolume(pv)
				pv.UID, pv.ResourceVersion, pv.DeletionTimestamp, pv.Finalizers = "", "", nil, nil
				s.create(pv)
				return q
			}, ends: (*story).isGone},
		"a volume without a CSI driver": {code: "HWS110", way: "Use a claim of a StorageClass with a CSI driver",
			comes: func(s *story) question {
				s.handmade(func(pv *corev1.PersistentVolume) {
					pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{
						HostPath: &corev1.HostPathVolumeSource{Path: "/var/empty"}}
				})
				return s.wants(nodeA)
			},
			act: func(s *story) { s.another(nodeA) }, ends: (*story).ready},
		"a source that is too long": {code: "HWS111", way: "Create the PersistentVolume again",
			comes: func(s *story) question {
				s.handmade(func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = []string{strings.Repeat("x", 5000)} })
				return s.wants(nodeA)
			},
			act: func(s *story) {
				pv := &corev1.PersistentVolume{}
				s.must(s.sys.Client.Get(s.limited(), client.ObjectKey{Name: s.name}, pv))
				s.loseVolume(pv)
				again := s.pv(pv.Spec.CSI.VolumeHandle)
				again.Spec.ClaimRef = pv.Spec.ClaimRef
				s.create(again)
			}, ends: (*story).ready},
		"a pod that does not exist": {code: "HWS112",
			comes: func(s *story) question { return s.wants(nodeA, ofPodVolume("nothing")) }, ends: (*story).isGone},
		"a pod on another node": {code: "HWS113",
			comes: func(s *story) question {
				s.pod(s.name, "", nodeB, inTree)
				return s.wants(nodeA, ofPodVolume(s.name))
			}, ends: (*story).isGone},
		"a pod that was created again": {code: "HWS114",
			comes: func(s *story) question {
				pod := s.pod(s.name, "", nodeA, inTree)
				q := s.wants(nodeA, ofPodVolume(s.name))
				_, err := s.sys.AwaitIntent(s.limited(), namespace, s.intent, func(i *intent) bool {
					return i.Status.ClaimUID != ""
				})
				s.must(err)
				s.remove(pod)
				awaitGone(s, &corev1.PodList{}, pod)
				s.pod(s.name, "", nodeA, inTree)
				return q
			}, ends: (*story).isGone},
		"mount settings for a device": {code: "HWS115", way: "without spec.mount",
			comes: func(s *story) question {
				s.volume(asBlock)
				return s.wants(nodeA, func(i *intent) {
					i.Spec.Mount = &volumesv1alpha1.MountSpec{Options: []string{"noatime"}}
				})
			},
			act: func(s *story) { s.again(nodeA) }, ends: (*story).ready},
		"a volume that can only be read": {code: "HWS116",
			comes: func(s *story) question {
				s.handmade(readOnlyMany)
				s.wantsAs(s.name+"-donor", s.name+"-donor", nodeA) // the driver formats no volume to read it
				s.ready()
				s.release(s.intent)
				return s.wants(nodeA)
			}, ends: (*story).ready},
		"a node that is being deleted": {code: "HWS118", way: "Use another node",
			comes: func(s *story) question {
				s.volume()
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.name, Finalizers: []string{"example.com/stays"}}}
				s.create(node)
				s.t.Cleanup(func() { s.patch(node, `{"metadata":{"finalizers":null}}`) })
				s.remove(node)
				return s.wants(s.name)
			},
			act: func(s *story) { s.again(nodeA) }, ends: (*story).ready},
		"a node that the volume excludes": {code: "HWS119", way: "Use a node with the labels",
			comes: func(s *story) question { s.handmade(onLabelled); return s.wants(nodeA) },
			act:   func(s *story) { s.again(nodeB) }, ends: (*story).ready},
		"a claim without a class": {code: "HWS621", way: "Name a StorageClass",
			comes: func(s *story) question {
				s.claim(s.name, func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("") })
				return s.wants(nodeA)
			},
			act: func(s *story) {
				s.remove(claimOf(s.name))
				awaitGone(s, &corev1.PersistentVolumeClaimList{}, claimOf(s.name))
				s.claim(s.name)
			}, ends: (*story).ready},
		"a claim that no driver makes a volume for": {code: "HWS623", way: "event names the cause",
			comes: func(s *story) question {
				s.create(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "broken"}, Provisioner: system.DriverName,
					Parameters: map[string]string{"csi.storage.k8s.io/fstype": "nonsense"}})
				s.claim(s.name, ofClass("broken"))
				return s.wants(nodeA)
			},
			act: func(s *story) {
				broken := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "broken"}, Provisioner: system.DriverName}
				s.remove(broken)
				s.create(broken)
			}, ends: (*story).ready},
		"a claim that waits for its first pod": {code: "HWS625", way: "an intent that uses it",
			comes: func(s *story) question { s.claim(s.name, ofClass(lateClass)); return why("pvc", s.name) },
			act:   func(s *story) { s.wants(nodeA) }, ends: (*story).ready},
		"a volume whose claim has gone": {code: "HWS630", way: "remove its claimRef to let another claim use it",
			comes: func(s *story) question {
				s.handmade(func(*corev1.PersistentVolume) {})
				s.remove(claimOf(s.name))
				return why("pv", s.name)
			},
			act: func(s *story) {
				s.patch(s.pv(""), `{"spec":{"claimRef":null}}`)
				s.bound(s.claim(s.name+"-another", ofVolume(s.name)))
			}},
		"a volume that is being deleted in use": {code: "HWS631", way: "delete the intents and pods that use the volume",
			comes: func(s *story) question {
				pv := s.handmade(func(*corev1.PersistentVolume) {})
				s.wants(nodeA)
				s.ready()
				s.remove(pv)
				return why("pv", pv.Name)
			},
			act: func(s *story) { s.release(s.intent); s.remove(claimOf(s.name)) },
			ends: func(s *story) {
				awaitGone(s, &corev1.PersistentVolumeList{}, s.pv(""))
			}},
		"a claim that counts as unused": {code: "HWS633",
			comes: func(s *story) question {
				s.volume()
				s.wants(nodeA)
				s.ready()
				return why("pvc", s.name)
			},
			ends: func(s *story) {
				err := s.sys.Client.Delete(s.limited(), claimOf(s.name), client.DryRunAll)
				if err == nil || !strings.Contains(err.Error(), "intent") {
					s.t.Errorf("deleting the claim with the label: %v, want that its intent is named", err)
				}
			}},
	})
}
