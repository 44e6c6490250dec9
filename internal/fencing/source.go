/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package fencing decides what an object of a fence source proves, of the machine of a Node or of what addresses may
// reach. It reads no cluster.
package fencing

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
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

	fieldAddresses = "addresses"
)

// Source of fences, with its expressions compiled.
type Source struct {
	volumesv1alpha1.FenceSource
	nodeName, providerID, holds cel.Program
	// driver, addresses, covers and client are of a source that proves AccessCut.
	driver, addresses, covers cel.Program
	client                    struct{ nodeName, driver, addresses cel.Program }
}

// Verdict is what one object of a source proves.
type Verdict struct {
	// NodeName or ProviderID name the Node; both are empty where the object names none.
	NodeName, ProviderID string
	// Holds: the fence holds.
	Holds bool
	// Driver whose storage the Addresses cannot reach, or would not if the fence held; both are empty of a source that
	// does not prove AccessCut.
	Driver    string
	Addresses []netip.Prefix
	// Everywhere: which addresses these are is not known. It may be every one.
	Everywhere bool
}

// Compile the expressions of a source. The error names the field that is wrong.
func Compile(spec volumesv1alpha1.FenceSource) (*Source, error) {
	env, err := cel.NewEnv(cel.Variable("object", cel.DynType), cel.OptionalTypes(), ext.Strings(), ext.Lists())
	if err != nil {
		return nil, fmt.Errorf("setting up CEL: %w", err)
	}
	s := &Source{FenceSource: spec}
	type expression struct {
		field, text string
		want        *cel.Type
		program     *cel.Program
	}
	expressions := []expression{
		{"nodeName", spec.NodeName, cel.StringType, &s.nodeName},
		{"providerID", spec.ProviderID, cel.StringType, &s.providerID},
		{"holds", spec.Holds, cel.BoolType, &s.holds},
		{"driver", spec.Driver, cel.StringType, &s.driver},
		{fieldAddresses, spec.Addresses, cel.ListType(cel.StringType), &s.addresses},
	}
	if c := spec.Clients; c != nil {
		expressions = append(expressions,
			expression{"clients.nodeName", c.NodeName, cel.StringType, &s.client.nodeName},
			expression{"clients.driver", c.Driver, cel.StringType, &s.client.driver},
			expression{"clients.addresses", c.Addresses, cel.ListType(cel.StringType), &s.client.addresses})
	}
	var failures []error
	for _, e := range expressions {
		if e.text == "" {
			continue
		}
		if *e.program, err = program(env, e.text, e.want); err != nil {
			failures = append(failures, fmt.Errorf("source %s: %s %q: %w", spec.Name, e.field, e.text, err))
		}
	}
	if spec.Covers != "" {
		if env, err = env.Extend(cel.Variable("volume", cel.DynType)); err != nil {
			return nil, fmt.Errorf("setting up CEL: %w", err)
		}
		if s.covers, err = program(env, spec.Covers, cel.BoolType); err != nil {
			failures = append(failures, fmt.Errorf("source %s: covers %q: %w", spec.Name, spec.Covers, err))
		}
	}
	return s, errors.Join(append(failures, complete(spec))...)
}

// complete is what the API server asks for as well: a source that lacks a field must not count for more than it says.
func complete(s volumesv1alpha1.FenceSource) error {
	names := (s.NodeName == "") != (s.ProviderID == "")
	cuts := s.Driver != "" && s.Addresses != "" && s.Clients != nil &&
		s.Clients.NodeName != "" && s.Clients.Driver != "" && s.Clients.Addresses != ""
	switch {
	case s.Proves != volumesv1alpha1.FenceAccessCut && (s.Holds == "" || !names):
		return fmt.Errorf("source %s needs holds, and one of nodeName and providerID", s.Name)
	case s.Proves != volumesv1alpha1.FenceAccessCut && s.Driver+s.Addresses+s.Covers != "",
		s.Proves != volumesv1alpha1.FenceAccessCut && s.Clients != nil:
		return fmt.Errorf("source %s: driver, addresses, covers and clients need proves: AccessCut", s.Name)
	case s.Proves == volumesv1alpha1.FenceAccessCut && (s.Holds == "" || !cuts || s.NodeName+s.ProviderID != ""):
		return fmt.Errorf("source %s needs holds, driver, addresses and clients, and neither nodeName nor providerID: it "+
			"proves AccessCut", s.Name)
	}
	return nil
}

