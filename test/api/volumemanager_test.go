/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package api

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// newVolumeManager is one with defaults, with the changes made to it.
func newVolumeManager(t *testing.T, name string, with changes) *unstructured.Unstructured {
	t.Helper()
	vm := &unstructured.Unstructured{Object: map[string]any{}}
	vm.SetGroupVersionKind(volumesv1alpha1.GroupVersion.WithKind("VolumeManager"))
	vm.SetName(name)
	with.apply(t, vm)
	return vm
}

// fenceSource is one that proves that, with these fields.
func fenceSource(proves string, fields ...string) changes {
	source := map[string]any{"name": "s", "version": "v1", "resource": "fences", "holds": "true", "proves": proves}
	for _, field := range fields {
		source[field] = "''"
		if field == "clients" {
			source[field] = map[string]any{"version": "v1", "resource": "clients", "nodeName": "''", "driver": "''",
				"addresses": "[]"}
		}
	}
	return changes{"spec.fencing": map[string]any{"sources": []any{source}}}
}

func (s server) testCreateVolumeManager(t *testing.T) {
	for _, test := range []struct {
		name, object string
		with         changes
		message      string
	}{
		{"defaults are accepted", "cluster", nil, ""},
		{"another name", "second", nil, "the only VolumeManager of a cluster is named cluster"},
		{"an unknown attach mode", "cluster", changes{"spec.attachMode": "Both"}, `supported values: "Coexist", "Replace"`},
		{"Replace without pod intents", "cluster", changes{"spec.attachMode": "Replace", "spec.podIntents": "Never"},
			"attachMode Replace needs the intents of pods"},
		{"Coexist without pod intents", "cluster", changes{"spec.podIntents": "Never"}, ""},
		{"agents elsewhere than on Linux", "cluster",
			changes{"spec.nodeSelector": map[string]any{"kubernetes.io/os": "windows"}}, "agents run on Linux only"},
		{"agents on a pool", "cluster", changes{"spec.nodeSelector": map[string]any{"pool": "a"}}, ""},
		{"a relative kubelet root", "cluster", changes{"spec.kubeletRoot": "var/lib/kubelet"},
			"kubeletRoot must be an absolute"},
		{"a kubelet root that goes up", "cluster", changes{"spec.kubeletRoot": "/var/../kubelet"},
			"kubeletRoot must be an absolute"},
		{"a root directory with a final slash", "cluster", changes{"spec.rootDirectory": "/var/lib/hawser/"},
			"rootDirectory must be an absolute"},
		{"a root directory in the kubelet's", "cluster", changes{"spec.rootDirectory": "/var/lib/kubelet/hawser"},
			"rootDirectory and kubeletRoot must not contain each other"},
		{"a force too early", "cluster", changes{"spec.detach.podForceDetachAfter": "30s"},
			"podForceDetachAfter must be a duration from 1m to 720h"},
		{"a force in words", "cluster", changes{"spec.detach.podForceDetachAfter": "soon"},
			"podForceDetachAfter must be a duration from 1m to 720h"},
		{"forgetting too early", "cluster", changes{"spec.detach.forgetGoneNodesAfter": "59m"},
			"forgetGoneNodesAfter must be a duration from 1h to 8760h"},
		{"a fence source of a machine", "cluster", fenceSource("PowerOff", "nodeName"), ""},
		{"one by provider ID", "cluster", fenceSource("InstanceGone", "providerID"), ""},
		{"one by both", "cluster", fenceSource("PowerOff", "nodeName", "providerID"), "by either nodeName or providerID"},
		{"one by neither", "cluster", fenceSource("PowerOff"), "by either nodeName or providerID"},
		{"one with a driver", "cluster", fenceSource("PowerOff", "nodeName", "driver"),
			"only a source that proves AccessCut"},
		{"one with clients", "cluster", fenceSource("PowerOff", "nodeName", "clients"),
			"only a source that proves AccessCut"},
		{"one that covers volumes", "cluster", fenceSource("PowerOff", "nodeName", "covers"),
			"only a source that proves AccessCut"},
		{"a fence source of access", "cluster", fenceSource("AccessCut", "driver", "addresses", "clients"), ""},
		{"one that covers some volumes", "cluster", fenceSource("AccessCut", "driver", "addresses", "clients", "covers"), ""},
		{"one of access without a driver", "cluster", fenceSource("AccessCut", "addresses", "clients"),
			"has driver, addresses and clients"},
		{"one of access without addresses", "cluster", fenceSource("AccessCut", "driver", "clients"),
			"has driver, addresses and clients"},
		{"one of access without clients", "cluster", fenceSource("AccessCut", "driver", "addresses"),
			"has driver, addresses and clients"},
		{"one of access to a node", "cluster", fenceSource("AccessCut", "driver", "addresses", "clients", "nodeName"),
			"has neither nodeName nor providerID"},
		{"one of something else", "cluster", fenceSource("Hope", "nodeName"), `supported values: "PowerOff"`},
		{"detach defaults", "cluster", changes{"spec.detach.podForceDetachAfter": "6m",
			"spec.detach.forgetGoneNodesAfter": "24h"},
			""},
		{"a verification, as an earlier release took it", "cluster", changes{"spec.verification.period": "1m0s",
			"spec.verification.endpoints": []any{map[string]any{"driver": "a.example", "socket": "/run/a/csi.sock"}}}, ""},
		{"no replica", "cluster", changes{"spec.manager.replicas": int64(0)}, "should be greater than or equal to 1"},
		{"no node budget", "cluster", changes{"spec.agent.maxUnavailable": int64(0)},
			"maxUnavailable must be a number of at least 1"},
		{"a node budget of nothing", "cluster", changes{"spec.agent.maxUnavailable": "0%"}, "a percentage from 1% to 100%"},
		{"a node budget in percent", "cluster", changes{"spec.agent.maxUnavailable": "25%"}, ""},
		{"a driver timeout of nothing", "cluster", changes{"spec.agent.driverTimeout": "0s"},
			"driverTimeout must be a duration from 10s to 1h"},
		{"figures too often", "cluster", changes{"spec.agent.statsPeriod": "1s"},
			"statsPeriod must be a duration from 10s to 24h"},
		{"an unknown log level", "cluster", changes{"spec.logLevel": "Loud"}, `supported values: "Error", "Info", "Debug"`},
		{"a Secret with a path", "cluster", changes{"spec.metricsCertificateSecret": "a/b"},
			"metricsCertificateSecret must be the name of a Secret"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := s.client.Create(t.Context(), newVolumeManager(t, test.object, test.with), client.DryRunAll)
			switch {
			case test.message == "" && err != nil:
				t.Errorf("want it accepted, got: %v", err)
			case test.message != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.message)):
				t.Errorf("want it refused with %q, got: %v", test.message, err)
			}
		})
	}
}

