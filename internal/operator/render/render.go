/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package render

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/config"
	"github.com/hawser-io/hawser/internal/version"
)

const (
	// ManagedByLabel with the value ManagedBy is on every object that the operator applies.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	// ManagedBy is the value of that label, and the field manager.
	ManagedBy = "hawser-operator"
	// HashAnnotation is the hash of what was applied. A field that is not wanted any more changes it.
	HashAnnotation = "volumes.hawser.io/applied"

	// ManagerName is the name of the manager's Deployment.
	ManagerName = "hawser-manager"
	// AgentName is the name of the agents' DaemonSet.
	AgentName = "hawser-agent"
	// NetworkPolicyName is the name of the NetworkPolicy.
	NetworkPolicyName = "hawser"
	// GatingPolicy is the name of the policy that gates pods with inline volumes, and of its binding.
	GatingPolicy = "hawser-pod-placement"

	// refusals is the directory of the policies that refuse new intents and new pods with inline volumes.
	refusals = "draining"
)

// Kinds that not every cluster has.
var (
	ServiceMonitor = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"}
	PodMonitor     = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "PodMonitor"}
	PrometheusRule = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "PrometheusRule"}
	MutatingPolicy = schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1",
		Kind: "MutatingAdmissionPolicy"}
	MutatingPolicyBinding = schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1",
		Kind: "MutatingAdmissionPolicyBinding"}
)

// Monitoring has the kinds of the Prometheus operator. Each may be installed without the others.
var Monitoring = []schema.GroupVersionKind{ServiceMonitor, PodMonitor, PrometheusRule}

// Input of a rendering.
type Input struct {
	Spec volumesv1alpha1.VolumeManagerSpec
	// Namespace of the installation.
	Namespace string
	// Images of both programs. A workload without an image is left out.
	Images volumesv1alpha1.Images
	// Placement of the agents, if it is not the one of the spec.
	Placement *Placement
	// Draining: no volume may come into use any more.
	Draining bool
	// Tainted: a Node carries the taint that the manager has set, and has to remove.
	Tainted bool
	// Serves reports whether the API server has a kind that not every cluster has.
	Serves func(schema.GroupVersionKind) bool
}

// Monitors reports whether the monitors are wanted, and whether the API server has their kinds.
func (in Input) Monitors() (wanted, served bool) {
	return in.Spec.Monitoring != volumesv1alpha1.ManagedNone, in.Serves(ServiceMonitor) && in.Serves(PodMonitor)
}

// Objects of the installation, in the order in which they are applied: workloads come last.
func Objects(in Input) ([]*unstructured.Unstructured, error) {
	return in.objects(in.directories())
}

// Refusals are the policies of an installation that is drained, and their bindings.
func Refusals(namespace string) ([]*unstructured.Unstructured, error) {
	return Input{Namespace: namespace}.objects([]string{refusals})
}

