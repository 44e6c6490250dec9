/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package shipped compares admission policies with those of this release.
package shipped

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hawser-io/hawser/config"
)

// Label of a policy and of its binding. Its value is the policy's name before an overlay changed it.
const Label = "volumes.hawser.io/admission-policy"

// Names of policies that are tried, too.
const (
	Hold      = "hawser-hold"
	Finalizer = "hawser-release-finalizer"
)

// Policy is one of config/admission. Its binding has the same label.
type Policy struct {
	Name string
	Kind Kind
}

// Kind of a policy and of its binding.
type Kind [2]schema.GroupVersionKind

// Kinds of policies. Before Kubernetes 1.36 there is no MutatingAdmissionPolicy of version v1.
var (
	Validating = kindOf("ValidatingAdmissionPolicy")
	Mutating   = kindOf("MutatingAdmissionPolicy")
)

func kindOf(name string) Kind {
	return Kind{admissionv1.SchemeGroupVersion.WithKind(name), admissionv1.SchemeGroupVersion.WithKind(name + "Binding")}
}

// Policies that have to be in force.
var Policies = []Policy{
	{Hold, Validating},
	{Finalizer, Mutating},
	{"hawser-intent-finalizers", Validating},
	{"hawser-exclusive-locks", Validating},
	{"hawser-declared", Validating},
	{"hawser-agent-node-state", Validating},
	{"hawser-agent-intents", Validating},
	{"hawser-agent-leases", Validating},
	{"hawser-agent-tokens", Validating},
}

// Specs of the policies and bindings of this release, by kind and label.
type Specs map[[2]string]map[string]any

// Load reads config/admission.
func Load() (Specs, error) {
	objects, err := config.Load(config.Manifests, "admission")
	if err != nil {
		return nil, fmt.Errorf("reading the admission policies: %w", err)
	}
	specs := Specs{}
	for _, object := range objects {
		if spec, found, err := unstructured.NestedMap(object.Object, "spec"); found && err == nil {
			specs[[2]string{object.GetKind(), object.GetLabels()[Label]}] = spec
		}
	}
	return specs, nil
}

// Problems are why a policy is not known to be in force, given the objects of its kind and of its binding's kind that
// carry its label, each in the order of their names.
func (s Specs) Problems(p Policy, objects [2][]unstructured.Unstructured) (problems []string) {
	for i, gvk := range p.Kind {
		for _, object := range objects[i] {
			if where := s.weakened(p, object, Names(objects[0])); len(where) > 0 {
				problems = append(problems, fmt.Sprintf("%s %s is not as this release ships it: %s", gvk.Kind,
					object.GetName(), strings.Join(where, ", ")))
			}
		}
		switch {
		case len(objects[i]) == 0:
			problems = append(problems, fmt.Sprintf("there is no %s with label %s=%s", gvk.Kind, Label, p.Name))
		case len(objects[i]) > 1 && i == 0:
			problems = append(problems, fmt.Sprintf("%s and %s show that Hawser is installed twice, under two names; remove "+
				"one installation, or each attaches what the other has attached elsewhere",
				objects[i][0].GetName(), objects[i][1].GetName()))
		}
	}
	return problems
}

// Names of objects.
func Names(objects []unstructured.Unstructured) []string {
	names := make([]string, 0, len(objects))
	for _, o := range objects {
		names = append(names, o.GetName())
	}
	return names
}

// weakened returns where an object of a policy asks for less than is shipped. An overlay may have changed the policy's
// name, which its binding refers to.
func (s Specs) weakened(p Policy, object unstructured.Unstructured, names []string) []string {
	want := maps.Clone(s[[2]string{object.GetKind(), p.Name}])
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
