/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/install"
	"github.com/hawser-io/hawser/internal/operator"
	"github.com/hawser-io/hawser/internal/operator/render"
	"github.com/hawser-io/hawser/test/apiserver"
)

var (
	crdKind    = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	extension  = schema.GroupVersionKind{Group: "olm.operatorframework.io", Version: "v1", Kind: "ClusterExtension"}
	intentKind = volumesv1alpha1.GroupVersion.WithKind("VolumeAttachmentIntent")
)

// guarded are all objects without which Hawser releases nothing.
var guarded = []struct {
	kind     schema.GroupVersionKind
	ns, name string
}{
	{crdKind, "", "volumemanagers.volumes.hawser.io"},
	{crdKind, "", "nodevolumestates.volumes.hawser.io"},
	{crdKind, "", "volumeattachmentintents.volumes.hawser.io"},
	{crdKind, "", "volumeattachmentintentsets.volumes.hawser.io"},
	{deployment, namespace, "hawser-operator"},
	{corev1.SchemeGroupVersion.WithKind("ServiceAccount"), namespace, "hawser-operator"},
	{rbacv1.SchemeGroupVersion.WithKind("Role"), namespace, "hawser-operator"},
	{rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), namespace, "hawser-operator"},
	{clusterRole, "", "hawser-operator"},
	{rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"), "", "hawser-operator"},
	{corev1.SchemeGroupVersion.WithKind("Namespace"), "", namespace},
	{extension, "", "storage"},
}

func (s server) awaitMark(t *testing.T, kind schema.GroupVersionKind, ns, name, want string) {
	t.Helper()
	s.await(t, kind, ns, name, fmt.Sprintf("the mark of %s is %q", name, want), func(o *unstructured.Unstructured) bool {
		return o.GetLabels()[volumesv1alpha1.InUseLabel] == want
	})
}

// awaitMarks waits until every object has the mark.
func (s server) awaitMarks(t *testing.T, want string) {
	t.Helper()
	s.awaitMark(t, volumeManager, "", "cluster", want)
	for _, g := range guarded {
		s.awaitMark(t, g.kind, g.ns, g.name, want)
	}
}

// expectRefused tries to delete an object. A deletion that is not refused changes nothing.
func (s server) expectRefused(t *testing.T, kind schema.GroupVersionKind, ns, name string, texts ...string) {
	t.Helper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	object.SetNamespace(ns)
	object.SetName(name)
	err := s.admin.Delete(t.Context(), object, client.DryRunAll)
	for _, text := range texts {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), text) {
			t.Errorf("deleting %s %s: error %v, want one that it is forbidden, with %q", kind.Kind, name, err, text)
		}
	}
}

// awaitInForce waits until the API server applies the policy. That has no event.
func (s server) awaitInForce(t *testing.T) {
	t.Helper()
	kind := &unstructured.Unstructured{}
	kind.SetGroupVersionKind(crdKind)
	kind.SetName("volumemanagers.volumes.hawser.io")
	check(t, wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			return apierrors.IsForbidden(s.admin.Delete(ctx, kind, client.DryRunAll)), nil
		}))
}

