/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package bundle

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	// The test runs the operator as a program. With the import, a change of it makes the cached result invalid.
	_ "github.com/hawser-io/hawser/internal/operator"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/bundle/layout"
)

const account = "hawser-operator"

// cluster is an API server with a bundle in one of its namespaces.
type cluster struct {
	config    *rest.Config
	admin     client.WithWatch
	namespace string
}

// TestTheBundleComesUpInAnyNamespace applies what OLM makes of the bundle and runs the operator under its account. Both
// namespaces must get the same objects.
func TestTheBundleComesUpInAnyNamespace(t *testing.T) {
	program := build(t)
	installed := map[string][]string{}
	for name, namespace := range map[string]string{
		"the suggested namespace": volumesv1alpha1.InstallNamespace, "another one": "storage-system",
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster{namespace: namespace}
			c.config, c.admin = apiserver.Start(t)
			c.install(t)
			c.testRightsEndAtItsNamespace(t)
			c.run(t, program)
			c.awaitInstalled(t)
			installed[namespace] = c.objects(t)
		})
	}
	suggested, other := installed[volumesv1alpha1.InstallNamespace], installed["storage-system"]
	// The suggested namespace has the mark, another one gets a policy instead.
	want := append(slices.Clone(suggested), "ValidatingAdmissionPolicy hawser-namespace",
		"ValidatingAdmissionPolicyBinding hawser-namespace")
	slices.Sort(want)
	slices.Sort(other)
	if len(suggested) == 0 || !slices.Equal(want, other) {
		t.Errorf("objects of the operator in another namespace:\n%q\nwant those of the suggested one, and the policy:\n%q",
			other, want)
	}
}

// build builds the operator.
func build(t *testing.T) string {
	t.Helper()
	if os.Getenv(apiserver.AssetsVariable) == "" {
		t.Skipf("LEFT OUT (needs %s, a directory with kube-apiserver; make test builds it)", apiserver.AssetsVariable)
	}
	program := filepath.Join(t.TempDir(), "operator")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/operator")
	cmd.Dir = apiserver.Root()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the operator: %v\n%s", err, out)
	}
	return program
}

// install creates the namespace as the bundle suggests it, and applies the bundle.
func (c cluster) install(t *testing.T) {
	t.Helper()
	namespace, err := layout.Namespace(layout.Own(), c.namespace)
	check(t, err)
	check(t, c.admin.Create(t.Context(), namespace))
	objects, err := layout.Objects(layout.Own(), c.namespace)
	check(t, err)
	for _, object := range objects {
		if err := c.admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object),
			client.FieldOwner("olm")); err != nil {
			t.Fatalf("applying %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
}

// testRightsEndAtItsNamespace lists ConfigMaps as the operator: its Role is one of its own namespace.
func (c cluster) testRightsEndAtItsNamespace(t *testing.T) {
	operator, err := client.New(apiserver.ServiceAccount(c.config, c.namespace, account),
		client.Options{Scheme: apiserver.Scheme()})
	check(t, err)
	if err := operator.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(c.namespace)); err != nil {
		t.Errorf("listing ConfigMaps in the operator's namespace: %v, want it allowed", err)
	}
	err = operator.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace("default"))
	if !apierrors.IsForbidden(err) {
		t.Errorf("listing ConfigMaps in another namespace: %v, want it forbidden", err)
	}
}

// run runs the operator with the environment of its Deployment until the test ends.
func (c cluster) run(t *testing.T, program string) {
	t.Helper()
	deployment := &appsv1.Deployment{}
	check(t, c.admin.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: account}, deployment))
	pod := deployment.Spec.Template.Spec
	if pod.ServiceAccountName != account {
		t.Fatalf("the Deployment's account is %s, want %s", pod.ServiceAccountName, account)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "--leader-elect", "--metrics-bind-address=0", "--health-probe-bind-address=0")
	cmd.Env = append(os.Environ(), "POD_NAMESPACE="+c.namespace,
		"KUBECONFIG="+apiserver.Kubeconfig(t, apiserver.ServiceAccount(c.config, c.namespace, account)))
	for _, variable := range pod.Containers[0].Env {
		if variable.ValueFrom == nil {
			cmd.Env = append(cmd.Env, variable.Name+"="+variable.Value)
		}
	}
	var output bytes.Buffer
	cmd.Stderr = &output
	check(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the operator printed:\n%s", output.String())
		}
	})
}

// awaitInstalled waits until everything is applied: no controller rolls it out here.
func (c cluster) awaitInstalled(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// A watch without a version begins with what is there.
	w, err := c.admin.Watch(ctx, &volumesv1alpha1.VolumeManagerList{})
	check(t, err)
	defer w.Stop()
	var last *volumesv1alpha1.VolumeManager
	for event := range w.ResultChan() {
		if vm, is := event.Object.(*volumesv1alpha1.VolumeManager); is {
			last = vm
		}
		if last != nil && meta.IsStatusConditionFalse(last.Status.Conditions, volumesv1alpha1.ConditionDegraded) &&
			meta.IsStatusConditionTrue(last.Status.Conditions, volumesv1alpha1.ConditionProgressing) {
			return
		}
	}
	t.Fatalf("the VolumeManager after a minute: %+v, want it Progressing and not Degraded", last)
}

// objects lists what the operator has applied in its namespace and in none, by kind and name.
func (c cluster) objects(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, kind := range []schema.GroupVersionKind{
		{Group: "apps", Version: "v1", Kind: "Deployment"}, {Group: "apps", Version: "v1", Kind: "DaemonSet"},
		{Version: "v1", Kind: "ServiceAccount"}, {Version: "v1", Kind: "Service"},
		{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
		{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
		{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Kind: "FlowSchema"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicy"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicyBinding"},
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		check(t, c.admin.List(t.Context(), list, client.MatchingLabels{"app.kubernetes.io/managed-by": "hawser-operator"}))
		for _, object := range list.Items {
			if ns := object.GetNamespace(); ns != metav1.NamespaceNone && ns != c.namespace {
				t.Errorf("%s %s is in namespace %s, want %s", kind.Kind, object.GetName(), ns, c.namespace)
			}
			names = append(names, kind.Kind+" "+object.GetName())
		}
	}
	slices.Sort(names)
	return names
}
