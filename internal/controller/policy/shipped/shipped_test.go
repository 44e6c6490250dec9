/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package shipped

import (
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// weakenedBy returns the weaknesses of a shipped object after a change of its spec. The policy has the given name in
// the cluster.
func weakenedBy(
	t *testing.T, gvk schema.GroupVersionKind, policyName, name string, change func(map[string]any),
) []string {
	t.Helper()
	specs, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	spec := runtime.DeepCopyJSON(specs[[2]string{gvk.Kind, policyName}])
	if spec["policyName"] != nil {
		spec["policyName"] = name
	}
	change(spec)
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(gvk)
	object.SetName(name)
	return specs.weakened(Policy{Name: policyName}, *object, []string{name})
}

func TestEachPolicyIsShippedWithAFailurePolicyAndABindingThatDenies(t *testing.T) {
	specs, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range Policies {
		policy, binding := specs[[2]string{p.Kind[0].Kind, p.Name}], specs[[2]string{p.Kind[1].Kind, p.Name}]
		if policy["failurePolicy"] != "Fail" {
			t.Errorf("%s: failurePolicy %v, want Fail", p.Name, policy["failurePolicy"])
		}
		if got := binding["policyName"]; got != p.Name {
			t.Errorf("binding of %s: policyName %v, want its name", p.Name, got)
		}
		if got := binding["validationActions"]; p.Kind == Validating && !reflect.DeepEqual(got, []any{"Deny"}) {
			t.Errorf("binding of %s: validationActions %v, want Deny", p.Name, got)
		}
	}
}

// A difference is a weakness, whatever the policy would answer to a dry run.
func TestEachWeaknessIsNamedWithItsField(t *testing.T) {
	const locks, leases = "hawser-exclusive-locks", "hawser-agent-leases"
	rule := func(spec map[string]any) map[string]any {
		return spec["matchConstraints"].(map[string]any)["resourceRules"].([]any)[0].(map[string]any)
	}
	for _, test := range []struct {
		name, policy, where string
		kind                schema.GroupVersionKind
		change              func(spec map[string]any)
	}{
		{"an expression that is always true", locks, "spec.validations[0].expression", Validating[0],
			func(spec map[string]any) { spec["validations"].([]any)[0].(map[string]any)["expression"] = "true" }},
		{"a variable that is empty", Hold, "spec.variables[0].expression", Validating[0],
			func(spec map[string]any) { spec["variables"].([]any)[0].(map[string]any)["expression"] = "[]" }},
		{"a validation less", Hold, "spec.validations", Validating[0],
			func(spec map[string]any) { spec["validations"] = spec["validations"].([]any)[:1] }},
		{"failures are ignored", leases, "spec.failurePolicy", Validating[0],
			func(spec map[string]any) { spec["failurePolicy"] = "Ignore" }},
		{"a match condition more", locks, "spec.matchConditions", Validating[0], func(spec map[string]any) {
			spec["matchConditions"] = append(spec["matchConditions"].([]any), map[string]any{"name": "x", "expression": "false"})
		}},
		{"rules that exclude", locks, "spec.matchConstraints.excludeResourceRules", Validating[0],
			func(spec map[string]any) {
				spec["matchConstraints"].(map[string]any)["excludeResourceRules"] = []any{map[string]any{"apiGroups": []any{"*"},
					"apiVersions": []any{"*"}, "resources": []any{"*"}, "operations": []any{"*"}}}
			}},
		{"an operation less", locks, "spec.matchConstraints.resourceRules[0].operations", Validating[0],
			func(spec map[string]any) { rule(spec)["operations"] = []any{"CREATE"} }},
		{"some names only", locks, "spec.matchConstraints.resourceRules[0].resourceNames", Validating[0],
			func(spec map[string]any) { rule(spec)["resourceNames"] = []any{"x"} }},
		{"another scope", locks, "spec.matchConstraints.resourceRules[0].scope", Validating[0],
			func(spec map[string]any) { rule(spec)["scope"] = "Cluster" }},
		{"labelled objects only", Hold, "spec.matchConstraints.objectSelector", Validating[0], func(spec map[string]any) {
			spec["matchConstraints"].(map[string]any)["objectSelector"] = map[string]any{"matchLabels": map[string]any{"a": "b"}}
		}},
		{"a selector that selects less", leases, "spec.matchConstraints.namespaceSelector.matchLabels", Validating[0],
			func(spec map[string]any) {
				selector := spec["matchConstraints"].(map[string]any)["namespaceSelector"].(map[string]any)
				selector["matchLabels"] = map[string]any{"a": "b"}
			}},
		{"parameters", Hold, "spec.paramKind", Validating[0],
			func(spec map[string]any) { spec["paramKind"] = map[string]any{"apiVersion": "v1", "kind": "ConfigMap"} }},
		{"a binding that audits", Hold, "spec.validationActions", Validating[1],
			func(spec map[string]any) { spec["validationActions"] = []any{"Audit"} }},
		{"a binding of another policy", Hold, "spec.policyName", Validating[1],
			func(spec map[string]any) { spec["policyName"] = locks }},
		{"a binding of some namespaces", Hold, "spec.matchResources", Validating[1], func(spec map[string]any) {
			spec["matchResources"] = map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{"a": "b"}}}
		}},
		{"a binding with parameters", Hold, "spec.paramRef", Validating[1], func(spec map[string]any) {
			spec["paramRef"] = map[string]any{"name": "x", "parameterNotFoundAction": "Allow"}
		}},
		{"a finalizer that is not kept", Finalizer, "spec.matchConditions[0].expression", Mutating[0],
			func(spec map[string]any) {
				spec["matchConditions"].([]any)[0].(map[string]any)["expression"] = "oldObject == null"
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := weakenedBy(t, test.kind, test.policy, test.policy, test.change); !slices.Equal(got, []string{test.where}) {
				t.Errorf("weaknesses of %s %s: %q, want %q", test.kind.Kind, test.policy, got, test.where)
			}
		})
	}
}

func TestWhatWeakensNoPolicyIsNoDifference(t *testing.T) {
	for name, test := range map[string]struct {
		kind   schema.GroupVersionKind
		change func(spec map[string]any)
	}{
		"what an API server sets by default": {Validating[0], func(spec map[string]any) {
			constraints := spec["matchConstraints"].(map[string]any)
			constraints["matchPolicy"] = "Equivalent"
			constraints["namespaceSelector"], constraints["objectSelector"] = map[string]any{}, map[string]any{}
			constraints["resourceRules"].([]any)[0].(map[string]any)["scope"] = "*"
		}},
		"a field of a later Kubernetes": {Validating[0], func(spec map[string]any) { spec["mode"] = "Fast" }},
		"annotations for the audit log": {Validating[0], func(spec map[string]any) {
			spec["auditAnnotations"] = []any{map[string]any{"key": "x"}}
		}},
		"a binding that audits besides": {Validating[1], func(spec map[string]any) {
			spec["validationActions"] = []any{"Audit", "Deny"}
		}},
		"the name that an overlay gives": {Validating[1], func(map[string]any) {}},
		"a default of a later binding's": {Validating[1], func(spec map[string]any) { spec["mode"] = "Fast" }},
	} {
		t.Run(name, func(t *testing.T) {
			if got := weakenedBy(t, test.kind, Hold, "acme-"+Hold, test.change); len(got) > 0 {
				t.Errorf("weaknesses of %s %s: %q, want none", test.kind.Kind, Hold, got)
			}
		})
	}
}