func program(env *cel.Env, text string, want *cel.Type) (cel.Program, error) {
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	if got := ast.OutputType(); !mayReturn(got, want) {
		return nil, fmt.Errorf("it returns %s, and must return %s", got, want)
	}
	return env.Program(ast, cel.CostLimit(costLimit), cel.InterruptCheckFrequency(interruptEvery))
}

// mayReturn reports whether an expression of that type may have a value of the wanted one. That of a field of an object
// is known only once it is evaluated.
func mayReturn(got, want *cel.Type) bool {
	if got.IsExactType(want) || got.IsExactType(cel.DynType) {
		return true
	}
	return want.Kind() == cel.ListKind && got.Kind() == cel.ListKind &&
		slices.Contains([]cel.Kind{cel.DynKind, cel.TypeParamKind}, got.Parameters()[0].Kind())
}

// Resource of the source's objects.
func (s *Source) Resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: s.Group, Version: s.Version, Resource: s.FenceSource.Resource}
}

// Evaluate what the object proves. An expression that fails is an error, and no fence. With an error the verdict has
// the driver and the addresses, as far as they are known: the object may take back what another one proves.
func (s *Source) Evaluate(ctx context.Context, object *unstructured.Unstructured) (Verdict, error) {
	var v Verdict
	var failures []error
	input := map[string]any{"object": object.Object}
	var addresses []string
	for _, e := range []struct {
		field   string
		program cel.Program
		take    func(ref.Val) bool
	}{
		{"nodeName", s.nodeName, taker(&v.NodeName)},
		{"providerID", s.providerID, taker(&v.ProviderID)},
		{"holds", s.holds, taker(&v.Holds)},
		{"driver", s.driver, taker(&v.Driver)},
		{fieldAddresses, s.addresses, taker(&addresses)},
	} {
		if e.program == nil {
			continue
		}
		if err := s.evaluate(ctx, e.program, e.field, object, input, e.take); err != nil {
			failures = append(failures, err)
			v.Everywhere = v.Everywhere || e.field == fieldAddresses
		}
	}
	for _, text := range addresses {
		address, err := Cut(text)
		if err != nil {
			failures = append(failures, fmt.Errorf("source %s: addresses of %s: %w", s.Name, name(object), err))
			v.Everywhere = true
		}
		v.Addresses = append(v.Addresses, address)
	}
	if v.Everywhere {
		v.Addresses = nil
	}
	if len(failures) > 0 {
		return Verdict{Driver: v.Driver, Addresses: v.Addresses, Everywhere: v.Everywhere}, errors.Join(failures...)
	}
	return v, nil
}

func (s *Source) evaluate(ctx context.Context, p cel.Program, field string, object *unstructured.Unstructured,
	input map[string]any, take func(ref.Val) bool) error {
	value, _, err := p.ContextEval(ctx, input)
	if err == nil && !take(value) {
		err = fmt.Errorf("it returned %s", value.Type().TypeName())
	}
	if err != nil {
		return fmt.Errorf("source %s: %s of %s: %w", s.Name, field, name(object), err)
	}
	return nil
}

// taker stores a value of the type of target there.
func taker[T any](target *T) func(ref.Val) bool {
	return func(value ref.Val) bool {
		native, err := value.ConvertToNative(reflect.TypeFor[T]())
		v, ok := native.(T)
		*target = v
		return ok && err == nil
	}
}

func name(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}
