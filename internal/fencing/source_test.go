/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package fencing

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func host(change func(object map[string]any)) *unstructured.Unstructured {
	object := map[string]any{
		"metadata": map[string]any{"namespace": "hosts", "name": "h"},
		"spec":     map[string]any{"online": false},
		"status":   map[string]any{"poweredOn": false},
	}
	change(object)
	return &unstructured.Unstructured{Object: object}
}

func spec(change func(*volumesv1alpha1.FenceSource)) volumesv1alpha1.FenceSource {
	s := volumesv1alpha1.FenceSource{Name: "bmc", Group: "metal3.io", Version: "v1alpha1", Resource: "baremetalhosts",
		NodeName: "object.metadata.name", Holds: "has(object.status.poweredOn) && !object.status.poweredOn",
		Proves: volumesv1alpha1.FencePowerOff}
	change(&s)
	return s
}

func TestWhatAnObjectProves(t *testing.T) {
	as := func(map[string]any) {}
	plain := func(*volumesv1alpha1.FenceSource) {}
	for _, c := range []struct {
		name   string
		source func(*volumesv1alpha1.FenceSource)
		object func(map[string]any)
		want   Verdict
		// fails: the error contains this.
		fails string
	}{
		{"the fence holds", plain, as, Verdict{NodeName: "h", Holds: true}, ""},
		{"it does not hold", plain, func(o map[string]any) { o["status"] = map[string]any{"poweredOn": true} },
			Verdict{NodeName: "h"}, ""},
		{"the field is not set yet", plain, func(o map[string]any) { o["status"] = map[string]any{} },
			Verdict{NodeName: "h"}, ""},
		{"there is no status", plain, func(o map[string]any) { delete(o, "status") }, Verdict{},
			"holds of hosts/h: no such key"},
		{"the Node is named by its provider", func(s *volumesv1alpha1.FenceSource) {
			s.NodeName, s.ProviderID = "", "'metal3://' + object.metadata.namespace + '/' + object.metadata.name"
		}, as, Verdict{ProviderID: "metal3://hosts/h", Holds: true}, ""},
		{"a list is searched", func(s *volumesv1alpha1.FenceSource) {
			s.Holds = "object.status.conditions.exists(c, c.type == 'Fenced' && c.status == 'True')"
		}, func(o map[string]any) {
			o["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Fenced", "status": "True"}}}
		}, Verdict{NodeName: "h", Holds: true}, ""},
		{"the name is no string", func(s *volumesv1alpha1.FenceSource) { s.NodeName = "object.spec" }, as, Verdict{},
			"nodeName of hosts/h: it returned map"},
		{"what holds is no truth", func(s *volumesv1alpha1.FenceSource) { s.Holds = "object.metadata.name" }, as, Verdict{},
			"holds of hosts/h: it returned string"},
		{"the expression costs too much", func(s *volumesv1alpha1.FenceSource) {
			s.Holds = "object.l.all(a, object.l.all(b, object.l.all(c, a + b + c < 0)))"
		}, func(o map[string]any) {
			l := make([]any, 1000)
			for i := range l {
				l[i] = int64(-1)
			}
			o["l"] = l
		}, Verdict{}, "cost limit exceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			source, err := Compile(spec(c.source))
			if err != nil {
				t.Fatal(err)
			}
			got, err := source.Evaluate(t.Context(), host(c.object))
			if !reflect.DeepEqual(got, c.want) || (err == nil) != (c.fails == "") ||
				err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Errorf("verdict %+v, error %v; want %+v, and an error with %q", got, err, c.want, c.fails)
			}
		})
	}
}

func TestAnExpressionThatCannotBeUsedIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*volumesv1alpha1.FenceSource)
		want   string
	}{
		"a syntax error":      {func(s *volumesv1alpha1.FenceSource) { s.Holds = "object." }, `source bmc: holds "object."`},
		"an unknown name":     {func(s *volumesv1alpha1.FenceSource) { s.NodeName = "node.name" }, "undeclared reference"},
		"a number for a name": {func(s *volumesv1alpha1.FenceSource) { s.NodeName = "1" }, "it returns int"},
		"a name for a truth":  {func(s *volumesv1alpha1.FenceSource) { s.Holds = "'yes'" }, "must return bool"},
		"no name":             {func(s *volumesv1alpha1.FenceSource) { s.NodeName = "" }, "one of nodeName and providerID"},
		"two names": {func(s *volumesv1alpha1.FenceSource) { s.ProviderID = "'p'" },
			"one of nodeName and providerID"},
		"nothing that holds": {func(s *volumesv1alpha1.FenceSource) { s.Holds = "" }, "needs holds"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Compile(spec(c.change)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestAnEvaluationEndsWithItsContext(t *testing.T) {
	source, err := Compile(spec(func(s *volumesv1alpha1.FenceSource) { s.Holds = "object.l.all(a, a == 0)" }))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	long := host(func(o map[string]any) {
		l := make([]any, 10*interruptEvery)
		for i := range l {
			l[i] = int64(0)
		}
		o["l"] = l
	})
	if v, err := source.Evaluate(ctx, long); err == nil {
		t.Errorf("verdict %+v of an evaluation whose context had ended, want an error", v)
	}
}

func TestTheResourceOfASourceIsWhatRulesName(t *testing.T) {
	source, err := Compile(spec(func(*volumesv1alpha1.FenceSource) {}))
	want := schema.GroupVersionResource{Group: "metal3.io", Version: "v1alpha1", Resource: "baremetalhosts"}
	if err != nil || source.Resource() != want {
		t.Errorf("resource %v, error %v; want %v", source.Resource(), err, want)
	}
}
