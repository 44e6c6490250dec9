/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package advice

import (
	"context"
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/system"
)

const user = "user"

// installed are the steps of an installation that runs.
var installed = []step{
	{"a placement that is held back", situation{code: "HWS509", way: "Release these volumes",
		comes: func(s *story) question {
			s.inUse(nodeA)
			return after(`{"nodeSelector":{"kubernetes.io/hostname":"` + nodeB + `"}}`)(s)
		},
		act: func(s *story) { s.release(s.intent) }, ends: settled}},
	{"a node without an agent", situation{code: "HWS517", way: "Select these nodes",
		comes: after(`{"attachMode":"Replace"}`), act: spec(`{"nodeSelector":null}`), ends: settled}},
	{"kinds of the Prometheus operator", situation{code: "HWS510", way: "are not installed",
		comes: theManager, act: func(s *story) { s.define("ServiceMonitor"); s.define("PodMonitor") }}},
	{"a webhook that does not answer", situation{code: "HWS511", way: "cannot be protected against deletion",
		comes: func(s *story) question {
			s.create(unserved(admissionv1.Update, "apiextensions.k8s.io", "customresourcedefinitions"))
			s.refused("kubectl label crd volumeattachmentintents.volumes.hawser.io a=b --dry-run=server")
			s.inUse(nodeA)
			return theManager(s)
		}, act: withoutWebhook}},
	{"an operator that was stopped", situation{code: "HWS518", way: "Start the operator", act: repaired,
		comes: func(s *story) question { s.stops(operator); return theManager(s) }}},
	{"a pod with the volume of an intent that goes", situation{code: "HWS332", way: "Let these pods end",
		comes: func(s *story) question {
			s.inUse(nodeA)
			pod := s.pod(s.name, "", nodeA, ofProgram, inline("intent", s.intent))
			await(s, &corev1.PodList{}, pod, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
			s.dropped(s.intent)
			return why("intent", s.intent)
		},
		act: func(s *story) { s.bash("kubectl delete pod " + s.name + " -n " + namespace) }, ends: (*story).isGone}},
}

// removal are the steps of an installation that goes. A pod uses a volume.
var removal = []step{
	{"a removal while a volume is in use", situation{code: "HWS512", way: "set spec.removal to Drain",
		comes: func(s *story) question {
			s.bound(s.claim(user))
			pod := podOf(namespace, user, user, nodeA, ofProgram)
			s.create(pod)
			await(s, &corev1.PodList{}, pod, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
			spec(`{"removal":"Drain"}`)(s)
			s.bash("kubectl delete volumemanager --all --wait=false")
			return after(`{"removal":"Refuse"}`)(s)
		}, act: spec(`{"removal":"Drain"}`)}},
	{"a pod that uses a volume", situation{code: "HWS514", way: "delete the pods that it names", comes: theManager,
		act: func(s *story) {
			s.must(s.sys.StopProcess(s.limited(), system.Kubelet(nodeB))) // for the next step
			s.bash("kubectl delete pod " + user + " -n " + namespace)
		}}},
	{"an agent whose kubelet was stopped", situation{code: "HWS515", way: "See their nodes",
		comes: func(s *story) question {
			s.create(unserved(admissionv1.Delete, "volumes.hawser.io", "nodevolumestates")) // for the next step
			return s.isLeft(func(message string) bool {
				return strings.Contains(message, "the end of pod ") && !strings.Contains(message, " on node "+nodeA)
			})
		},
		act: func(s *story) { s.must(s.sys.StartAgain(s.limited(), system.Kubelet(nodeB))) }}},
	{"a webhook that does not let anything be deleted", situation{code: "HWS516", way: "remove its cause",
		comes: func(s *story) question {
			return s.isLeft(func(message string) bool { return strings.Contains(message, "failed calling webhook") })
		}, act: withoutWebhook, ends: managerGone}},
}

// isLeft waits until condition Removed has a message, and asks about the VolumeManager.
func (s *story) isLeft(done func(message string) bool) question {
	s.t.Helper()
	await(s, &volumesv1alpha1.VolumeManagerList{}, volumeManager(), func(m *volumesv1alpha1.VolumeManager) bool {
		c := meta.FindStatusCondition(m.Status.Conditions, volumesv1alpha1.ConditionRemoved)
		return c != nil && done(c.Message)
	})
	return theManager(s)
}

// ofProgram lets a pod run on a real kubelet until it is deleted.
func ofProgram(p *corev1.Pod) {
	p.Spec.HostNetwork, p.Spec.TerminationGracePeriodSeconds = true, new(int64)
	c := &p.Spec.Containers[0]
	c.Image, c.ImagePullPolicy, c.Args = system.Image, corev1.PullNever, []string{"pause"}
}

// define installs a kind of the Prometheus operator with no more than its name.
func (s *story) define(kind string) {
	s.t.Helper()
	plural := strings.ToLower(kind) + "s"
	s.bash(fmt.Sprintf("kubectl apply -f - <<EOF\n"+`{"apiVersion": "apiextensions.k8s.io/v1",
"kind": "CustomResourceDefinition", "metadata": {"name": "%[2]s.monitoring.coreos.com"}, "spec": {
"group": "monitoring.coreos.com", "scope": "Namespaced",
"names": {"kind": "%[1]s", "listKind": "%[1]sList", "plural": "%[2]s"}, "versions": [{"name": "v1", "served": true,
"storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}
`+"EOF", kind, plural))
}

// refused waits until the API server refuses a command. No event signals that it has begun to call a webhook.
func (s *story) refused(command string) {
	s.t.Helper()
	s.must(wait.PollUntilContextTimeout(s.limited(), 100*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			_, err := s.sys.Kubectl(ctx, strings.Fields(command)[1:]...)
			return err != nil, nil
		}))
}
