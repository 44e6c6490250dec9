/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package fencing decides what an object of a fence source proves of the machine of a Node. It reads no cluster.
package fencing

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

const (
	// costLimit of one evaluation, in the units of CEL. The expressions of the presets cost less than a thousandth.
	costLimit = 1_000_000
	// interruptEvery is after how many steps of a comprehension the context is checked.
	interruptEvery = 100
)

// Source of fences, with its expressions compiled.
type Source struct {
	volumesv1alpha1.FenceSource
	nodeName, providerID, holds cel.Program
}

// Verdict is what one object of a source proves.
type Verdict struct {
	// NodeName or ProviderID name the Node; both are empty where the object names none.
	NodeName, ProviderID string
	// Holds: the fence holds.
	Holds bool
}

// Compile the expressions of a source. The error names the field that is wrong.
func Compile(spec volumesv1alpha1.FenceSource) (*Source, error) {
	env, err := cel.NewEnv(cel.Variable("object", cel.DynType), cel.OptionalTypes(), ext.Strings(), ext.Lists())
	if err != nil {
		return nil, fmt.Errorf("setting up CEL: %w", err)
	}
	s := &Source{FenceSource: spec}
	var failures []error
	for _, e := range []struct {
		field, text string
		want        *cel.Type
		program     *cel.Program
	}{
		{"nodeName", spec.NodeName, cel.StringType, &s.nodeName},
		{"providerID", spec.ProviderID, cel.StringType, &s.providerID},
		{"holds", spec.Holds, cel.BoolType, &s.holds},
	} {
		if e.text == "" {
			continue
		}
		if *e.program, err = program(env, e.text, e.want); err != nil {
			failures = append(failures, fmt.Errorf("source %s: %s %q: %w", spec.Name, e.field, e.text, err))
		}
	}
	if s.holds == nil && spec.Holds == "" || (spec.NodeName == "") == (spec.ProviderID == "") {
		failures = append(failures, fmt.Errorf("source %s needs holds, and one of nodeName and providerID", spec.Name))
	}
	return s, errors.Join(failures...)
}

func program(env *cel.Env, text string, want *cel.Type) (cel.Program, error) {
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	if got := ast.OutputType(); !got.IsExactType(want) && !got.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("it returns %s, and must return %s", got, want)
	}
	return env.Program(ast, cel.CostLimit(costLimit), cel.InterruptCheckFrequency(interruptEvery))
}

// Resource of the source's objects.
func (s *Source) Resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: s.Group, Version: s.Version, Resource: s.FenceSource.Resource}
}

// Evaluate what the object proves. An expression that fails is an error, and no fence.
func (s *Source) Evaluate(ctx context.Context, object *unstructured.Unstructured) (Verdict, error) {
	var v Verdict
	var failures []error
	input := map[string]any{"object": object.Object}
	for _, e := range []struct {
		field   string
		program cel.Program
		take    func(any) bool
	}{
		{"nodeName", s.nodeName, taker(&v.NodeName)},
		{"providerID", s.providerID, taker(&v.ProviderID)},
		{"holds", s.holds, taker(&v.Holds)},
	} {
		if e.program == nil {
			continue
		}
		value, _, err := e.program.ContextEval(ctx, input)
		if err == nil && !e.take(value.Value()) {
			err = fmt.Errorf("it returned %s", value.Type().TypeName())
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("source %s: %s of %s: %w", s.Name, e.field, name(object), err))
		}
	}
	if len(failures) > 0 {
		return Verdict{}, errors.Join(failures...)
	}
	return v, nil
}

// taker stores a value of the type of target there.
func taker[T any](target *T) func(any) bool {
	return func(value any) bool {
		v, ok := value.(T)
		*target = v
		return ok
	}
}

func name(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}
