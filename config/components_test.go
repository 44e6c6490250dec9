/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/hawser-io/hawser/config"
	"github.com/hawser-io/hawser/internal/metrics/reference"
	"github.com/hawser-io/hawser/test/apiserver"
)

// testNetworkPolicy applies the policy. No network plugin here enforces it.
func (in installation) testNetworkPolicy(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("networkpolicy", "networkpolicy.yaml"))
	expectAllowed(t, err)
	in.kubectlStdin(t, in.renamed(string(text)), "apply", "-f", "-")
	in.kubectlStdin(t, in.renamed(string(text)), "delete", "-f", "-")
}

func TestTheNetworkPolicyNamesThePortsOfTheManager(t *testing.T) {
	objects := withComponent(t, "networkpolicy")
	policy := decode[networkingv1.NetworkPolicy](t, find(t, objects, "NetworkPolicy", "hawser"))
	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	expectAllowed(t, err)
	pods := podTemplates(t, objects)
	manager, agent := pods[managerAccount], pods[agentAccount]
	if !selector.Matches(labels.Set(manager.Labels)) || manager.Spec.HostNetwork {
		t.Errorf("the policy does not cover the manager: host network %t", manager.Spec.HostNetwork)
	}
	if selector.Matches(labels.Set(agent.Labels)) {
		t.Error("the policy selects the agents, whose network it cannot cover")
	}
	var allowed, has []string
	for _, rule := range policy.Spec.Ingress {
		for _, port := range rule.Ports {
			allowed = append(allowed, port.Port.String())
		}
	}
	for _, port := range manager.Spec.Containers[0].Ports {
		has = append(has, port.Name)
	}
	if !slices.Equal(allowed, has) {
		t.Errorf("the manager has the ports %q, the policy allows %q", has, allowed)
	}
}

// TestTheAgentNeedsNoPodNetwork: the network's own pods may wait for a volume.
func TestTheAgentNeedsNoPodNetwork(t *testing.T) {
	agent := podTemplates(t, withComponent(t, "networkpolicy"))[agentAccount].Spec
	if !agent.HostNetwork || agent.DNSPolicy != corev1.DNSDefault {
		t.Errorf("host network %t, DNS %s; want the host's of both", agent.HostNetwork, agent.DNSPolicy)
	}
	container := agent.Containers[0]
	for name, probe := range map[string]*corev1.Probe{"liveness": container.LivenessProbe,
		"readiness": container.ReadinessProbe} {
		if probe.HTTPGet.Host != "127.0.0.1" {
			t.Errorf("the %s probe asks host %q", name, probe.HTTPGet.Host)
		}
	}
	// Probes are plain HTTP without a token: on the host's network only the host itself may ask.
	if !slices.Contains(container.Args, "--health-probe-bind-address=127.0.0.1:9844") {
		t.Errorf("the health endpoint is not bound to the loopback address: %q", container.Args)
	}
}

// TestTheManagerKnowsItsLimitOfMemory: it is the one that the installation sets.
func TestTheManagerKnowsItsLimitOfMemory(t *testing.T) {
	observer := parsed(t, apiserver.Kubectl(t, "", "", "kustomize", "observer"))
	for name, template := range map[string]corev1.PodTemplateSpec{
		"manager":  podTemplates(t, withComponent(t, "networkpolicy"))[managerAccount],
		"observer": decode[appsv1.Deployment](t, find(t, observer, "Deployment", "hawser-observer")).Spec.Template,
	} {
		container := template.Spec.Containers[0]
		if container.Resources.Limits.Memory().IsZero() {
			t.Errorf("the %s has no limit of memory", name)
		}
		if !slices.ContainsFunc(container.Env, func(v corev1.EnvVar) bool {
			return v.Name == "GOMEMLIMIT" && v.ValueFrom != nil && v.ValueFrom.ResourceFieldRef != nil &&
				v.ValueFrom.ResourceFieldRef.Resource == "limits.memory"
		}) {
			t.Errorf("the %s does not know its limit of memory: %v", name, container.Env)
		}
	}
}