func (in Input) objects(directories []string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, directory := range directories {
		more, err := config.Load(config.Manifests, directory)
		if err != nil {
			return nil, fmt.Errorf("reading the manifests: %w", err)
		}
		objects = append(objects, more...)
	}
	objects = slices.DeleteFunc(objects, in.leftOut)
	for _, object := range objects {
		if err := in.finish(object); err != nil {
			return nil, fmt.Errorf("rendering %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return order(a) - order(b) })
	return objects, nil
}

func (in Input) directories() []string {
	directories := []string{"standalone"}
	if in.Namespace != volumesv1alpha1.InstallNamespace {
		directories = append(directories, "foreign-namespace")
	}
	if in.Draining {
		directories = append(directories, refusals)
	}
	if in.Spec.AttachMode == volumesv1alpha1.AttachReplace {
		directories = append(directories, "replace")
	}
	if d := in.Spec.Detach; d != nil && d.ForgetGoneNodesAfter != nil {
		directories = append(directories, "forget-gone-nodes")
	}
	if in.writesNodes() {
		directories = append(directories, "node-writes")
	}
	if in.Spec.NetworkPolicy != volumesv1alpha1.ManagedNone {
		directories = append(directories, "networkpolicy")
	}
	if wanted, served := in.Monitors(); wanted && served {
		directories = append(directories, "monitoring")
	}
	return directories
}

// writesNodes reports whether the manager needs the right to patch Nodes.
func (in Input) writesNodes() bool {
	return in.Tainted || ptr.Deref(in.Spec.NodeLabels, false) ||
		in.Spec.Fencing != nil && ptr.Deref(in.Spec.Fencing.ManageOutOfServiceTaint, false)
}

// leftOut: another namespace than our own belongs to its administrator. It may have other users, which privileged
// pods do not concern.
func (in Input) leftOut(object *unstructured.Unstructured) bool {
	switch object.GroupVersionKind() {
	case PrometheusRule:
		return !in.Serves(PrometheusRule)
	case MutatingPolicy, MutatingPolicyBinding:
		// A pod that is gated while Hawser is drained would wait for a manager that is about to end.
		return !in.Serves(object.GroupVersionKind()) || in.Draining && object.GetName() == GatingPolicy
	}
	switch object.GetKind() {
	case "Namespace", "ResourceQuota":
		return in.Namespace != volumesv1alpha1.InstallNamespace
	case "Deployment":
		return in.Images.Manager == ""
	case "DaemonSet":
		return in.Images.Agent == ""
	}
	return false
}

func (in Input) finish(object *unstructured.Unstructured) error {
	var err error
	switch object.GetKind() {
	case "Deployment":
		err = edit(object, in.manager)
	case "DaemonSet":
		err = edit(object, in.agent)
	case PrometheusRule.Kind:
		err = linkRunbooks(object, version.Ref())
	}
	if err != nil {
		return err
	}
	moveTo(object.Object, in.Namespace)
	labels := maps.Clone(object.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels[ManagedByLabel] = ManagedBy
	object.SetLabels(labels)
	return stamp(object)
}

// linkRunbooks has the alerts link the pages of the operator's own release.
func linkRunbooks(rules *unstructured.Unstructured, ref string) error {
	text, err := rules.MarshalJSON()
	if err != nil {
		return err
	}
	return rules.UnmarshalJSON(bytes.ReplaceAll(text, []byte("/hawser/blob/main/"), []byte("/hawser/blob/"+ref+"/")))
}

// moveTo replaces the default namespace of the manifests, also where that is named as an object.
func moveTo(value any, namespace string) {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			switch {
			case key == "namespace" && inner == volumesv1alpha1.InstallNamespace:
				value[key] = namespace
			case key == "resourceNames" && isList(inner, volumesv1alpha1.InstallNamespace):
				value[key] = []any{namespace}
			}
			moveTo(inner, namespace)
		}
	case []any:
		for _, inner := range value {
			moveTo(inner, namespace)
		}
	}
}

func isList(value any, only string) bool {
	list, ok := value.([]any)
	return ok && len(list) == 1 && list[0] == only
}

func stamp(object *unstructured.Unstructured) error {
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	annotations := maps.Clone(object.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[HashAnnotation] = hex.EncodeToString(sum[:8])
	object.SetAnnotations(annotations)
	return nil
}

func order(object *unstructured.Unstructured) int {
	switch object.GetKind() {
	case "Deployment":
		return 1
	case "DaemonSet":
		return 2
	}
	return 0
}

// Kinds of the objects that any VolumeManager can lead to, each once.
func Kinds() ([]schema.GroupVersionKind, error) {
	var kinds []schema.GroupVersionKind
	for _, directory := range []string{"standalone", "foreign-namespace", refusals, "replace", "forget-gone-nodes",
		"node-writes", "networkpolicy", "monitoring"} {
		objects, err := config.Load(config.Manifests, directory)
		if err != nil {
			return nil, fmt.Errorf("reading the manifests: %w", err)
		}
		for _, object := range objects {
			if kind := object.GroupVersionKind(); !slices.Contains(kinds, kind) {
				kinds = append(kinds, kind)
			}
		}
	}
	return kinds, nil
}
