/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/operator"
	"github.com/hawser-io/hawser/test/apiserver"
)

// TestAnInstallationOfKubectlIsContinuedByItsVolumeManager starts the operator on a cluster where config/standalone was
// applied by hand, and makes the VolumeManager as docs/install.md describes.
func TestAnInstallationOfKubectlIsContinuedByItsVolumeManager(t *testing.T) {
	s := newServer(t)
	s.kubectl(t, "apply", "-k", apiserver.Overlay(t, "standalone", "replace"))
	s.kubectl(t, "-n", namespace, "patch", "daemonset", "hawser-agent", "--type=merge",
		"--field-manager=kubectl-client-side-apply", "-p",
		`{"spec":{"template":{"spec":{"nodeSelector":{"pool":"storage"}}}}}`)
	byTool := &unstructured.Unstructured{}
	check(t, yaml.Unmarshal([]byte(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: hawser-manager, namespace: hawser-system}
spec: {template: {spec: {runtimeClassName: sandbox}}}
`), &byTool.Object))
	check(t, s.admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(byTool),
		client.FieldOwner("kustomize-controller")))
	before := s.daemonSet(t)
	s.kubectl(t, "apply", "-k", "default")
	s.run(t, operator.Options{Images: released, InitialSpec: map[string]any{"attachMode": "Coexist"}})
	s.awaitAny(t, event, namespace, "an event of the operator's Deployment asks for the VolumeManager",
		func(o *unstructured.Unstructured) bool {
			note, _, err := unstructured.NestedString(o.Object, "note")
			name, _, _ := unstructured.NestedString(o.Object, "regarding", "name")
			return err == nil && o.Object["reason"] == "InstallationFound" && name == "hawser-operator" &&
				strings.Contains(note, "Create VolumeManager cluster with the attach mode")
		})
	if got := s.daemonSet(t); got.ResourceVersion != before.ResourceVersion {
		t.Errorf("the DaemonSet is at version %s before there is a VolumeManager, want %s", got.ResourceVersion,
			before.ResourceVersion)
	}

	vm := &volumesv1alpha1.VolumeManager{}
	vm.Name, vm.Spec.AttachMode, vm.Spec.NodeSelector = "cluster", volumesv1alpha1.AttachReplace,
		map[string]string{"pool": "storage"}
	vm.Spec.NetworkPolicy = volumesv1alpha1.ManagedNone
	check(t, s.admin.Create(t.Context(), vm))
	s.await(t, daemonSet, namespace, "hawser-agent", "the operator has taken it over",
		func(o *unstructured.Unstructured) bool {
			return o.GetLabels()["app.kubernetes.io/managed-by"] == "hawser-operator"
		})
	after := s.daemonSet(t)
	if after.UID != before.UID || after.Generation != before.Generation {
		t.Errorf("the DaemonSet was changed: UID %s, generation %d; before UID %s, generation %d",
			after.UID, after.Generation, before.UID, before.Generation)
	}
	var all appsv1.DaemonSetList
	check(t, s.admin.List(t.Context(), &all))
	if len(all.Items) != 1 {
		t.Errorf("there are %d DaemonSets, want the one that was there", len(all.Items))
	}
	// What kubectl and another tool applied is the operator's now, so that it goes when the VolumeManager does not ask for
	// it.
	without := func(field ...string) func(*unstructured.Unstructured) bool {
		return func(o *unstructured.Unstructured) bool {
			_, found, err := unstructured.NestedString(o.Object, append([]string{"spec", "template", "spec"}, field...)...)
			return err == nil && !found
		}
	}
	s.await(t, deployment, namespace, "hawser-manager", "the runtime class of the other tool goes",
		without("runtimeClassName"))
	s.change(t, `{"nodeSelector":null}`)
	s.await(t, daemonSet, namespace, "hawser-agent", "the node selector of kubectl goes", without("nodeSelector", "pool"))
}

// TestOptionalRightsOfAnInstallationOfKubectlDoNotStay continues one that had every option with a spec that has none.
func TestOptionalRightsOfAnInstallationOfKubectlDoNotStay(t *testing.T) {
	s := newServer(t)
	options := apiserver.Kustomization{Resources: []string{"standalone"},
		Components: []string{"replace", "forget-gone-nodes", "node-writes"}}.Write(t)
	s.kubectl(t, "apply", "-k", options)
	s.kubectl(t, "apply", "-k", "default")
	// A person may have bound the role to another account.
	s.kubectl(t, "patch", "clusterrolebinding", "hawser-forget-gone-nodes", "--type=json", "-p",
		`[{"op":"replace","path":"/subjects/0/name","value":"another"}]`)
	s.run(t, operator.Options{Images: released})
	create := func() {
		vm := &volumesv1alpha1.VolumeManager{}
		vm.Name = "cluster"
		check(t, s.admin.Create(t.Context(), vm))
		s.awaitMark(t, volumeManager, "", "cluster", "0")
	}
	create()
	s.awaitCondition(t, "Progressing", "True", "RollingOut", "")
	s.await(t, clusterRoleBinding, "", "hawser-replace", "the manager that runs still needs its right", there)
	s.playManager(t, 2, 2, 2)
	for _, name := range []string{"hawser-replace", "hawser-node-writes"} {
		s.awaitGone(t, clusterRole, "", name, "the spec does not ask for it")
		s.awaitGone(t, clusterRoleBinding, "", name, "the spec does not ask for it")
	}
	s.awaitEvent(t, "Pruned", "ClusterRoleBinding hawser-replace")
	s.await(t, clusterRoleBinding, "", "hawser-forget-gone-nodes", "it is of another account", there)

	// A VolumeManager that goes before the manager was replaced takes them with it.
	s.kubectl(t, "delete", "hvm", "cluster", "--wait=false")
	s.awaitGone(t, volumeManager, "", "cluster", "nothing is in use")
	s.kubectl(t, "apply", "-k", options)
	create()
	s.kubectl(t, "delete", "hvm", "cluster", "--wait=false")
	s.awaitGone(t, volumeManager, "", "cluster", "nothing is in use")
	for _, name := range []string{"hawser-replace", "hawser-node-writes", "hawser-forget-gone-nodes"} {
		s.awaitGone(t, clusterRole, "", name, "nothing of Hawser stays")
		s.awaitGone(t, clusterRoleBinding, "", name, "nothing of Hawser stays")
	}
}

func (s server) daemonSet(t *testing.T) *appsv1.DaemonSet {
	t.Helper()
	object := &appsv1.DaemonSet{}
	check(t, s.admin.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "hawser-agent"}, object))
	return object
}

// TestTheOperatorStartsBeforeItsKinds begins without the kinds of Hawser, and without images.
func TestTheOperatorStartsBeforeItsKinds(t *testing.T) {
	s := newServer(t)
	// A kind that is deleted soon after it was created may stay for five minutes, until the API server's next resync.
	s.kubectl(t, "apply", "-k", "namespace")
	s.kubectl(t, "apply", "-k", "operator")
	stop := s.run(t, operator.Options{})
	s.kubectl(t, "apply", "-k", "crd")
	s.await(t, binding, "", "hawser-hold", "the operator begins once the kinds are there", there)
	s.awaitCondition(t, "Degraded", "True", "ImageMissing",
		"neither spec.images.manager nor the operator's environment variable RELATED_IMAGE_MANAGER names an image; neither "+
			"spec.images.agent nor the operator's environment variable RELATED_IMAGE_AGENT names an image")
	s.change(t, `{"images":{"manager":"example.com/manager:v1","agent":"example.com/agent:v1"}}`)
	s.await(t, daemonSet, namespace, "hawser-agent", "it comes with its image", there)
	s.awaitCondition(t, "Degraded", "False", "AsExpected", "")

	// A new process removes an installation whose VolumeManager was deleted while no operator ran. The process after it
	// does not make another VolumeManager.
	stop()
	vm := &volumesv1alpha1.VolumeManager{}
	vm.Name = "cluster"
	check(t, s.admin.Delete(t.Context(), vm))
	stop = s.run(t, operator.Options{Images: released})
	s.awaitGone(t, volumeManager, "", "cluster", "nothing is in use, so that it goes")
	s.awaitGone(t, binding, "", "hawser-hold", "the installation is gone before")
	stop()
	s.run(t, operator.Options{Images: released})
	other := &volumesv1alpha1.VolumeManager{}
	other.Name, other.Spec.Manager.Replicas = "cluster", ptr.To(int32(1))
	check(t, s.admin.Create(t.Context(), other, &client.CreateOptions{}))
	s.await(t, deployment, namespace, "hawser-manager", "the one of the user counts",
		func(o *unstructured.Unstructured) bool {
			replicas, _, err := unstructured.NestedInt64(o.Object, "spec", "replicas")
			return err == nil && replicas == 1
		})
}