// installedByOLM lets the operator appear as part of a ClusterExtension.
func (s server) installedByOLM(t *testing.T) {
	t.Helper()
	crd, object := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	check(t, yaml.Unmarshal([]byte(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusterextensions.olm.operatorframework.io}
spec:
  group: olm.operatorframework.io
  names: {kind: ClusterExtension, listKind: ClusterExtensionList, plural: clusterextensions}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`), &crd.Object))
	check(t, s.admin.Create(t.Context(), crd))
	s.kubectl(t, "wait", "--for=condition=Established", "crd/"+crd.GetName())
	object.SetGroupVersionKind(extension)
	object.SetName("storage")
	check(t, s.admin.Create(t.Context(), object))
	s.kubectl(t, "-n", namespace, "label", "deployment", "hawser-operator",
		"olm.operatorframework.io/owner-kind=ClusterExtension", "olm.operatorframework.io/owner-name=storage")
}

// moveKubelet tries to change the kubelet's directory. It changes nothing.
func (s server) moveKubelet(t *testing.T) error {
	t.Helper()
	vm := &volumesv1alpha1.VolumeManager{}
	vm.Name = "cluster"
	return s.admin.Patch(t.Context(), vm, client.RawPatch(types.MergePatchType,
		[]byte(`{"spec":{"kubeletRoot":"/data/kubelet"}}`)), client.DryRunAll)
}

func newIntent(name string) *volumesv1alpha1.VolumeAttachmentIntent {
	intent := &volumesv1alpha1.VolumeAttachmentIntent{}
	intent.Namespace, intent.Name = "default", name
	// Where the API server has no policy that sets it, the manager does.
	intent.Finalizers = []string{volumesv1alpha1.ReleaseFinalizer}
	intent.Spec.NodeName = "node-b"
	intent.Spec.Volume.PersistentVolumeClaim = &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: name}
	return intent
}

// reportDirectories does what the agent of the node does.
func (s server) reportDirectories(t *testing.T, node string, directories int32) {
	t.Helper()
	state := &volumesv1alpha1.NodeVolumeState{}
	check(t, s.admin.Get(t.Context(), types.NamespacedName{Name: node}, state))
	state.Status.Summary = &volumesv1alpha1.NodeVolumeSummary{Directories: directories}
	check(t, s.admin.Status().Update(t.Context(), state))
}

// release does what the manager does once a volume is released.
func (s server) release(t *testing.T, object client.Object) {
	t.Helper()
	check(t, client.IgnoreNotFound(s.admin.Patch(t.Context(), object,
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))))
}

func (s server) testGuarded(t *testing.T) {
	s.installedByOLM(t)
	state := &volumesv1alpha1.NodeVolumeState{}
	check(t, s.admin.Get(t.Context(), types.NamespacedName{Name: "node-b"}, state))
	state.Spec.Attachments = nil
	check(t, s.admin.Update(t.Context(), state))
	s.awaitMarks(t, "0")
	s.awaitInForce(t)
	// Nothing is in use, but what is installed would stay behind.
	for _, g := range guarded {
		s.expectRefused(t, g.kind, g.ns, g.name, "0 volume(s)", "Delete VolumeManager cluster first")
	}
	vm := &volumesv1alpha1.VolumeManager{}
	vm.Name = "cluster"
	if err := s.admin.Delete(t.Context(), vm, client.DryRunAll); err != nil {
		t.Errorf("deleting the VolumeManager while nothing is in use: error %v, want none", err)
	}
	if err := s.moveKubelet(t); err != nil {
		t.Errorf("changing spec.kubeletRoot while nothing is in use: error %v, want none", err)
	}

	first, second := newIntent("first"), newIntent("second")
	for _, intent := range []client.Object{first, second} {
		check(t, s.admin.Create(t.Context(), intent))
	}
	s.awaitMarks(t, "2")
	for _, g := range guarded {
		s.expectRefused(t, g.kind, g.ns, g.name, g.name, "2 volume(s)", "Delete VolumeManager cluster first")
	}
	s.expectRefused(t, volumeManager, "", "cluster", "2 volume(s) are wanted, attached or in use through Hawser",
		"set spec.removal of this VolumeManager to Drain")
	if err := s.moveKubelet(t); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(),
		"spec.kubeletRoot cannot be changed while 2 volume(s) are wanted, attached or in use") {
		t.Errorf("changing spec.kubeletRoot while two volumes are in use: error %v, want one that counts them", err)
	}
	s.change(t, `{"removal":"Drain"}`)
	if err := s.admin.Delete(t.Context(), vm, client.DryRunAll); err != nil {
		t.Errorf("deleting a VolumeManager with Drain: error %v, want none", err)
	}
	s.change(t, `{"removal":"Refuse"}`)

	for _, g := range guarded {
		resource := strings.ToLower(g.kind.Kind)
		s.kubectl(t, "label", resource, g.name, "--namespace="+g.ns, volumesv1alpha1.InUseLabel+"-")
		s.awaitMark(t, g.kind, g.ns, g.name, "2")
	}
	for _, intent := range []client.Object{first, second} {
		check(t, s.admin.Delete(t.Context(), intent))
		s.release(t, intent)
	}
	s.awaitMarks(t, "0")
	s.change(t, `{"removal":null}`)
}

// asManager is a client with the account of the manager, which alone may write holds and locks.
func (s server) asManager(t *testing.T) client.Client {
	t.Helper()
	c, err := client.New(apiserver.ServiceAccount(s.config, namespace, "hawser-manager"),
		client.Options{Scheme: apiserver.Scheme(), Mapper: s.admin.RESTMapper()})
	check(t, err)
	return c
}

// trace is an object that Hawser wrote. It is to be deleted, or to lose what Hawser wrote.
type trace struct {
	object client.Object
	// stays: the object belongs to others.
	stays bool
}

const (
	another    = "example.com/other"
	unlistings = "volumes.hawser.io/unlistings"
	readyLabel = "ready.volumes.hawser.io/ns.set"
)

// ofNode is what the manager gives to what an agent reads Secrets with: without the owner it is a stranger's.
func ofNode(name string) metav1.ObjectMeta {
	node := install.NodeOfAccount(name)
	owner := metav1.OwnerReference{APIVersion: volumesv1alpha1.GroupVersion.String(), Kind: "NodeVolumeState", Name: node,
		UID: types.UID(node)}
	return metav1.ObjectMeta{Namespace: "default", Name: name, OwnerReferences: []metav1.OwnerReference{owner},
		Labels: map[string]string{install.NodeAccountLabel: "true"}}
}

// traces are everything that manager and agents leave in a cluster.
func traces() []trace {
	account := &corev1.ServiceAccount{ObjectMeta: ofNode("hawser-agent-node-b")}
	account.Namespace = namespace
	role := &rbacv1.Role{ObjectMeta: ofNode("hawser-agent-node-b")}
	bound := &rbacv1.RoleBinding{ObjectMeta: ofNode("hawser-agent-node-b"),
		RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: role.Name}}
	foreign := &rbacv1.Role{ObjectMeta: ofNode("hawser-agent-node-b")}
	foreign.Namespace, foreign.OwnerReferences = "kube-public", nil
	locks := &corev1.ConfigMap{}
	locks.Namespace, locks.Name = namespace, volumesv1alpha1.ExclusiveLocksPrefix+"0"
	locks.Labels = map[string]string{volumesv1alpha1.ExclusiveLocksLabel: ""}
	var all []trace
	for _, name := range []string{"hawser-manager", "hawser-agent-node-b"} {
		lease := &coordinationv1.Lease{}
		lease.Namespace, lease.Name = namespace, name
		all = append(all, trace{object: lease})
	}
	state := &volumesv1alpha1.NodeVolumeState{}
	state.Name, state.Finalizers = "node-a", []string{volumesv1alpha1.ReleaseFinalizer}
	return append(all, trace{object: state}, trace{object: account}, trace{object: role}, trace{object: bound},
		trace{object: foreign, stays: true}, trace{object: locks},
		trace{object: newAttachment("held"), stays: true}, trace{object: newClaim("kept"), stays: true})
}

func newAttachment(name string) *storagev1.VolumeAttachment {
	volume := "pv-" + name
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{another, volumesv1alpha1.ForcedAwayFinalizer},
			Annotations: map[string]string{volumesv1alpha1.HoldAnnotation: "2026-08-01T00:00:00Z",
				volumesv1alpha1.VolumeNameAnnotation: "a", another: "b"}},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: "d", NodeName: "node-b",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
	}
}

func newClaim(name string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{}
	claim.Namespace, claim.Name = "default", name
	claim.Finalizers = []string{another, volumesv1alpha1.ClaimFinalizer}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{
		corev1.ResourceStorage: resource.MustParse("1Gi")}
	return claim
}

// expectTraces checks what is left of an object that Hawser wrote.
func (s server) expectTraces(t *testing.T, all []trace) {
	t.Helper()
	for _, trace := range all {
		err := s.admin.Get(t.Context(), client.ObjectKeyFromObject(trace.object), trace.object)
		if !trace.stays {
			if !apierrors.IsNotFound(err) {
				t.Errorf("%T %s after the removal: error %v, want that it is gone", trace.object, trace.object.GetName(), err)
			}
			continue
		}
		check(t, err)
		text := fmt.Sprint(trace.object.GetFinalizers(), trace.object.GetAnnotations())
		if strings.Contains(text, "hawser.io") {
			t.Errorf("%T %s after the removal has %s, want nothing of Hawser", trace.object, trace.object.GetName(), text)
		}
		if _, isRole := trace.object.(*rbacv1.Role); !isRole && !strings.Contains(text, another) {
			t.Errorf("%T %s after the removal has %s, want what others wrote", trace.object, trace.object.GetName(), text)
		}
	}
}

func (s server) testDrain(t *testing.T) {
	manager := s.asManager(t)
	left := traces()
	for _, trace := range left {
		c := client.Client(s.admin)
		switch trace.object.(type) {
		case *storagev1.VolumeAttachment, *corev1.ConfigMap:
			c = manager
		}
		check(t, c.Create(t.Context(), trace.object))
	}
	s.kubectl(t, "annotate", "node", "node-b", unlistings+"=3")
	s.kubectl(t, "label", "node", "node-b", readyLabel+"=true", "other=kept")
	s.kubectl(t, "taint", "node", "node-b", corev1.TaintNodeOutOfService+"="+volumesv1alpha1.OutOfServiceTaintValue+
		":NoExecute", "other=kept:NoSchedule")
	gated, mounted := s.gatedPod(t, "gated"), inlinePod("mounted")
	mounted.Spec.NodeName = "node-b"
	check(t, s.admin.Create(t.Context(), mounted))
	intent := newIntent("wanted")
	check(t, s.admin.Create(t.Context(), intent))
	s.awaitMarks(t, "1")

	s.change(t, `{"removal":"Drain"}`)
	s.kubectl(t, "delete", "hvm", "cluster", "--wait=false")
	s.awaitCondition(t, "Removed", "False", "Draining",
		"1 volume(s) on 1 node(s): node node-b, the volume of default/wanted (intent default/wanted")
	s.await(t, intentKind, "default", "wanted", "the operator deletes it", func(o *unstructured.Unstructured) bool {
		return o.GetDeletionTimestamp() != nil
	})
	s.await(t, binding, "", "hawser-draining", "new intents are refused", there)
	s.awaitIntentsRefused(t)
	s.awaitInlinePodsRefused(t)
	s.expectNotGating(t)
	s.kubectl(t, "-n", namespace, "get", "deployment/hawser-manager", "daemonset/hawser-agent")
	s.awaitMarks(t, "1") // the late intents were counted
	s.expectRefused(t, crdKind, "", "volumemanagers.volumes.hawser.io", "1 volume(s)")

	// An agent that does not end keeps everything that it may still need.
	pod := s.agentPod(t)
	s.release(t, intent)
	s.awaitCondition(t, "Removed", "False", "Draining", "1 pod(s) with inline volumes, which the kubelet unmounts only "+
		"through Hawser: pod default/mounted on node node-b. Delete them")
	s.expectGates(t, gated, "example.com/queue", volumesv1alpha1.PlacementGate)
	// The kubelet unmounts what a pod had after the pod has ended.
	s.reportDirectories(t, "node-a", 1)
	check(t, s.admin.Delete(t.Context(), mounted, client.GracePeriodSeconds(0)))
	s.awaitCondition(t, "Removed", "False", "Draining", "directories of intents on 1 node(s), which the agents remove "+
		"once the kubelet has ended their pods: 1 on node node-a. Delete the Node of a machine that is gone")
	s.expectGates(t, gated, "example.com/queue", volumesv1alpha1.PlacementGate)
	s.reportDirectories(t, "node-a", 0)
	s.await(t, podKind, "default", "gated", "its gate is lifted", func(o *unstructured.Unstructured) bool {
		gates, _, _ := unstructured.NestedSlice(o.Object, "spec", "schedulingGates")
		return len(gates) == 1
	})
	s.expectGates(t, gated, "example.com/queue")
	s.awaitCondition(t, "Removed", "False", "StoppingPrograms", "pod hawser-agent-x on node node-a")
	s.kubectl(t, "get", "nvs", "node-a")
	check(t, s.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))

	s.awaitGone(t, volumeManager, "", "cluster", "everything is released")
	s.expectTraces(t, left)
	s.expectNothingInstalled(t)
	node := &corev1.Node{}
	check(t, s.admin.Get(t.Context(), types.NamespacedName{Name: "node-b"}, node))
	if count, has := node.Annotations[unlistings]; has {
		t.Errorf("Node node-b has the annotation %s=%s after the removal, want none", unlistings, count)
	}
	if _, has := node.Labels[readyLabel]; has || node.Labels["other"] != "kept" {
		t.Errorf("Node node-b has the labels %v after the removal, want none of sets, and other=kept", node.Labels)
	}
	if handshake.OutOfService(node) != nil ||
		!slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == "other" }) {
		t.Errorf("Node node-b has the taints %v after the removal, want other=kept alone", node.Spec.Taints)
	}
	for _, g := range guarded {
		s.awaitMark(t, g.kind, g.ns, g.name, "")
	}
}

var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

func inlinePod(name string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = "default", name
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
		Driver: volumesv1alpha1.InlineDriver, VolumeAttributes: map[string]string{volumesv1alpha1.AttributeClaim: "data"}}}}}
	return pod
}

// gatedPod creates a pod that another controller gates too.
func (s server) gatedPod(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	pod := inlinePod(name)
	pod.Labels = map[string]string{"app": "web", volumesv1alpha1.GatedLabel: "true"}
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/queue"},
		{Name: volumesv1alpha1.PlacementGate}}
	check(t, s.admin.Create(t.Context(), pod))
	return pod
}

// expectGates checks the gates of the pod, and that its label goes with the one of Hawser.
func (s server) expectGates(t *testing.T, pod *corev1.Pod, want ...string) {
	t.Helper()
	check(t, s.admin.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	var gates []string
	for _, g := range pod.Spec.SchedulingGates {
		gates = append(gates, g.Name)
	}
	labelled := pod.Labels[volumesv1alpha1.GatedLabel] != ""
	if !slices.Equal(gates, want) || labelled != slices.Contains(want, volumesv1alpha1.PlacementGate) ||
		pod.Labels["app"] != "web" {
		t.Errorf("pod %s has the gates %q and the labels %v, want the gates %q", pod.Name, gates, pod.Labels, want)
	}
}

// expectNotGating expects that the policy that gates pods is gone.
func (s server) expectNotGating(t *testing.T) {
	t.Helper()
	if !apiserver.MutatingPolicies(t) {
		return
	}
	for _, kind := range []string{"MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"} {
		s.awaitGone(t, binding.GroupVersion().WithKind(kind), "", "hawser-pod-placement", "pods are not gated any more")
	}
}

// awaitInlinePodsRefused waits until the API server applies the policy hawser-draining-pods.
func (s server) awaitInlinePodsRefused(t *testing.T) {
	t.Helper()
	check(t, wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			err := s.admin.Create(ctx, inlinePod("late"), client.DryRunAll)
			return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "no pod may use its inline volumes"), nil
		}))
	other := inlinePod("other")
	other.Spec.Volumes = nil
	check(t, s.admin.Create(t.Context(), other, client.DryRunAll))
}

// awaitIntentsRefused waits until the API server applies the policy hawser-draining.
func (s server) awaitIntentsRefused(t *testing.T) {
	t.Helper()
	check(t, wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			late := newIntent("late")
			err := s.admin.Create(ctx, late)
			if err == nil {
				err = client.IgnoreNotFound(s.admin.Delete(ctx, late))
				s.release(t, late)
				return false, err
			}
			return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "Hawser is being removed"), nil
		}))
}

func (s server) agentPod(t *testing.T) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "node-a", Containers: []corev1.Container{{Name: "agent",
		Image: "agent"}}}}
	pod.Namespace, pod.Name = namespace, "hawser-agent-x"
	pod.Labels = map[string]string{"app.kubernetes.io/name": "hawser", "app.kubernetes.io/component": "agent"}
	check(t, s.admin.Create(t.Context(), pod))
	return pod
}

// expectNothingInstalled looks for the objects of config/standalone, except for the kinds and the namespace with its
// quota, and for policies of a removal.
func (s server) expectNothingInstalled(t *testing.T) {
	t.Helper()
	for document := range strings.SplitSeq(s.kubectl(t, "kustomize", "standalone"), "\n---\n") {
		object := &unstructured.Unstructured{}
		check(t, yaml.Unmarshal([]byte(document), &object.Object))
		mutating := strings.HasPrefix(object.GetKind(), "MutatingAdmissionPolicy")
		if object.GetKind() == "CustomResourceDefinition" || object.GetKind() == "Namespace" ||
			object.GetKind() == "ResourceQuota" ||
			mutating && !apiserver.MutatingPolicies(t) {
			continue
		}
		err := s.admin.Get(t.Context(), client.ObjectKeyFromObject(object), object)
		if !apierrors.IsNotFound(err) {
			t.Errorf("%s %s after the removal: error %v, want that it is gone", object.GetKind(), object.GetName(), err)
		}
	}
	left := s.kubectl(t, "get", "validatingadmissionpolicies,validatingadmissionpolicybindings", "-o", "name", "-l",
		render.ManagedByLabel+"="+render.ManagedBy)
	if left != "" {
		t.Errorf("policies after the removal: %s, want none", left)
	}
}

func (s server) testInstalledAgain(t *testing.T) {
	vm := &volumesv1alpha1.VolumeManager{}
	vm.Name = "cluster"
	check(t, s.admin.Create(t.Context(), vm))
	s.await(t, binding, "", "hawser-hold", "the policies come back", there)
	s.await(t, deployment, namespace, "hawser-manager", "the manager comes back", there)
	s.awaitMarks(t, "0")
}

// TestKindsThatAreDeletedFirstLeaveNoTrace overrides the protection in every wrong order, while nothing is in use.
func TestKindsThatAreDeletedFirstLeaveNoTrace(t *testing.T) {
	s := newServer(t)
	s.kubectl(t, "apply", "-k", "default")
	start := func() func() { return s.run(t, operator.Options{Images: released}) }
	stop := start()
	for _, g := range guarded[:len(guarded)-1] {
		s.awaitMark(t, g.kind, g.ns, g.name, "0")
	}
	s.awaitCondition(t, "Progressing", "True", "RollingOut", "")
	left := traces()
	for _, trace := range left {
		c := client.Client(s.admin)
		switch trace.object.(type) {
		case *storagev1.VolumeAttachment, *corev1.ConfigMap:
			c = s.asManager(t)
		}
		check(t, c.Create(t.Context(), trace.object))
	}
	stop()
	s.awaitInForce(t)
	// The policy needs no living program.
	for _, g := range guarded[:len(guarded)-1] {
		s.expectRefused(t, g.kind, g.ns, g.name, "0 volume(s)", "If the operator does not run any more, see docs/remove.md")
	}
	kinds := []string{"volumemanagers", "nodevolumestates", "volumeattachmentintents"}
	// The commands of docs/remove.md.
	for _, list := range []string{"crd,clusterrole,clusterrolebinding,namespace", "deployment", "serviceaccount", "role",
		"rolebinding"} {
		s.kubectl(t, "-n", namespace, "label", list, "-l", volumesv1alpha1.InUseLabel, volumesv1alpha1.InUseLabel+"-")
	}
	for _, kind := range kinds {
		s.kubectl(t, "delete", "crd", "--wait=false", kind+".volumes.hawser.io")
	}
	start()
	for _, kind := range kinds {
		s.awaitGone(t, crdKind, "", kind+".volumes.hawser.io", "the kind goes once nothing of it is left")
	}
	for i := range left {
		if _, isState := left[i].object.(*volumesv1alpha1.NodeVolumeState); isState {
			left = append(left[:i:i], left[i+1:]...)
			break
		}
	}
	s.expectTraces(t, left)
	s.expectNothingInstalled(t)
}

// TestADeletionThatWasNotRefusedWaitsForTheVolumes deletes the VolumeManager in spite of volumes in use: the mark was
// taken away, or was not there yet.
func TestADeletionThatWasNotRefusedWaitsForTheVolumes(t *testing.T) {
	s := newServer(t)
	s.kubectl(t, "apply", "-k", "default")
	stop := s.run(t, operator.Options{Images: released})
	intent := newIntent("wanted")
	check(t, s.admin.Create(t.Context(), intent))
	s.awaitMark(t, volumeManager, "", "cluster", "1")
	stop()
	s.kubectl(t, "label", "hvm", "cluster", volumesv1alpha1.InUseLabel+"-")
	s.kubectl(t, "delete", "hvm", "cluster", "--wait=false")
	s.run(t, operator.Options{Images: released})
	s.awaitCondition(t, "Removed", "False", "VolumesInUse",
		"1 volume(s) on 1 node(s): node node-b, the volume of default/wanted (intent default/wanted). Release them, or set "+
			"spec.removal to Drain")
	// Meanwhile it is an installation as any other.
	gated := s.gatedPod(t, "gated")
	lost := s.await(t, binding, "", "hawser-hold", "it is there", there)
	check(t, s.admin.Delete(t.Context(), lost.DeepCopy()))
	s.await(t, binding, "", "hawser-hold", "the binding comes back", func(o *unstructured.Unstructured) bool {
		return o.GetUID() != lost.GetUID()
	})
	check(t, s.admin.Delete(t.Context(), intent))
	s.release(t, intent)
	s.awaitGone(t, volumeManager, "", "cluster", "nothing is in use any more")
	s.expectNothingInstalled(t)
	s.expectGates(t, gated, "example.com/queue")
	// An API server may refuse or gate pods for a moment after the policies are gone.
	check(t, wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			err := s.admin.Create(ctx, inlinePod("late"), client.DryRunAll)
			if apierrors.IsForbidden(err) {
				return false, nil
			}
			return err == nil, err
		}))
	late := s.gatedPod(t, "late")
	s.await(t, podKind, "default", "late", "its gate is lifted too", func(o *unstructured.Unstructured) bool {
		return o.GetLabels()[volumesv1alpha1.GatedLabel] == ""
	})
	s.expectGates(t, late, "example.com/queue")
}

// TestWhatIsNotKnownIsNotRemoved deletes the VolumeManager while a kind is missing.
func TestWhatIsNotKnownIsNotRemoved(t *testing.T) {
	s := newServer(t)
	s.kubectl(t, "apply", "-k", "default")
	stop := s.run(t, operator.Options{Images: released})
	s.awaitMark(t, crdKind, "", "nodevolumestates.volumes.hawser.io", "0")
	s.await(t, deployment, namespace, "hawser-manager", "it is installed", there)
	stop()
	s.kubectl(t, "label", "crd", "nodevolumestates.volumes.hawser.io", volumesv1alpha1.InUseLabel+"-")
	s.kubectl(t, "delete", "crd", "nodevolumestates.volumes.hawser.io")
	s.kubectl(t, "delete", "hvm", "cluster", "--wait=false")
	s.run(t, operator.Options{Images: released})
	s.awaitCondition(t, "Removed", "False", "UseUnknown", "Install the kinds again (config/crd)")
	s.kubectl(t, "get", "deployment", "hawser-manager", "-n", namespace)
	s.kubectl(t, "apply", "-k", "crd")
	s.awaitGone(t, volumeManager, "", "cluster", "it is known that nothing is in use")
	s.expectNothingInstalled(t)
}
