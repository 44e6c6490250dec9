/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package advice

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// file writes an intent for an earlier claim to a file.
func (s *story) file(name, node string) {
	s.t.Helper()
	text := "apiVersion: volumes.hawser.io/v1alpha1\nkind: VolumeAttachmentIntent\n" +
		"metadata: {namespace: " + namespace + ", name: " + name + "}\n" +
		"spec: {nodeName: " + node + ", volume: {persistentVolumeClaim: {claimName: " + s.name + "}}}\n"
	s.must(os.WriteFile(s.other, []byte(text), 0o600))
}

// installation asks whether Hawser can be installed in a namespace.
func installation(namespace string, user ...string) question {
	return question{command: append([]string{"preflight", "--hawser-namespace=" + namespace}, user...), once: true}
}

func TestReadersAndInstallers(t *testing.T) {
	play(t, map[string]situation{
		"a reader of claims alone": {code: "HWS802", way: "Ask an administrator for the right",
			comes: func(s *story) question {
				s.volume()
				s.bash("kubectl create role claims -n " + namespace + " --verb=get,list,watch --resource=persistentvolumeclaims")
				s.bash("kubectl create rolebinding claims -n " + namespace + " --role=claims --user=reader")
				return question{command: []string{"why", "pvc", s.name, "--as=reader"}, namespace: namespace}
			},
			act: func(s *story) {
				s.bash("kubectl create clusterrolebinding reader --clusterrole=cluster-admin --user=reader")
			}},
		"a file that changes the node of an intent": {code: "HWS903", way: "Use another name",
			comes: func(s *story) question {
				s.inUse(nodeA)
				s.other = filepath.Join(s.t.TempDir(), "intent.yaml")
				s.file(s.name, nodeB)
				return question{command: []string{"why", "--filename=" + s.other}, namespace: namespace, once: true}
			},
			act: func(s *story) { s.release(s.name); s.file(s.name+"-other", nodeB) },
			ends: func(s *story) {
				s.bash("kubectl apply -f " + s.other)
				s.t.Cleanup(func() { s.release(s.name + "-other") })
				s.pathOf(s.name + "-other")
			}},
		"a namespace that refuses privileged pods": {code: "HWS949",
			comes: func(s *story) question {
				s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "strict",
					Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}})
				return installation("strict")
			}},
		"a quota that refuses every pod": {code: "HWS948", way: "The message names what refuses it",
			comes: func(s *story) question {
				s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "none"}})
				quota := s.noPods()
				s.create(quota)
				await(s, &corev1.ResourceQuotaList{}, quota, func(q *corev1.ResourceQuota) bool {
					return len(q.Status.Hard) > 0
				})
				return installation("none")
			},
			act: func(s *story) { s.remove(s.noPods()); awaitGone(s, &corev1.ResourceQuotaList{}, s.noPods()) }},
		"a user who may not install": {code: "HWS951", way: "an account with the role cluster-admin",
			comes: func(*story) question { return installation("hawser-new", "--as=installer") },
			act: func(s *story) {
				s.bash("kubectl create clusterrolebinding installer --clusterrole=cluster-admin --user=installer")
			}},
	})
}

func (s *story) noPods() *corev1.ResourceQuota {
	return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "none", Name: "none"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}}}
}
