/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package images

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/bundle/layout"
	"github.com/hawser-io/hawser/test/system"
)

// testBundle installs what OLM makes of the bundle, in a namespace of the administrator's, and removes it as
// docs/remove.md documents for OLM. The deletion of a ClusterExtension deletes everything of the bundle.
func (s suite) testBundle(t *testing.T, before inventory) {
	namespace, err := layout.Namespace(layout.Own(), "storage-system")
	check(t, err)
	s.create(t, namespace)
	objects, err := layout.Objects(layout.Own(), namespace.Name)
	check(t, err)
	for _, object := range objects {
		if object.GetKind() == "Deployment" {
			s.configure(t, object, imported)
		}
		check(t, s.Client.Apply(limited(t), client.ApplyConfigurationFromUnstructured(object.DeepCopy()),
			client.FieldOwner("olm")))
	}
	s.awaitInstalled(t)
	intent := s.publishIntent(t)
	check(t, s.Client.Delete(limited(t), intent))
	s.explain(t, s.AwaitGone(limited(t), intent.Namespace, intent.Name))
	s.awaitUnused(t)
	s.testBundleFirst(t, objects)
	s.expectNeeded(t, "Namespace", namespace.DeepCopy())
	s.kubectl(t, "delete", "volumemanager", "cluster", "--timeout=2m")
	s.deleteBundle(t, objects, namespace)
	s.expectAsBefore(t, before)
}

// configure sets the initial spec, as the configuration of a ClusterExtension may, and replaces the images.
func (s suite) configure(t *testing.T, object *unstructured.Unstructured, image func(string) string) {
	t.Helper()
	containers, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
	check(t, err)
	container := containers[0].(map[string]any)
	container["image"] = image(container["image"].(string))
	for _, variable := range container["env"].([]any) {
		variable := variable.(map[string]any)
		switch name := variable["name"].(string); {
		case name == "INITIAL_SPEC":
			variable["value"] = s.initialSpec(t, volumesv1alpha1.AttachCoexist)
		case strings.HasPrefix(name, "RELATED_IMAGE_"):
			variable["value"] = image(variable["value"].(string))
		}
	}
	check(t, unstructured.SetNestedSlice(object.Object, containers, "spec", "template", "spec", "containers"))
}

// imported is the image under the tag of make images.
func imported(image string) string {
	name, _, _ := strings.Cut(image, ":")
	return name + ":dev"
}

// awaitUnused waits until the VolumeManager may be deleted without Drain.
func (s suite) awaitUnused(t *testing.T) {
	t.Helper()
	_, err := system.Await(limited(t), s.System, &volumesv1alpha1.VolumeManagerList{},
		client.ObjectKey{Name: volumesv1alpha1.VolumeManagerName}, func(vm *volumesv1alpha1.VolumeManager) bool {
			return vm != nil && vm.Labels[volumesv1alpha1.InUseLabel] == "0"
		})
	s.explain(t, err)
}

// testBundleFirst deletes what Hawser needs while the VolumeManager is there.
func (s suite) testBundleFirst(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	refused := 0
	for _, object := range objects {
		switch object.GetKind() {
		case "CustomResourceDefinition", "Deployment", "ServiceAccount", "Role", "RoleBinding":
		default:
			continue
		}
		refused++
		s.expectNeeded(t, object.GetKind(), object.DeepCopy())
	}
	if refused < 7 {
		t.Errorf("%d objects of the bundle were tried, want at least three kinds and four of the operator", refused)
	}
}

// expectNeeded deletes an object, which has to be refused.
func (s suite) expectNeeded(t *testing.T, kind string, object client.Object) {
	t.Helper()
	err := s.Client.Delete(limited(t), object)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "Delete VolumeManager cluster first") {
		t.Errorf("deleting %s %s before the VolumeManager: error %v, want it forbidden with the right order", kind,
			object.GetName(), err)
	}
}

func (s suite) deleteBundle(t *testing.T, objects []*unstructured.Unstructured, namespace *corev1.Namespace) {
	t.Helper()
	for _, object := range slices.Backward(objects) {
		check(t, s.Client.Delete(limited(t), object, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	}
	s.deleteNamespace(t, namespace)
}

// deleteNamespace deletes the administrator's namespace. No event signals that the API server has forgotten the policy
// hawser-namespace, which refuses it for about a second more.
func (s suite) deleteNamespace(t *testing.T, namespace *corev1.Namespace) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(limited(t), 100*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			last = s.Client.Delete(ctx, namespace.DeepCopy())
			if apierrors.IsForbidden(last) && strings.Contains(last.Error(), "Delete VolumeManager cluster first") {
				return false, nil
			}
			return true, last
		})
	if err != nil {
		t.Fatalf("deleting namespace %s after the VolumeManager: error %v, last answer %v", namespace.Name, err, last)
	}
	s.kubectl(t, "wait", "--for=delete", "--timeout=2m", "namespace/"+namespace.Name)
}
