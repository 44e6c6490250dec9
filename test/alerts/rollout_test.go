/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package alerts

import (
	"context"
	"encoding/json"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/install"
)

// policies are the kinds of the admission policies and of their bindings.
const policies = "validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingadmissionpolicies," +
	"mutatingadmissionpolicybindings"

// stuckRollout: the operator creates its workloads, and no kubelet runs their pods. The test then takes the part of
// scheduler and kubelets.
func (s *suite) stuckRollout() fault {
	return fault{
		name: "an operator whose pods do not become ready",
		make: func(ctx context.Context) error {
			for _, program := range []string{"manager", "agent"} {
				if err := os.Setenv("RELATED_IMAGE_"+strings.ToUpper(program), "hawser/"+program+":dev"); err != nil {
					return err
				}
			}
			// The operator gives them its own names, and with two of each nothing would be attached any more.
			if _, err := s.Kubectl(ctx, "delete", policies, "--selector=volumes.hawser.io/admission-policy"); err != nil {
				return err
			}
			// The pods that the local cluster has for the tokens of its agents are none of the operator's.
			if _, err := s.Kubectl(ctx, "label", "pods", "--all", "-n", install.Namespace(),
				"app.kubernetes.io/component-"); err != nil {
				return err
			}
			return s.Run(ctx, operator, s.Bin+"/operator", "--kubeconfig="+s.Kubeconfig(), "--leader-elect=false",
				"--metrics-bind-address="+s.addresses[operator], "--health-probe-bind-address=0")
		},
		repair: func(context.Context) error {
			go s.playKubelets(context.Background()) // it ends with the process
			return nil
		},
		alerts: map[string]map[string]string{"HawserRolloutStuck/warning": nil},
	}
}

// playKubelets reports every pod of the installation as ready.
func (s *suite) playKubelets(ctx context.Context) {
	pods := &corev1.PodList{}
	inHawser := client.InNamespace(install.Namespace())
	if err := s.Client.List(ctx, pods, inHawser); err != nil {
		say("listing pods: %v", err)
		return
	}
	w, err := s.Client.Watch(ctx, &corev1.PodList{}, inHawser,
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: pods.ResourceVersion}})
	if err != nil {
		say("watching pods: %v", err)
		return
	}
	defer w.Stop()
	for i := range pods.Items {
		s.playKubelet(ctx, &pods.Items[i])
	}
	for event := range w.ResultChan() {
		if pod, is := event.Object.(*corev1.Pod); is && event.Type == watch.Added {
			s.playKubelet(ctx, pod)
		}
	}
}

func (s *suite) playKubelet(ctx context.Context, pod *corev1.Pod) {
	if pod.Spec.NodeName == "" {
		binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			Target: corev1.ObjectReference{Kind: "Node", Name: nodeOf(pod)}}
		if err := s.Client.SubResource("binding").Create(ctx, pod, binding); err != nil {
			say("binding pod %s: %v", pod.Name, err)
			return
		}
	}
	status, err := json.Marshal(map[string]any{"status": corev1.PodStatus{Phase: corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.Now()}}}})
	if err == nil {
		err = s.Client.Status().Patch(ctx, pod, client.RawPatch("application/strategic-merge-patch+json", status))
	}
	if err != nil {
		say("reporting pod %s as ready: %v", pod.Name, err)
	}
}

// nodeOf a pod: that which its DaemonSet wants it on, or node a.
func nodeOf(pod *corev1.Pod) string {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil &&
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, field := range term.MatchFields {
				if field.Key == "metadata.name" && len(field.Values) == 1 {
					return field.Values[0]
				}
			}
		}
	}
	return nodeA
}
