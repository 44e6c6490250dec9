/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package bundle

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
)

const (
	keepAnnotation = "helm.sh/resource-policy"
	kindOfCRD      = "CustomResourceDefinition"
	managersCRD    = "volumemanagers.volumes.hawser.io"
)

var chart = filepath.Join(apiserver.Root(), "charts", "hawser")

// helm runs the real helm, which make builds.
func helm(t *testing.T, kubeconfig string, args ...string) (string, error) {
	t.Helper()
	program := filepath.Join(apiserver.Root(), ".cache", "tools", "helm")
	if _, err := os.Stat(program); err != nil {
		t.Skipf("LEFT OUT (needs %s; make test builds it)", program)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home,
		"HELM_DATA_HOME="+home)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("helm %s: %w\n%s%s", args[0], err, &stderr, &stdout)
	}
	return stdout.String(), nil
}

// rendered are the objects of the chart with some values.
func rendered(t *testing.T, values ...string) []*unstructured.Unstructured {
	t.Helper()
	out, err := helm(t, os.DevNull, append([]string{"template", "hawser", chart,
		"--namespace=" + volumesv1alpha1.InstallNamespace}, values...)...)
	check(t, err)
	return parsed(t, out)
}

// parsed are the objects of a stream of YAML documents.
func parsed(t *testing.T, documents string) (objects []*unstructured.Unstructured) {
	t.Helper()
	for document := range strings.SplitSeq("\n"+documents, "\n---") {
		object := &unstructured.Unstructured{}
		check(t, yaml.Unmarshal([]byte(document), &object.Object))
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
	return objects
}

func byName(objects []*unstructured.Unstructured) map[string]any {
	named := map[string]any{}
	for _, object := range objects {
		named[object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName()] = object.Object
	}
	return named
}

func TestTheChartAppliesWhatConfigDefaultApplies(t *testing.T) {
	want := byName(parsed(t, apiserver.Kubectl(t, os.DevNull, "", "kustomize", "default")))
	delete(want, "Namespace /"+volumesv1alpha1.InstallNamespace) // helm itself creates it
	objects := rendered(t)
	for _, object := range objects {
		if object.GetKind() != kindOfCRD {
			continue
		}
		annotations := object.GetAnnotations()
		if annotations[keepAnnotation] != "keep" {
			t.Errorf("annotation %s of kind %s: %q, want keep", keepAnnotation, object.GetName(), annotations[keepAnnotation])
		}
		delete(annotations, keepAnnotation)
		object.SetAnnotations(annotations)
	}
	if diff := cmp.Diff(want, byName(objects)); diff != "" || len(want) < 10 {
		t.Errorf("the %d objects of config/default and those of the chart differ (-want +got):\n%s", len(want), diff)
	}
}

func TestTheChartPassesHelmLint(t *testing.T) {
	if _, err := helm(t, os.DevNull, "lint", "--strict", chart); err != nil {
		t.Error(err)
	}
}

// TestEveryValueOfTheChartHasItsEffect sets each value of values.yaml to another than its default.
func TestEveryValueOfTheChartHasItsEffect(t *testing.T) {
	plain := byName(rendered(t))
	for _, value := range []struct{ set, want string }{
		{"images.prefix=registry.example.com:5000/storage", "image: registry.example.com:5000/storage/operator:dev"},
		{"images.tag=v0.2.0", "value: hawser/agent:v0.2.0"},
		{"images.operator=example.com/o@sha256:12", "image: example.com/o@sha256:12"},
		{"images.manager=example.com/m@sha256:12", "value: example.com/m@sha256:12"},
		{"images.agent=example.com/a@sha256:12", "value: example.com/a@sha256:12"},
		{"images.pullPolicy=Always", "imagePullPolicy: Always"},
		{"images.pullSecrets[0].name=registry", "imagePullSecrets:\n      - name: registry"},
		{"initialSpec.attachMode=Replace", `value: '{"attachMode":"Replace"}'`},
		{"crds.keep=false", ""},
		{"crds.install=false", ""},
		{"criticalPodsQuota=false", ""},
		{`serviceAccount.annotations.example\.com/role=storage`, "annotations:\n    example.com/role: storage"},
		{"replicas=2", "replicas: 2"},
		{"resources.limits.memory=1Gi", "memory: 1Gi"},
		{"nodeSelector.pool=storage", "pool: storage"},
		{"tolerations[0].operator=Exists", "tolerations:\n      - operator: Exists"},
		{"affinity.nodeAffinity.a=b", "affinity:\n        nodeAffinity:\n          a: b"},
		{"priorityClassName=important", "priorityClassName: important"},
		{"podLabels.team=storage", "team: storage"},
		{"podAnnotations.note=mine", "note: mine"},
		{"args[0]=--v=2", "- --v=2"},
	} {
		objects := rendered(t, "--set", value.set)
		if cmp.Equal(plain, byName(objects)) {
			t.Errorf("--set %s changes nothing", value.set)
		}
		var all []string
		for _, object := range objects {
			text, err := yaml.Marshal(object.Object)
			check(t, err)
			all = append(all, string(text))
		}
		if !strings.Contains(strings.Join(all, "---\n"), value.want) {
			t.Errorf("--set %s: no %q in what is rendered", value.set, value.want)
		}
	}
}

func TestTheChartRefusesWrongValues(t *testing.T) {
	for set, want := range map[string]string{
		"image.tag=v1":            "additional properties 'image' not allowed",
		"images.tag=a/b":          "images.tag",
		"replicas=many":           "replicas",
		"images.pullPolicy=Often": "images.pullPolicy",
		"crds.keep=perhaps":       "crds.keep",
	} {
		_, err := helm(t, os.DevNull, "template", "hawser", chart, "--set", set)
		// The path has dots or slashes, by version of helm.
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "/", "."), want) {
			t.Errorf("--set %s: error %v, want %q in it", set, err, want)
		}
	}
	_, err := helm(t, os.DevNull, "template", "hawser", chart, "--kube-version=1.34")
	if err == nil || !strings.Contains(err.Error(), "requires kubeVersion: >=1.35.0-0") {
		t.Errorf("Kubernetes 1.34: error %v, want that the chart requires another", err)
	}
}

