/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package preflight

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hawser-io/hawser/config"
)

// Release is what this release installs. The checks take from its manifests what they compare with.
type Release struct {
	// Kinds of all objects, and those that the programs read or write beside them.
	Kinds []schema.GroupVersionKind
	// Agent is the template of the agents' pods.
	Agent corev1.PodTemplateSpec
	// Namespace of the installation with its labels.
	Namespace *unstructured.Unstructured
	// Policies are the admission policies and their bindings.
	Policies []*unstructured.Unstructured
	// APIPorts are those that the NetworkPolicy allows, DNS left out.
	APIPorts []int32
}

// admission is the API version of the admission policies.
const admission = "admissionregistration.k8s.io/v1"

// beside are kinds that the manifests do not contain.
var beside = map[string][]string{
	"apiextensions.k8s.io/v1":  {"CustomResourceDefinition"},
	"coordination.k8s.io/v1":   {"Lease"},
	"events.k8s.io/v1":         {"Event"},
	"storage.k8s.io/v1":        {"VolumeAttachment", "CSINode", "StorageClass"},
	"authentication.k8s.io/v1": {"TokenReview"},
	"authorization.k8s.io/v1":  {"SubjectAccessReview"},
}

// mutating reports whether a kind is one that clusters before Kubernetes 1.36 do not have.
func mutating(kind string) bool { return strings.HasPrefix(kind, "MutatingAdmissionPolicy") }

// Load reads the manifests.
func Load() (*Release, error) {
	r := &Release{}
	for apiVersion, kinds := range beside {
		for _, kind := range kinds {
			r.Kinds = append(r.Kinds, schema.FromAPIVersionAndKind(apiVersion, kind))
		}
	}
	for _, directory := range []string{"standalone", "networkpolicy"} {
		objects, err := config.Load(config.Manifests, directory)
		if err != nil {
			return nil, fmt.Errorf("reading the manifests of %s: %w", directory, err)
		}
		for _, object := range objects {
			if err := r.add(object); err != nil {
				return nil, fmt.Errorf("reading %s %s: %w", object.GetKind(), object.GetName(), err)
			}
		}
	}
	slices.SortFunc(r.Kinds, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	r.Kinds = slices.Compact(r.Kinds)
	return r, nil
}

// add takes from an object what is compared.
func (r *Release) add(object *unstructured.Unstructured) error {
	r.Kinds = append(r.Kinds, object.GroupVersionKind())
	switch kind := object.GetKind(); {
	case object.GetAPIVersion() == admission:
		r.Policies = append(r.Policies, object)
	case kind == KindNamespace:
		r.Namespace = object
	case kind == KindDaemonSet:
		var agent appsv1.DaemonSet
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &agent); err != nil {
			return err
		}
		r.Agent = agent.Spec.Template
	case kind == "NetworkPolicy":
		var policy networkingv1.NetworkPolicy
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &policy); err != nil {
			return err
		}
		for _, rule := range policy.Spec.Egress {
			if len(rule.To) > 0 {
				continue // DNS
			}
			for _, port := range rule.Ports {
				r.APIPorts = append(r.APIPorts, port.Port.IntVal)
			}
		}
	}
	return nil
}

// hostPorts are the ports of the agents, which use the network of their hosts.
func (r *Release) hostPorts() map[int32]string {
	ports := map[int32]string{}
	for _, c := range r.Agent.Spec.Containers {
		for _, p := range c.Ports {
			ports[p.ContainerPort] = p.Name
		}
	}
	return ports
}

// AgentPod is a pod that asks for what the agents do, for a dry run. Its account is the default one: that of the agents
// does not exist yet. The priority class has a check of its own, the quota that comes with the namespace.
func (r *Release) AgentPod(namespace string) *corev1.Pod {
	pod := &corev1.Pod{Spec: *r.Agent.Spec.DeepCopy()}
	pod.Namespace, pod.GenerateName = namespace, "hawser-preflight-"
	pod.Spec.ServiceAccountName, pod.Spec.PriorityClassName = "default", ""
	return pod
}
