/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package config_test

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
)

// inlinePod has an inline volume with these attributes, all of them with the value data.
func inlinePod(name string, attributes ...string) *corev1.Pod {
	csi := &corev1.CSIVolumeSource{Driver: volumesv1alpha1.InlineDriver}
	for _, attribute := range attributes {
		if csi.VolumeAttributes == nil {
			csi.VolumeAttributes = map[string]string{}
		}
		csi.VolumeAttributes[attribute] = "data"
	}
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = "default", name
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{CSI: csi}}}
	return pod
}

func gatesOf(pod *corev1.Pod) []string {
	var gates []string
	for _, g := range pod.Spec.SchedulingGates {
		gates = append(gates, g.Name)
	}
	return gates
}

func (in installation) testPodsAreGated(t *testing.T) {
	if !apiserver.MutatingPolicies(t) {
		t.Skip("the API server has no mutating policies; the author of the pod sets the gate")
	}
	const ours = volumesv1alpha1.PlacementGate
	label := map[string]string{volumesv1alpha1.GatedLabel: "true"}
	for _, c := range []struct {
		name   string
		pod    *corev1.Pod
		change func(*corev1.Pod)
		gates  []string
		labels map[string]string
	}{
		{name: "claim", pod: inlinePod("of-claim", "claim"), gates: []string{ours}, labels: label},
		{name: "intent", pod: inlinePod("of-intent", "intent"), gates: []string{ours}, labels: label},
		{name: "gates and labels of its own", pod: inlinePod("with-gates", "claim"), change: func(p *corev1.Pod) {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/queue"}}
			p.Labels = map[string]string{"app": "web"}
		}, gates: []string{"example.com/queue", ours},
			labels: map[string]string{"app": "web", volumesv1alpha1.GatedLabel: "true"}},
		{name: "gated by its author", pod: inlinePod("by-author", "claim"), change: func(p *corev1.Pod) {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: ours}}
			p.Labels = map[string]string{volumesv1alpha1.GatedLabel: "no"}
		}, gates: []string{ours}, labels: label},
		{name: "labelled by its author", pod: inlinePod("labelled", "claim"), change: func(p *corev1.Pod) {
			p.Labels = label
		}, gates: []string{ours}, labels: label},
		{name: "several volumes", pod: inlinePod("several", "claim"), change: func(p *corev1.Pod) {
			p.Spec.Volumes = append([]corev1.Volume{{Name: "first"}}, p.Spec.Volumes...)
		}, gates: []string{ours}, labels: label},
		{name: "bound to a node, as a static pod is", pod: inlinePod("bound", "claim"), change: func(p *corev1.Pod) {
			p.Spec.NodeName = "node-a"
		}},
		{name: "an attribute that restricts no nodes", pod: inlinePod("selector", "intents")},
		{name: "no attributes", pod: inlinePod("without")},
		{name: "another driver", pod: inlinePod("another", "claim"), change: func(p *corev1.Pod) {
			p.Spec.Volumes[0].CSI.Driver = "example.com"
		}},
		{name: "no volumes", pod: inlinePod("no-volumes"), change: func(p *corev1.Pod) { p.Spec.Volumes = nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.change != nil {
				c.change(c.pod)
			}
			expectAllowed(t, in.admin.Create(t.Context(), c.pod, client.DryRunAll))
			if got := gatesOf(c.pod); !slices.Equal(got, c.gates) {
				t.Errorf("pod %s has the gates %q, want %q", c.pod.Name, got, c.gates)
			}
			if !maps.Equal(c.pod.Labels, c.labels) {
				t.Errorf("pod %s has the labels %v, want %v", c.pod.Name, c.pod.Labels, c.labels)
			}
		})
	}
}

// gatedPod has the gate whether the API server has mutating policies or not.
func gatedPod(name string) *corev1.Pod {
	pod := inlinePod(name, "claim")
	pod.Labels = map[string]string{"app": "web", volumesv1alpha1.GatedLabel: "true"}
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/queue"},
		{Name: volumesv1alpha1.PlacementGate}}
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1,
			Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "disk",
				Operator: corev1.NodeSelectorOpExists}}}}},
	}}
	return pod
}

const (
	zoneA  = `{"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"In","values":["a"]}]}]}`
	narrow = `{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":` + zoneA + `}}}}`
	queue  = `{"spec":{"schedulingGates":[{"name":"example.com/queue"}]}}`
)