// TestTheLifeOfAChart installs the chart, upgrades it to one with other kinds and images, and removes it, with the
// operator as a program under its account.
func TestTheLifeOfAChart(t *testing.T) {
	program := build(t)
	c := cluster{namespace: volumesv1alpha1.InstallNamespace}
	c.config, c.admin = apiserver.Start(t)
	kubeconfig := apiserver.Kubeconfig(t, c.config)
	release := []string{"hawser", "--namespace=" + c.namespace}
	run := func(args ...string) {
		t.Helper()
		_, err := helm(t, kubeconfig, args...)
		check(t, err)
	}
	// The API server of the tests has the kinds already, as after an installation with kubectl.
	run(slices.Concat([]string{"install"}, release, []string{chart, "--create-namespace", "--take-ownership"})...)
	c.testRightsEndAtItsNamespace(t)
	c.run(t, program)
	c.awaitInstalled(t)

	run(slices.Concat([]string{"upgrade"}, release, []string{changedChart(t), "--set=images.tag=v0.2.0"})...)
	if got := c.operator(t).Spec.Template.Spec.Containers[0].Image; got != "hawser/operator:v0.2.0" {
		t.Errorf("the operator's image after the upgrade: %s, want hawser/operator:v0.2.0", got)
	}
	if names := c.shortNames(t); !slices.Contains(names, "changed") {
		t.Errorf("short names of kind VolumeManager after the upgrade: %q, want the new one", names)
	}

	c.awaitRefusal(t)
	// Without --debug helm leaves out the reason.
	_, err := helm(t, kubeconfig, slices.Concat([]string{"uninstall", "--debug"}, release)...)
	if err == nil || !strings.Contains(err.Error(), "Delete VolumeManager cluster first") {
		t.Errorf("helm uninstall while there is a VolumeManager: %v, want the right order", err)
	}
	c.expectKept(t)
	run(slices.Concat([]string{"rollback"}, release, []string{"2"})...) // and on with upgrades

	c.removeVolumeManager(t)
	run(append([]string{"uninstall"}, release...)...)
	err = c.admin.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: account}, &appsv1.Deployment{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("reading the operator after the uninstallation: error %v, want it gone", err)
	}
	if names := c.shortNames(t); len(names) == 0 {
		t.Error("kind VolumeManager has gone with the uninstallation, want it kept")
	}
}

// changedChart is a copy of the chart in which a kind has another short name.
func changedChart(t *testing.T) string {
	t.Helper()
	directory := filepath.Join(t.TempDir(), "hawser")
	check(t, os.CopyFS(directory, os.DirFS(chart)))
	file := filepath.Join(directory, "files", "crds", "volumes.hawser.io_volumemanagers.yaml")
	data, err := os.ReadFile(file)
	check(t, err)
	changed := strings.Replace(string(data), "    - hvm\n", "    - hvm\n    - changed\n", 1)
	check(t, os.WriteFile(file, []byte(changed), 0o600))
	return directory
}

// expectKept reads the objects of the chart.
func (c cluster) expectKept(t *testing.T) {
	t.Helper()
	for _, object := range rendered(t) {
		check(t, c.admin.Get(t.Context(), client.ObjectKeyFromObject(object), object))
		if leaving := object.GetDeletionTimestamp(); leaving != nil {
			t.Errorf("%s %s is being deleted, since %s", object.GetKind(), object.GetName(), leaving)
		}
	}
}

func (c cluster) operator(t *testing.T) *appsv1.Deployment {
	t.Helper()
	deployment := &appsv1.Deployment{}
	check(t, c.admin.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: account}, deployment))
	return deployment
}

func (c cluster) shortNames(t *testing.T) []string {
	t.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind(kindOfCRD)
	check(t, c.admin.Get(t.Context(), client.ObjectKey{Name: managersCRD}, crd))
	names, _, err := unstructured.NestedStringSlice(crd.Object, "spec", "names", "shortNames")
	check(t, err)
	return names
}

// awaitRefusal waits until the API server refuses to delete the operator and its account. That has no event.
func (c cluster) awaitRefusal(t *testing.T) {
	t.Helper()
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name = c.namespace, c.operator(t).Name
	for _, object := range []client.Object{c.operator(t), account} {
		check(t, wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true,
			func(ctx context.Context) (bool, error) {
				return apierrors.IsForbidden(c.admin.Delete(ctx, object, client.DryRunAll)), nil
			}))
	}
}

func (c cluster) removeVolumeManager(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	vm := &volumesv1alpha1.VolumeManager{}
	vm.Name = volumesv1alpha1.VolumeManagerName
	w, err := c.admin.Watch(ctx, &volumesv1alpha1.VolumeManagerList{})
	check(t, err)
	defer w.Stop()
	check(t, c.admin.Delete(ctx, vm))
	var last any
	for event := range w.ResultChan() {
		if event.Type == "DELETED" {
			return
		}
		last = event.Object
	}
	t.Fatalf("the VolumeManager a minute after its deletion: %+v, want it gone", last)
}
