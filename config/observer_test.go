/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package config_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/hawser-io/hawser/test/apiserver"
)

// TestTheMonitorOfTheObserverFindsItsServiceAndToken in what kubectl renders of config/observer-monitoring.
func TestTheMonitorOfTheObserverFindsItsServiceAndToken(t *testing.T) {
	var objects []*unstructured.Unstructured
	for document := range strings.SplitSeq(apiserver.Kubectl(t, "", "", "kustomize", "observer-monitoring"), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
	find(t, objects, "Deployment", "hawser-observer")
	find(t, objects, "PrometheusRule", "hawser-observer")
	find(t, objects, "Secret", "hawser-observer-scraper")
	service := decode[corev1.Service](t, find(t, objects, "Service", "hawser-observer-metrics"))
	monitor := find(t, objects, "ServiceMonitor", "hawser-observer")
	selector, _, _ := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
	for key, value := range selector {
		if service.Labels[key] != value {
			t.Errorf("the monitor selects %s=%s, the Service has %q", key, value, service.Labels[key])
		}
	}
	endpoints, _, _ := unstructured.NestedSlice(monitor.Object, "spec", "endpoints")
	for _, e := range endpoints {
		endpoint := e.(map[string]any)
		secret, _, _ := unstructured.NestedString(endpoint, "authorization", "credentials", "name")
		if port := endpoint["port"]; secret != "hawser-observer-scraper" || !slices.ContainsFunc(service.Spec.Ports,
			func(p corev1.ServicePort) bool { return p.Name == port }) {
			t.Errorf("the monitor has port %v and Secret %s, want a port of the Service and its scraper's", port, secret)
		}
	}
	if len(selector) == 0 || len(endpoints) == 0 {
		t.Errorf("the monitor has %d labels and %d endpoints, want some", len(selector), len(endpoints))
	}
}
