/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package advice

import (
	"testing"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/csiloop/faults"
	"github.com/hawser-io/hawser/test/system"
)

func onNode(node string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node} }
}

func notOn(node string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname,
					Operator: corev1.NodeSelectorOpNotIn, Values: []string{node}}}}}}}}
	}
}

// inline gives the pod Hawser's inline volume with these attributes: names, each with its value.
func inline(attributes ...string) func(*corev1.Pod) {
	of := map[string]string{}
	for i := 0; i < len(attributes); i += 2 {
		of[attributes[i]] = attributes[i+1]
	}
	return func(p *corev1.Pod) {
		p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
			Driver: volumesv1alpha1.InlineDriver, VolumeAttributes: of}}
	}
}

// ephemeral gives the pod a claim of its own.
func ephemeral(p *corev1.Pod) {
	p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: claimOf("").Spec}}}
}

// podAgain replaces the story's pod.
func (s *story) podAgain(claim string, change ...func(*corev1.Pod)) {
	s.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name}}
	s.remove(pod)
	awaitGone(s, &corev1.PodList{}, pod)
	s.pod(s.name, claim, "", change...)
}

func TestPodsThatWaitForANode(t *testing.T) {
	play(t, map[string]situation{
		"more than any node has": {code: "HWS601", way: "counts the nodes", ends: scheduled,
			comes: func(s *story) question {
				s.volume()
				s.pod(s.name, s.name, "", func(p *corev1.Pod) {
					p.Spec.NodeSelector = map[string]string{"example.com/disk": "fast"}
				})
				return why("pod", s.name)
			},
			act: func(s *story) { s.bash("kubectl label node " + nodeA + " example.com/disk=fast") }},
		"a volume that is on another node": {code: "HWS602", way: "Let the pod run where the volume is", ends: scheduled,
			comes: func(s *story) question {
				s.handmade(onLabelled)
				s.pod(s.name, s.name, "", notOn(nodeB))
				return why("pod", s.name)
			},
			act: func(s *story) { s.podAgain(s.name, onNode(nodeB)) }},
		"a scheduling gate": {code: "HWS605", way: "removes it", ends: scheduled,
			comes: func(s *story) question {
				s.volume()
				s.pod(s.name, s.name, "", func(p *corev1.Pod) {
					p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/quota"}}
				})
				return why("pod", s.name)
			},
			act: func(s *story) {
				s.patch(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.name}},
					`{"spec":{"schedulingGates":null}}`)
			}},
		"a claim for one pod": {code: "HWS606", way: "Delete the other pod", ends: scheduled,
			comes: func(s *story) question {
				s.volume(singleUser)
				first := s.pod(s.name+"-first", s.name, "")
				await(s, &corev1.PodList{}, first, func(p *corev1.Pod) bool { return p.Spec.NodeName != "" })
				s.pod(s.name, s.name, "")
				return why("pod", s.name)
			},
			act: func(s *story) {
				s.remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.name + "-first"}})
			}},
		"no volume that fits": {code: "HWS607", way: "PersistentVolumes there", ends: scheduled,
			comes: func(s *story) question {
				late := storagev1.VolumeBindingWaitForFirstConsumer
				s.create(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "disks"},
					Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &late})
				s.claim(s.name, ofClass("disks"))
				s.pod(s.name, s.name, "")
				return why("pod", s.name)
			},
			act: func(s *story) {
				donor := s.bound(s.claim(s.name + "-donor"))
				pv := s.pv(donor.Spec.CSI.VolumeHandle)
				pv.Spec.StorageClassName = "disks"
				s.create(pv)
			}},
		"a claim of its own that a quota refuses": {code: "HWS613", way: "such as by a quota", ends: scheduled,
			comes: func(s *story) question {
				s.small("small-pods")
				s.pod(s.name, "", "", ephemeral)
				return question{command: []string{"why", "pod", s.name}, namespace: s.namespace}
			},
			act: func(s *story) { s.remove(s.quota()) }},
		"no scheduler": {code: "HWS614", way: "See that one runs under the name that the pod has", ends: scheduled,
			comes: func(s *story) question {
				s.volume()
				s.pod(s.name, s.name, "", func(p *corev1.Pod) { p.Spec.SchedulerName = "other" })
				return why("pod", s.name)
			},
			act: func(s *story) {
				s.must(s.sys.Client.SubResource("binding").Create(s.limited(),
					&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.name}},
					&corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: nodeA}}))
			}},
		"a cordoned node": {code: "HWS712", ends: scheduled,
			comes: func(s *story) question {
				s.alone(nodeTainted)
				s.volume()
				s.bash("kubectl cordon " + nodeTainted)
				s.pod(s.name, s.name, "", onNode(nodeTainted))
				return why("pod", s.name)
			}},
	})
}