func TestTheMonitorsFindTheMetricsOfEachProgram(t *testing.T) {
	objects := withComponent(t, "monitoring")
	pods := podTemplates(t, objects)
	service := decode[corev1.Service](t, find(t, objects, "Service", "hawser-manager-metrics"))
	rendered := parsed(t, apiserver.Kubectl(t, "", "", "kustomize", "operator"))
	operator := decode[appsv1.Deployment](t, find(t, rendered, "Deployment", operatorAccount)).Spec.Template
	for _, monitor := range []struct {
		kind, name, endpoints string
		labels                map[string]string
		port                  string
	}{
		{"ServiceMonitor", managerAccount, "endpoints", service.Labels, service.Spec.Ports[0].Name},
		{"PodMonitor", agentAccount, "podMetricsEndpoints", pods[agentAccount].Labels,
			pods[agentAccount].Spec.Containers[0].Ports[0].Name},
		{"PodMonitor", operatorAccount, "podMetricsEndpoints", operator.Labels,
			operator.Spec.Containers[0].Ports[0].Name},
	} {
		object := find(t, objects, monitor.kind, monitor.name)
		selector, found, err := unstructured.NestedStringMap(object.Object, "spec", "selector", "matchLabels")
		expectAllowed(t, err)
		if !found || !labels.SelectorFromSet(selector).Matches(labels.Set(monitor.labels)) {
			t.Errorf("%s selects %v, not %v", monitor.kind, selector, monitor.labels)
		}
		list, _, err := unstructured.NestedSlice(object.Object, "spec", monitor.endpoints)
		expectAllowed(t, err)
		endpoint := list[0].(map[string]any)
		secret, _, err := unstructured.NestedString(endpoint, "authorization", "credentials", "name")
		expectAllowed(t, err)
		if endpoint["port"] != monitor.port || endpoint["scheme"] != "https" || secret != scraperAccount {
			t.Errorf("%s scrapes %v", monitor.kind, endpoint)
		}
		find(t, objects, "Secret", secret)
	}
}

// TestAMonitorKeepsTheLabelsThatMetricsHaveThemselves: where a target has a label of that name, Prometheus renames the
// one of the metric to exported_..., and the alerts group by that of the target.
func TestAMonitorKeepsTheLabelsThatMetricsHaveThemselves(t *testing.T) {
	objects, err := config.Load(config.Manifests, "monitoring")
	expectAllowed(t, err)
	for _, monitor := range []struct{ kind, name, endpoints, program string }{
		{"ServiceMonitor", managerAccount, "endpoints", "manager"},
		{"PodMonitor", agentAccount, "podMetricsEndpoints", "agent"},
		{"PodMonitor", operatorAccount, "podMetricsEndpoints", "operator"},
	} {
		list, _, err := unstructured.NestedSlice(find(t, objects, monitor.kind, monitor.name).Object, "spec",
			monitor.endpoints)
		expectAllowed(t, err)
		endpoint := list[0].(map[string]any)
		metrics, err := reference.Programs[monitor.program]()
		expectAllowed(t, err)
		ofTarget := labelsOfTargets(t, endpoint)
		for _, metric := range metrics {
			for _, label := range metric.Labels {
				if slices.Contains(ofTarget, label) && endpoint["honorLabels"] != true {
					t.Errorf("the monitor of the %s has the label %s of %s renamed, want honorLabels", monitor.program, label,
						metric.Name)
				}
			}
		}
	}
}

// labelsOfTargets are the labels that the Prometheus operator gives the targets of an endpoint.
func labelsOfTargets(t *testing.T, endpoint map[string]any) []string {
	t.Helper()
	names := []string{"job", "instance", "namespace", "pod", "container", "service", "endpoint"}
	relabelings, _, err := unstructured.NestedSlice(endpoint, "relabelings")
	expectAllowed(t, err)
	for _, relabeling := range relabelings {
		if label, ok := relabeling.(map[string]any)["targetLabel"].(string); ok {
			names = append(names, label)
		}
	}
	return names
}

// podTemplates of both programs.
func podTemplates(t *testing.T, objects []*unstructured.Unstructured) map[string]corev1.PodTemplateSpec {
	t.Helper()
	return map[string]corev1.PodTemplateSpec{
		managerAccount: decode[appsv1.Deployment](t, find(t, objects, "Deployment", managerAccount)).Spec.Template,
		agentAccount:   decode[appsv1.DaemonSet](t, find(t, objects, "DaemonSet", agentAccount)).Spec.Template,
	}
}

// withComponent returns the objects of config/standalone with one of the components.
func withComponent(t *testing.T, component string) []*unstructured.Unstructured {
	t.Helper()
	if os.Getenv(apiserver.AssetsVariable) == "" {
		t.Skipf("LEFT OUT (needs %s, a directory with kubectl; make test builds it)", apiserver.AssetsVariable)
	}
	return parsed(t, apiserver.Kubectl(t, "", "", "kustomize", apiserver.Overlay(t, "standalone", component)))
}

// parsed returns the objects of a YAML stream.
func parsed(t *testing.T, stream string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	for document := range strings.SplitSeq(stream, "\n---\n") {
		object := &unstructured.Unstructured{}
		expectAllowed(t, yaml.Unmarshal([]byte(document), &object.Object))
		objects = append(objects, object)
	}
	return objects
}

func find(t *testing.T, objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, object := range objects {
		if object.GetKind() == kind && object.GetName() == name {
			return object
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
	return nil
}

func decode[T any](t *testing.T, object *unstructured.Unstructured) *T {
	t.Helper()
	typed := new(T)
	expectAllowed(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, typed, true))
	return typed
}
