/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package policy

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hawser-io/hawser/config"
)

// policy is one of config/admission. Its binding has the same label.
type policy struct {
	name string
	kind kind
	// try, if there is one, returns nil when a dry run has shown that the policy works.
	try func(context.Context, trial) error
}

// kind of a policy and of its binding.
type kind [2]schema.GroupVersionKind

var (
	validating = kindOf("ValidatingAdmissionPolicy")
	mutating   = kindOf("MutatingAdmissionPolicy")
)

func kindOf(name string) kind {
	return kind{admissionv1.SchemeGroupVersion.WithKind(name), admissionv1.SchemeGroupVersion.WithKind(name + "Binding")}
}

// policies that have to be in force.
var policies = []policy{
	{hold, validating, tryHold},
	{finalizer, mutating, tryFinalizer},
	{name: "hawser-exclusive-locks", kind: validating},
	{name: "hawser-declared", kind: validating},
	{name: "hawser-agent-node-state", kind: validating},
	{name: "hawser-agent-intents", kind: validating},
	{name: "hawser-agent-leases", kind: validating},
	{name: "hawser-agent-tokens", kind: validating},
}

// shipped are the specs of the policies and bindings of this release, by kind and label.
type shipped map[[2]string]map[string]any

// load reads config/admission.
func load() (shipped, error) {
	objects, err := config.Load(config.Manifests, "admission")
	if err != nil {
		return nil, fmt.Errorf("reading the admission policies: %w", err)
	}
	specs := shipped{}
	for _, object := range objects {
		if spec, found, err := unstructured.NestedMap(object.Object, "spec"); found && err == nil {
			specs[[2]string{object.GetKind(), object.GetLabels()[label]}] = spec
		}
	}
	return specs, nil
}

// weakened returns where an object of a policy asks for less than is shipped. An overlay may have changed the policy's
// name, which its binding refers to.
func (s shipped) weakened(p policy, object unstructured.Unstructured, names []string) []string {
	want := maps.Clone(s[[2]string{object.GetKind(), p.name}])
	name, _, _ := unstructured.NestedString(object.Object, "spec", "policyName")
	if slices.Contains(names, name) {
		want["policyName"] = name
	}
	return weakened("spec", want, object.Object["spec"])
}

// exclusions are fields by which a policy or a binding applies to fewer requests. A field that is not shipped must be
// absent, or have the value with which it excludes none.
var exclusions = map[string]any{
	"paramKind": nil, "paramRef": nil, "matchConditions": nil, "matchResources": nil,
	"excludeResourceRules": nil, "resourceNames": nil, "scope": "*", "matchPolicy": "Equivalent",
	"namespaceSelector": map[string]any{}, "objectSelector": map[string]any{}, "matchLabels": nil, "matchExpressions": nil,
}

// weakened returns where the spec have does not ask for all that want asks for, in order. Other fields that want does
// not have are ignored: a later Kubernetes may set some by default.
func weakened(path string, want, have any) []string {
	var found []string
	switch want := want.(type) {
	case map[string]any:
		have, ok := have.(map[string]any)
		if !ok {
			return []string{path}
		}
		for name, inner := range want {
			found = append(found, weakened(path+"."+name, inner, have[name])...)
		}
		for name, harmless := range exclusions {
			if _, ours := want[name]; !ours && have[name] != nil && !reflect.DeepEqual(have[name], harmless) {
				found = append(found, path+"."+name)
			}
		}
	case []any:
		have, ok := have.([]any)
		actions := path == "spec.validationActions"
		if actions && slices.Contains(have, any("Deny")) {
			return nil // beside it, a binding may also audit
		}
		if actions || !ok || len(want) != len(have) {
			return []string{path}
		}
		for i := range want {
			found = append(found, weakened(fmt.Sprintf("%s[%d]", path, i), want[i], have[i])...)
		}
	default:
		if !reflect.DeepEqual(want, have) {
			return []string{path}
		}
	}
	slices.Sort(found)
	return found
}
