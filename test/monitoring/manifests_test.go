/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package monitoring

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
)

const (
	exporterName = "hawser-kube-state-metrics"
	hawserSystem = "hawser-system"
)

// overlay is a kustomization with the components.
func overlay(t *testing.T, components ...string) string {
	t.Helper()
	dir := t.TempDir()
	config, err := filepath.Rel(dir, filepath.Join(apiserver.Root(), "config"))
	if err != nil {
		t.Fatal(err)
	}
	text := "resources: [" + config + "/namespace]\ncomponents:\n"
	for _, component := range components {
		text += "- " + config + "/" + component + "\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestTheAccountOfTheManifestsIsEnoughForKubeStateMetrics(t *testing.T) {
	if _, err := os.Stat(program); err != nil {
		t.Skipf("LEFT OUT (needs %s; make test builds it)", program)
	}
	config, api := apiserver.Start(t)
	apiserver.Kubectl(t, kubeconfig(t, config), "", "apply", "--server-side", "-k",
		overlay(t, "kube-state-metrics", "grafana"))

	deployment := &appsv1.Deployment{}
	get := func(object client.Object, name string) {
		t.Helper()
		if err := api.Get(t.Context(), client.ObjectKey{Namespace: hawserSystem, Name: name}, object); err != nil {
			t.Fatalf("reading %T %s: %v", object, name, err)
		}
	}
	get(deployment, exporterName)
	pod := deployment.Spec.Template.Spec
	mounted := &corev1.ConfigMap{}
	get(mounted, pod.Volumes[0].ConfigMap.Name)
	if mounted.Data["custom-resource-state.yaml"] == "" {
		t.Errorf("ConfigMap %s has the keys %v, want custom-resource-state.yaml", mounted.Name, mounted.Data)
	}
	dashboard := &corev1.ConfigMap{}
	get(dashboard, "hawser-dashboard")
	if dashboard.Labels["grafana_dashboard"] != "1" ||
		!strings.Contains(dashboard.Data["hawser.json"], `"uid": "hawser"`) {
		t.Errorf("ConfigMap of the dashboard has the labels %v, want grafana_dashboard and the dashboard", dashboard.Labels)
	}

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: hawserSystem,
		Name: pod.ServiceAccountName}}
	token := &authenticationv1.TokenRequest{}
	if err := api.SubResource("token").Create(t.Context(), account, token); err != nil {
		t.Fatalf("creating a token of account %s: %v", account.Name, err)
	}
	e := export(t, &rest.Config{Host: config.Host, BearerToken: token.Status.Token,
		TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData}})
	state := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	if err := api.Create(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	state.Status.Conditions = []metav1.Condition{condition("Ready", metav1.ConditionTrue, "Ready")}
	if err := api.Status().Update(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	e.await(t, "a node, under the account of the manifests",
		`hawser_node_condition_reason{condition="Ready",node="n1",reason="Ready",status="True"}`,
		`hawser_node_ready{node="n1",status="True"}`)
}

func TestTheManifestsNameTheVersionThatIsTested(t *testing.T) {
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(apiserver.Root(), name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	module := regexp.MustCompile(`k8s\.io/kube-state-metrics/v2 (v[0-9.]+)`).
		FindStringSubmatch(read("hack/tools/kube-state-metrics/go.mod"))
	if module == nil {
		t.Fatal("go.mod of kube-state-metrics names no version, want one")
	}
	if image := "kube-state-metrics:" + module[1] + "\n"; !strings.Contains(
		read("config/kube-state-metrics/deployment.yaml"), image) {
		t.Errorf("deployment.yaml does not have the image %q, want the version of the module", image)
	}
}
