/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package fences

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/fencing"
)

func cutSource(t *testing.T) *fencing.Source {
	t.Helper()
	source, err := fencing.Compile(volumesv1alpha1.FenceSource{Name: "net", Group: "example.com", Version: "v1",
		Resource: "fences", Driver: "object.spec.driver", Addresses: "object.spec.cidrs", Holds: "object.spec.holds",
		Covers: "!has(object.spec.pool) || volume.attributes.pool == object.spec.pool",
		Proves: volumesv1alpha1.FenceAccessCut, Clients: &volumesv1alpha1.FenceClients{Group: "example.com", Version: "v1",
			Resource: "clients", NodeName: "object.spec.node", Driver: "object.spec.driver", Addresses: "object.spec.cidrs"}})
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func objectOf(kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": kind,
		"metadata": map[string]any{"namespace": "default", "name": name, "uid": name, "generation": int64(1)}, "spec": spec,
	}}
}

func cutFence(change func(spec map[string]any)) *unstructured.Unstructured {
	spec := map[string]any{"driver": "d", "holds": true, "cidrs": []any{"192.0.2.1/32", "192.0.2.2/32"}}
	change(spec)
	return objectOf("Fence", "f", spec)
}

func reports(name, node, driver string, addresses ...any) *unstructured.Unstructured {
	return objectOf("Client", name, map[string]any{"node": node, "driver": driver, "cidrs": addresses})
}

func whole(map[string]any) {}

var cutRef = volumesv1alpha1.FenceReference{Source: "net", Namespace: "default", Name: "f", UID: "f", Generation: 1,
	Proves: volumesv1alpha1.FenceAccessCut}

// live is an API server with these objects.
func live(objects ...*unstructured.Unstructured) *dynamicfake.FakeDynamicClient {
	var all []runtime.Object
	for _, o := range objects {
		all = append(all, o)
	}
	kinds := map[schema.GroupVersionResource]string{
		{Group: "example.com", Version: "v1", Resource: "fences"}:  "FenceList",
		{Group: "example.com", Version: "v1", Resource: "clients"}: "ClientList",
	}
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, all...)
}

// TestWhichFencesCutANodeOff asks what is known from the watch and what is read live: both have to agree.
func TestWhichFencesCutANodeOff(t *testing.T) {
	both := reports("c", "n", "d", "192.0.2.1", "192.0.2.2")
	for _, c := range []struct {
		name    string
		fence   func(map[string]any)
		clients []*unstructured.Unstructured
		node    *corev1.Node
		want    bool
		// still: it is not found to be lifted where the volume was detached on it.
		still bool
	}{
		{"one that has each address", whole, []*unstructured.Unstructured{both}, nodeOn(hardware), true, true},
		{"one that has one of two", func(s map[string]any) { s["cidrs"] = []any{"192.0.2.1/32"} },
			[]*unstructured.Unstructured{both}, nodeOn(hardware), false, false},
		{"one that does not hold", func(s map[string]any) { s["holds"] = false }, []*unstructured.Unstructured{both},
			nodeOn(hardware), false, false},
		{"one of another driver", func(s map[string]any) { s["driver"] = "e" }, []*unstructured.Unstructured{both},
			nodeOn(hardware), false, false},
		{"one of no driver", func(s map[string]any) { s["driver"] = "" }, []*unstructured.Unstructured{both},
			nodeOn(hardware), false, false},
		{"one with an address that is none", func(s map[string]any) { s["cidrs"] = []any{"192.0.2.0/24", "?"} },
			[]*unstructured.Unstructured{both}, nodeOn(hardware), false, false},
		{"one that covers the volume", func(s map[string]any) { s["pool"] = "p" }, []*unstructured.Unstructured{both},
			nodeOn(hardware), true, true},
		{"one that covers another volume", func(s map[string]any) { s["pool"] = "q" }, []*unstructured.Unstructured{both},
			nodeOn(hardware), false, false},
		{"nothing is reported", whole, nil, nodeOn(hardware), false, true},
		{"no address is reported", whole,
			[]*unstructured.Unstructured{reports("c", "n", "d")}, nodeOn(hardware), false, true},
		{"only other nodes and drivers are reported", whole, []*unstructured.Unstructured{
			reports("c", "m", "d", "192.0.2.1"), reports("e", "n", "e", "192.0.2.1")}, nodeOn(hardware), false, true},
		{"two objects report for the node", whole, []*unstructured.Unstructured{both, reports("e", "n", "d", "192.0.2.1")},
			nodeOn(hardware), true, true},
		{"two do, and one of them more", whole, []*unstructured.Unstructured{both, reports("e", "n", "d", "192.0.2.3")},
			nodeOn(hardware), false, false},
		{"one of them has no address that can be parsed", whole, []*unstructured.Unstructured{both,
			reports("e", "n", "d", "?")}, nodeOn(hardware), false, false},
		{"for another node there is none", whole, []*unstructured.Unstructured{both, reports("e", "m", "d", "?")},
			nodeOn(hardware), true, true},
		{"an object does not show what node it is of", whole, []*unstructured.Unstructured{both,
			objectOf("Client", "e", map[string]any{"driver": "d", "cidrs": []any{}})}, nodeOn(hardware), false, false},
		{"another machine has registered the Node", whole, []*unstructured.Unstructured{both},
			nodeOn("66666666-7777-4888-8999-aaaaaaaaaaaa"), false, true},
		{"nothing identifies the machine", whole, []*unstructured.Unstructured{both}, nodeOn(""), false, true},
		{"there is no Node", whole, []*unstructured.Unstructured{both}, nil, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			source, fence, nvs := cutSource(t), cutFence(c.fence), stateOn(hardware)
			w := &Watcher{Sources: []*fencing.Source{source}, Cache: cacheOf(t, nodeOn(hardware)),
				Client: live(append(c.clients, fence)...)}
			v := fencing.Volume{Driver: "d", Attributes: map[string]string{"pool": "p"}}
			fill(t, w, source, fence, c.clients)
			if got := w.Cutting(t.Context(), c.node, nvs, v); (len(got) == 1) != c.want || c.want && got[0] != cutRef {
				t.Errorf("fences that cut: %+v; want %+v: %t", got, cutRef, c.want)
			}
			if got, err := w.Cuts(t.Context(), cutRef, c.node, nvs, v); err != nil || got != c.want {
				t.Errorf("read live it cuts: %t, error %v; want %t", got, err, c.want)
			}
			if got, err := w.StillCuts(t.Context(), cutRef, "n", v); err != nil || got != c.still {
				t.Errorf("it still cuts: %t, error %v; want %t", got, err, c.still)
			}
		})
	}
}