func TestPodsWithInlineVolumes(t *testing.T) {
	play(t, map[string]situation{
		"other attributes": {code: "HWS643", way: "create the pod again", ends: scheduled,
			comes: func(s *story) question {
				s.volume()
				s.pod(s.name, "", "", inline("claim", s.name, "intent", s.name))
				return why("pod", s.name)
			},
			act: func(s *story) { s.podAgain("", inline("claim", s.name)) }},
		"an intent that does not exist": {code: "HWS644", way: "Create the intent", ends: scheduled,
			comes: func(s *story) question {
				s.volume()
				s.pod(s.name, "", "", inline("intent", s.name))
				return why("pod", s.name)
			},
			act: func(s *story) { s.wants(nodeA) }},
		"an intent whose release fails": {code: "HWS309", way: "error names the cause", ends: scheduled,
			comes: func(s *story) question {
				pv := s.volume()
				s.wants(nodeA)
				s.ready()
				s.fails(faults.Fault{Method: "NodeUnpublishVolume", Volume: pv.Spec.CSI.VolumeHandle, Code: codes.Internal,
					Message: "it broke"})
				s.dropped(s.intent)
				s.pod(s.name, "", "", inline("intent", s.name))
				return why("pod", s.name)
			},
			act: func(s *story) { s.end(); s.isGone(); s.wants(nodeA) }},
		"a class that does not exist": {code: "HWS622", way: "Create it", ends: scheduled,
			comes: func(s *story) question {
				s.claim(s.name, ofClass("absent"))
				s.pod(s.name, "", "", inline("claim", s.name))
				return why("pod", s.name)
			},
			act: func(s *story) {
				s.create(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "absent"}, Provisioner: system.DriverName})
			}},
		"a class without a provisioner": {code: "HWS647", way: "set spec.volumeName of the claim", ends: scheduled,
			comes: func(s *story) question {
				late := storagev1.VolumeBindingWaitForFirstConsumer
				s.create(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "static"},
					Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &late})
				s.claim(s.name, ofClass("static"))
				s.pod(s.name, "", "", inline("claim", s.name))
				return why("pod", s.name)
			},
			act: func(s *story) {
				donor := s.bound(s.claim(s.name + "-donor"))
				pv := s.pv(donor.Spec.CSI.VolumeHandle)
				pv.Spec.StorageClassName = "static"
				s.create(pv)
				s.patch(claimOf(s.name), `{"spec":{"volumeName":"`+pv.Name+`"}}`)
			}},
		"a pod that its volume excludes": {code: "HWS648", way: "Change the pod", ends: scheduled,
			comes: func(s *story) question {
				s.handmade(onLabelled)
				s.pod(s.name, "", "", inline("claim", s.name), notOn(nodeB))
				return why("pod", s.name)
			},
			act: func(s *story) { s.podAgain("", inline("claim", s.name), onNode(nodeB)) }},
		"an intent of the pod that does not exist": {code: "HWS801", way: "Create it",
			comes: func(s *story) question {
				s.volume()
				s.pod(s.name, "", nodeA, inline("intent", s.name))
				return why("pod", s.name)
			},
			act: func(s *story) { s.wants(nodeA) }},
	})
}