func (s server) testVolumeManagerDefaults(t *testing.T) {
	vm := &volumesv1alpha1.VolumeManager{}
	vm.Name = volumesv1alpha1.VolumeManagerName
	s.create(t, vm)
	t.Cleanup(func() { _ = s.client.Delete(t.Context(), vm) })
	spec := vm.Spec
	if spec.AttachMode != "Coexist" || spec.PodIntents != "Auto" || spec.KubeletRoot != "/var/lib/kubelet" ||
		spec.RootDirectory != "/var/lib/hawser" || spec.LogLevel != "Info" || spec.NetworkPolicy != "Managed" ||
		spec.Monitoring != "Managed" || spec.Removal != "Refuse" || *spec.Manager.Replicas != 2 ||
		spec.Tolerations != nil || spec.Images.Manager != "" {
		t.Errorf("defaults: %+v", spec)
	}
	vm.Spec.RootDirectory = "/data/hawser"
	err := s.client.Update(t.Context(), vm)
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "rootDirectory cannot be changed") {
		t.Errorf("another root directory: want it refused, got: %v", err)
	}
	vm.Spec.RootDirectory, vm.Spec.KubeletRoot = "/var/lib/hawser", "/data/kubelet"
	if err := s.client.Update(t.Context(), vm); err != nil {
		t.Errorf("another kubelet root: want it accepted, got: %v", err)
	}
}
