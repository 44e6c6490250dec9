/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package advice

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// images that the nodes have, and one that they have not and cannot pull.
var (
	images  = volumesv1alpha1.Images{Manager: "hawser/manager:dev", Agent: "hawser/agent:dev"}
	noImage = volumesv1alpha1.Images{Manager: "example.com/manager:1", Agent: images.Agent}
)

func of(images volumesv1alpha1.Images) string {
	return fmt.Sprintf(`{"images":{"manager":%q,"agent":%q}}`, images.Manager, images.Agent)
}

// before are the steps without a program of Hawser but the operator.
var before = []step{
	{"before the operator runs", situation{code: "HWS519", way: "Run the operator", act: operates,
		comes: func(s *story) question { kinds(s); s.create(s.unfit(images)); return theManager(s) }}},
	{"a kind that was deleted", situation{code: "HWS513", way: "Install the kinds again", act: kinds, ends: managerGone,
		comes: func(s *story) question {
			s.stops(operator) // which would protect the kind again
			s.bash("kubectl delete volumemanager --all --wait=false")
			s.bash("kubectl label crd nodevolumestates.volumes.hawser.io " + volumesv1alpha1.InUseLabel + "-")
			s.bash("kubectl delete crd nodevolumestates.volumes.hawser.io")
			s.end()
			return theManager(s)
		}}},
	{"no image", situation{code: "HWS507", way: "Set spec.images", act: spec(of(images)),
		comes: func(s *story) question {
			for _, quota := range []*corev1.ResourceQuota{refusing("none", "count/daemonsets.apps"),
				refusing("no-managers", corev1.ResourcePods, "system-cluster-critical"),
				refusing("no-agents", corev1.ResourcePods, "system-node-critical")} {
				s.create(quota)
				s.inForce(quota)
			}
			s.create(s.unfit(volumesv1alpha1.Images{}))
			return theManager(s)
		}}},
}

// rollouts are the steps until manager and agents run, and what can keep those that replace them.
var rollouts = []step{
	{"an object that is refused", situation{code: "HWS508", way: "The API server refused an object",
		comes: theManager, act: permits("none")}},
	{"pods of the manager that are refused", situation{code: "HWS505", way: "Pods of a rollout have not become ready",
		comes: theManager, act: permits("no-managers")}},
	{"a manager that no node has room for", situation{code: "HWS501", way: "readiness of the manager names the cause",
		comes: theManager, act: spec(`{"manager":{"resources":null}}`)}},
	{"a selector that selects no node", situation{code: "HWS503", way: "Correct nodeSelector",
		comes: theManager, act: spec(`{"nodeSelector":null}`)}},
	{"pods of the agents that are refused", situation{code: "HWS502", way: "More agents are absent",
		comes: theManager, act: permits("no-agents"), ends: settled}},
	{"an image that cannot be pulled", situation{code: "HWS506", way: "crash or cannot be started",
		comes: after(of(noImage)), act: spec(of(images)), ends: settled}},
	{"a rollout", situation{code: "HWS504", way: "not yet what the VolumeManager asks for",
		comes: after(`{"manager":{"resources":{"requests":{"cpu":"60m"}}}}`), act: func(*story) {}, ends: settled}},
}

// unfit is a VolumeManager whose manager fits on no node, and which selects none.
func (s *story) unfit(images volumesv1alpha1.Images) *volumesv1alpha1.VolumeManager {
	m := volumeManager()
	m.Spec = volumesv1alpha1.VolumeManagerSpec{KubeletRoot: s.sys.KubeletDir(nodeA), Images: images,
		NodeSelector: map[string]string{"example.com/none": "true"},
		// A second one would need the ports of the first on the node that a rollout uses.
		Manager: volumesv1alpha1.ManagerWorkload{Replicas: ptr.To[int32](1), Resources: &corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000")}}}}
	return m
}

// inForce waits until a quota counts.
func (s *story) inForce(quota *corev1.ResourceQuota) {
	s.t.Helper()
	await(s, &corev1.ResourceQuotaList{}, quota, func(q *corev1.ResourceQuota) bool { return len(q.Status.Hard) > 0 })
}

// podOf is a pod with a claim that is not created yet.
func podOf(namespace, name, claim, node string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{
		NodeName: node, EnableServiceLinks: ptr.To(false), AutomountServiceAccountToken: ptr.To(false),
		Containers: []corev1.Container{{Name: "main", Image: "example.com/none",
			VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}}}
	for _, c := range change {
		c(pod)
	}
	return pod
}