// fill has the watcher see the objects, as its informers do.
func fill(t *testing.T, w *Watcher, s *fencing.Source, fence *unstructured.Unstructured,
	clients []*unstructured.Unstructured) {
	t.Helper()
	kept, err := evaluator(t.Context(), s)(fence)
	if err != nil {
		t.Fatal(err)
	}
	w.put(t.Context(), s, keyOf(kept.(*evaluated)), kept.(*evaluated).fence)
	if got := w.Cutting(t.Context(), nodeOn(hardware), stateOn(hardware), fencing.Volume{Driver: "d"}); got != nil {
		t.Errorf("fences that cut before all was read: %+v, want none", got)
	}
	w.fill(t.Context(), s)
	for _, o := range clients {
		kept, err := clientEvaluator(t.Context(), s)(o)
		if err != nil {
			t.Fatal(err)
		}
		w.putClient(t.Context(), s, keyOf(kept.(*evaluated)), &kept.(*evaluated).client)
	}
	w.fillClients(t.Context(), s)
}

func TestAFenceThatCutsIsLiftedOnceItIsAnotherOne(t *testing.T) {
	client := reports("c", "n", "d", "192.0.2.1")
	for name, c := range map[string]struct {
		change func(ref *volumesv1alpha1.FenceReference)
		gone   bool
	}{
		"it is gone":          {gone: true, change: func(*volumesv1alpha1.FenceReference) {}},
		"another of its name": {change: func(r *volumesv1alpha1.FenceReference) { r.UID = "another" }},
		"its spec has changed": {change: func(r *volumesv1alpha1.FenceReference) {
			r.Generation = 0
		}},
		"its source is gone": {change: func(r *volumesv1alpha1.FenceReference) { r.Source = "another" }},
		"its source proves something else": {change: func(r *volumesv1alpha1.FenceReference) {
			r.Proves = volumesv1alpha1.FencePowerOff
		}},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []*unstructured.Unstructured{client}
			if !c.gone {
				objects = append(objects, cutFence(whole))
			}
			w, ref := &Watcher{Sources: []*fencing.Source{cutSource(t)}, Client: live(objects...)}, cutRef
			c.change(&ref)
			v := fencing.Volume{Driver: "d"}
			if got, err := w.StillCuts(t.Context(), ref, "n", v); err != nil || got {
				t.Errorf("it still cuts: %t, error %v; want that it was lifted", got, err)
			}
			if got, err := w.Cuts(t.Context(), ref, nodeOn(hardware), stateOn(hardware), v); err != nil || got {
				t.Errorf("it cuts: %t, error %v; want that it does not", got, err)
			}
		})
	}
}

func TestWhatCannotBeReadOfAFenceThatCutsIsAnError(t *testing.T) {
	for _, verb := range []string{"get", "list"} {
		t.Run(verb, func(t *testing.T) {
			api, down := live(cutFence(whole), reports("c", "n", "d", "192.0.2.1")), errors.New("down")
			api.PrependReactor(verb, "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, down })
			w := &Watcher{Sources: []*fencing.Source{cutSource(t)}, Client: api}
			v := fencing.Volume{Driver: "d"}
			if got, err := w.Cuts(t.Context(), cutRef, nodeOn(hardware), stateOn(hardware), v); got || !errors.Is(err, down) {
				t.Errorf("it cuts: %t, error %v; want the error", got, err)
			}
			if got, err := w.StillCuts(t.Context(), cutRef, "n", v); got || !errors.Is(err, down) {
				t.Errorf("it still cuts: %t, error %v; want the error", got, err)
			}
		})
	}
}

// TestAFenceThatCutsIsNotRecordedForAMachine: it shows nothing of one, and sets no taint.
func TestAFenceThatCutsIsNotRecordedForAMachine(t *testing.T) {
	source := cutSource(t)
	w := &Watcher{Sources: []*fencing.Source{source}, Cache: cacheOf(t, nodeOn(hardware))}
	fill(t, w, source, cutFence(whole), []*unstructured.Unstructured{reports("c", "n", "d", "192.0.2.1")})
	if got := w.Of(nodeOn(hardware), stateOn(hardware)); got != nil {
		t.Errorf("fences of the machine: %+v, want none", got)
	}
	if holds, err := w.Holds(t.Context(), volumesv1alpha1.FenceReference{Source: "net"}, nodeOn(hardware),
		stateOn(hardware)); holds || err != nil {
		t.Errorf("it holds for the machine: %t, error %v; want that it does not", holds, err)
	}
}