// testManagerPods tries what the manager may change of a pod, whatever its roles are.
func (in installation) testManagerPods(t *testing.T) {
	pod, other := gatedPod("managed"), inlinePod("ungated")
	other.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/queue"}}
	other.Labels = map[string]string{volumesv1alpha1.GatedLabel: "true"}
	expectAllowed(t, in.admin.Create(t.Context(), pod))
	expectAllowed(t, in.admin.Create(t.Context(), other))
	manager := in.as(t, managerAccount)
	const condition = `{"status":{"conditions":[{"type":"volumes.hawser.io/Placeable","status":"False","reason":"r"}]}}`
	expectAllowed(t, strategic(t, manager, pod, condition))
	expectAllowed(t, dryRun(t, manager, pod, narrow))
	expectAllowed(t, dryRun(t, manager, pod, queue))
	expectAllowed(t, dryRun(t, manager, other, `{"metadata":{"labels":{"volumes.hawser.io/gated":null}}}`))

	in.grantRules(t, managerAccount, "pods",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/status", "pods/binding",
			"pods/eviction", "pods/ephemeralcontainers"}, Verbs: []string{"*"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"*"}})
	in.testManagerPodSpec(t, manager, pod)
	in.testManagerPodStatus(t, manager, pod)
	const only = "neither create nor delete a pod"
	expectForbidden(t, manager.Create(t.Context(), inlinePod("by-the-manager")), only)
	expectForbidden(t, manager.Delete(t.Context(), pod.DeepCopy()), only)
	expectForbidden(t, manager.SubResource("binding").Create(t.Context(), pod.DeepCopy(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		Target:     corev1.ObjectReference{Kind: "Node", Name: "node-a"}}), only)
	expectForbidden(t, manager.SubResource("eviction").Create(t.Context(), pod.DeepCopy(), &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}), only)
	const debug = `{"spec":{"ephemeralContainers":[{"name":"debug","image":"i"}]}}`
	expectForbidden(t, manager.SubResource("ephemeralcontainers").Patch(t.Context(), pod.DeepCopy(),
		client.RawPatch(types.StrategicMergePatchType, []byte(debug))), only)

	// Another pod's gate is not the manager's, and its affinity stays.
	expectForbidden(t, patched(t, manager, other, `{"spec":{"schedulingGates":null}}`),
		"may only remove the scheduling gate")
	expectForbidden(t, patched(t, manager, other, narrow), "only of a pod with the gate")

	// What it does to place a pod, in one write.
	expectAllowed(t, patched(t, in.admin, pod, `{"spec":{"schedulingGates":[{"name":"volumes.hawser.io/placement"}]}}`))
	expectAllowed(t, patched(t, manager, pod, `{"metadata":{"labels":{"volumes.hawser.io/gated":null}},
		"spec":{"schedulingGates":null,"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":`+
		zoneA+`}}}}`))
	for _, p := range []*corev1.Pod{pod, other} {
		expectAllowed(t, in.admin.Delete(t.Context(), p, client.GracePeriodSeconds(0)))
	}
}

func (in installation) testManagerPodSpec(t *testing.T, manager client.Client, pod *corev1.Pod) {
	const spec, metadata = "nothing of a pod's spec but", "nothing of a pod's metadata but"
	for name, c := range map[string]struct{ patch, message string }{
		"every gate":      {`{"spec":{"schedulingGates":null}}`, "may only remove the scheduling gate"},
		"another gate":    {`{"spec":{"schedulingGates":[{"name":"volumes.hawser.io/placement"}]}}`, "may only remove"},
		"a node selector": {`{"spec":{"nodeSelector":{"a":"b"}}}`, spec},
		"an image":        {`{"spec":{"containers":[{"name":"c","image":"other"}]}}`, spec},
		"a deadline":      {`{"spec":{"activeDeadlineSeconds":5}}`, spec},
		"the preferred affinity": {
			`{"spec":{"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":null}}}}`, spec},
		"a label":       {`{"metadata":{"labels":{"app":"other"}}}`, metadata},
		"a new label":   {`{"metadata":{"labels":{"a":"b"}}}`, metadata},
		"our label":     {`{"metadata":{"labels":{"volumes.hawser.io/gated":"no"}}}`, "may only remove the label"},
		"an annotation": {`{"metadata":{"annotations":{"a":"b"}}}`, metadata},
		"a finalizer":   {`{"metadata":{"finalizers":["example.com/f"]}}`, metadata},
		"an owner": {`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}]}}`,
			metadata},
	} {
		t.Run(name, func(t *testing.T) { expectForbidden(t, patched(t, manager, pod, c.patch), c.message) })
	}
	tolerant := &corev1.Pod{}
	expectAllowed(t, in.admin.Get(t.Context(), client.ObjectKeyFromObject(pod), tolerant))
	tolerant.Spec.Tolerations = append(tolerant.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists})
	expectForbidden(t, manager.Update(t.Context(), tolerant), spec)
	// A wider affinity is the API server's to refuse. The dry run before it left nothing.
	expectAllowed(t, patched(t, manager, pod, narrow))
	wider := `{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":null}}}}`
	if err := patched(t, manager, pod, wider); err == nil {
		t.Errorf("the manager removed the required affinity of pod %s, want that refused", pod.Name)
	}
}

func (in installation) testManagerPodStatus(t *testing.T, manager client.Client, pod *corev1.Pod) {
	const only = "nothing of a pod's status but"
	for name, patch := range map[string]string{
		"another condition": `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`,
		"the phase":         `{"status":{"phase":"Running"}}`,
		"its address":       `{"status":{"podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"}]}}`,
		"its host":          `{"status":{"hostIP":"10.0.0.1"}}`,
	} {
		t.Run(name, func(t *testing.T) { expectForbidden(t, strategic(t, manager, pod, patch), only) })
	}
	expectForbidden(t, strategic(t, manager, pod, `{"metadata":{"annotations":{"a":"b"}}}`),
		"nothing of a pod's metadata but")
}

// strategic patches the status, where a list of conditions changes those that it names.
func strategic(t *testing.T, c client.Client, object client.Object, patch string) error {
	t.Helper()
	target := object.DeepCopyObject().(client.Object)
	return c.Status().Patch(t.Context(), target, client.RawPatch(types.StrategicMergePatchType, []byte(patch)))
}

func dryRun(t *testing.T, c client.Client, object client.Object, patch string) error {
	t.Helper()
	target := object.DeepCopyObject().(client.Object)
	return c.Patch(t.Context(), target, client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
}
