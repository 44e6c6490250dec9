/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package docs

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
)

// examples are the directories of them.
func examples(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(apiserver.Root(), "examples", "*", "kustomization.yaml"))
	if err != nil || len(found) < 8 {
		t.Fatalf("examples %v, %v; want eight", found, err)
	}
	for i := range found {
		found[i] = filepath.Dir(found[i])
	}
	return found
}

// applyExamples as a user would, and does what kubelets, agents and the controllers of workloads would do.
func applyExamples(t *testing.T, kubeconfig string, api client.Client) {
	t.Helper()
	class := &storagev1.StorageClass{Provisioner: "loop.csi.hawser.io", AllowVolumeExpansion: new(true),
		ObjectMeta: metav1.ObjectMeta{Name: "default-of-the-cluster",
			Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}}}
	if err := api.Create(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	for _, dir := range examples(t) {
		apiserver.Kubectl(t, kubeconfig, "", "apply", "-f", filepath.Join(dir, "namespace.yaml"))
		whole := "--kustomize=" + dir // -k is for kustomizations with policies, which older versions get without some
		apiserver.Kubectl(t, kubeconfig, "", "apply", whole, "--dry-run=server")
		apiserver.Kubectl(t, kubeconfig, "", "apply", whole)
		if again := apiserver.Kubectl(t, kubeconfig, "", "apply", whole); strings.Contains(again, "configured") {
			t.Errorf("applying %s again changes something:\n%s", filepath.Base(dir), again)
		}
	}
	apiserver.Kubectl(t, kubeconfig, "", "apply", "-n", "bank", "-f",
		filepath.Join(apiserver.Root(), "examples", "database-disks", "disk-2.yaml"))
	for _, pod := range podsOfExamples(t, api) {
		createPod(t, api, pod)
	}
	readyIntents(t, api)
}

// podsOfExamples are a pod of each workload, and the static pod.
func podsOfExamples(t *testing.T, api client.Client) []*corev1.Pod {
	t.Helper()
	static := &corev1.Pod{}
	manifest(t, "static-pod/registry.yaml", static)
	static.Spec.NodeName = "node-a"
	static.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "1"} // as its kubelet shows it
	pods := []*corev1.Pod{static}
	add := func(of metav1.ObjectMeta, template *corev1.PodTemplateSpec) {
		template.ObjectMeta.Namespace, template.ObjectMeta.Name = of.Namespace, of.Name+"-0"
		pods = append(pods, &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec})
	}
	statefulSet, daemonSet, deployment := &appsv1.StatefulSet{}, &appsv1.DaemonSet{}, &appsv1.Deployment{}
	for key, object := range map[client.ObjectKey]client.Object{
		{Namespace: "cache", Name: "cache"}: statefulSet, {Namespace: "models", Name: "inference"}: daemonSet,
		{Namespace: "fleet", Name: "search"}: deployment,
	} {
		if err := api.Get(t.Context(), key, object); err != nil {
			t.Fatal(err)
		}
	}
	add(statefulSet.ObjectMeta, &statefulSet.Spec.Template)
	add(daemonSet.ObjectMeta, &daemonSet.Spec.Template)
	add(deployment.ObjectMeta, &deployment.Spec.Template)
	return pods
}

// createPod and see that the scheduler leaves it alone if it has the volume of a claim or an intent.
func createPod(t *testing.T, api client.Client, pod *corev1.Pod) {
	t.Helper()
	if err := api.Create(t.Context(), pod); err != nil {
		t.Fatalf("creating pod %s of the examples: %v", pod.Name, err)
	}
	placed := slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.CSI != nil && v.CSI.VolumeAttributes[volumesv1alpha1.AttributeIntents] == ""
	})
	gated := len(pod.Spec.SchedulingGates) > 0
	if want := placed && apiserver.MutatingPolicies(t); gated != want {
		t.Errorf("pod %s is gated: %t, want %t", pod.Name, gated, want)
	}
}

// readyIntents reports intents and sets of the examples as agents and manager do.
func readyIntents(t *testing.T, api client.Client) {
	t.Helper()
	ready := func(generation int64) []metav1.Condition {
		return []metav1.Condition{{Type: volumesv1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready",
			ObservedGeneration: generation, LastTransitionTime: metav1.Now()}}
	}
	intents := &volumesv1alpha1.VolumeAttachmentIntentList{}
	sets := &volumesv1alpha1.VolumeAttachmentIntentSetList{}
	for _, list := range []client.ObjectList{intents, sets} {
		if err := api.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	for i := range intents.Items {
		if intent := &intents.Items[i]; len(intent.Status.Conditions) == 0 {
			intent.Status.ObservedGeneration, intent.Status.Conditions = intent.Generation, ready(intent.Generation)
			intent.Status.Path = pathOf(intent)
			if err := api.Status().Update(t.Context(), intent); err != nil {
				t.Fatalf("writing the status of intent %s: %v", intent.Name, err)
			}
			bind(t, api, client.ObjectKey{Namespace: intent.Namespace, Name: intent.Spec.Volume.PersistentVolumeClaim.ClaimName})
		}
	}
	for i := range sets.Items {
		if set := &sets.Items[i]; len(set.Status.Conditions) == 0 {
			set.Status.ObservedGeneration, set.Status.Conditions = set.Generation, ready(set.Generation)
			if err := api.Status().Update(t.Context(), set); err != nil {
				t.Fatalf("writing the status of set %s: %v", set.Name, err)
			}
		}
	}
}

// bind a claim, as the controller of PersistentVolumes does. A claim that is not bound cannot grow.
func bind(t *testing.T, api client.Client, key client.ObjectKey) {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	if err := api.Get(t.Context(), key, claim); err != nil {
		t.Fatal(err)
	}
	claim.Status.Phase = corev1.ClaimBound
	if err := api.Status().Update(t.Context(), claim); err != nil {
		t.Fatalf("writing the status of claim %s: %v", key, err)
	}
}

// pathOf an intent, with the default directory of agents.
func pathOf(intent *volumesv1alpha1.VolumeAttachmentIntent) string {
	return filepath.Join("/var/lib/hawser/published", intent.Namespace, intent.Name)
}

// manifest reads the last document of a file of the examples.
func manifest(t *testing.T, name string, object client.Object) {
	t.Helper()
	text := read(t, filepath.Join(apiserver.Root(), "examples", name))
	documents := strings.Split(text, "\n---\n")
	if err := yaml.UnmarshalStrict([]byte(documents[len(documents)-1]), object); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// thePipelineWaits runs the script of examples/ci-waits.
func thePipelineWaits(t *testing.T, c *cluster) {
	t.Helper()
	const script = "examples/ci-waits/wait.sh preview 2s"
	if output, err := c.run(t, script); err != nil {
		t.Errorf("%s: %v, want success while all intents are Ready:\n%s", script, err, output)
	}
	slow := &volumesv1alpha1.VolumeAttachmentIntent{}
	manifest(t, "ci-waits/volume.yaml", slow)
	slow.Namespace, slow.Name = "preview", "slow"
	if err := c.api.Create(t.Context(), slow); err != nil {
		t.Fatalf("creating an intent that is not Ready: %v", err)
	}
	output, err := c.run(t, script)
	if err == nil || !strings.Contains(output, "Intent preview/slow:") || strings.Contains(output, "Intent preview/fixt") {
		t.Errorf("%s: %v, want an error and what the intent slow waits for:\n%s", script, err, output)
	}
}
