/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package fences

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/fencing"
)

func cutSource(t testing.TB) *fencing.Source {
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
	both := []*unstructured.Unstructured{reports("c", "n", "d", "192.0.2.1", "192.0.2.2")}
	and := func(more ...*unstructured.Unstructured) []*unstructured.Unstructured { return append(more, both...) }
	another := "66666666-7777-4888-8999-aaaaaaaaaaaa"
	for _, c := range []struct {
		name    string
		fence   func(map[string]any)
		clients []*unstructured.Unstructured
		node    *corev1.Node
		want    bool
		// lifted: it is found to be lifted where the volume was detached on it, for this cause; empty if it is not.
		lifted string
	}{
		{"one that has each address", whole, both, nodeOn(hardware), true, ""},
		{"one that has one of two", func(s map[string]any) { s["cidrs"] = []any{"192.0.2.1/32"} }, both, nodeOn(hardware),
			false, "does not have address 192.0.2.2/32 of node n"},
		{"one that does not hold", func(s map[string]any) { s["holds"] = false }, both, nodeOn(hardware), false,
			"was lifted"},
		{"one of another driver", func(s map[string]any) { s["driver"] = "e" }, both, nodeOn(hardware), false,
			`does not name driver "d"`},
		{"one of no driver", func(s map[string]any) { s["driver"] = "" }, both, nodeOn(hardware), false,
			`does not name driver "d"`},
		{"one with an address that is none", func(s map[string]any) { s["cidrs"] = []any{"192.0.2.0/24", "?"} }, both,
			nodeOn(hardware), false, "cannot be evaluated any more"},
		{"one that covers the volume", func(s map[string]any) { s["pool"] = "p" }, both, nodeOn(hardware), true, ""},
		{"one that covers another volume", func(s map[string]any) { s["pool"] = "q" }, both, nodeOn(hardware), false,
			"does not cover volume h"},
		{"nothing is reported", whole, nil, nodeOn(hardware), false, ""},
		{"no address is reported", whole, []*unstructured.Unstructured{reports("c", "n", "d")}, nodeOn(hardware), false, ""},
		{"only other nodes and drivers are reported", whole, []*unstructured.Unstructured{
			reports("c", "m", "d", "192.0.2.1"), reports("e", "n", "e", "192.0.2.1")}, nodeOn(hardware), false, ""},
		{"two objects report for the node", whole, and(reports("e", "n", "d", "192.0.2.1")), nodeOn(hardware), true, ""},
		{"two do, and one of them more", whole, and(reports("e", "n", "d", "192.0.2.3")), nodeOn(hardware), false,
			"does not have address 192.0.2.3/32 of node n"},
		{"one of them has no address that can be parsed", whole, and(reports("e", "n", "d", "?")), nodeOn(hardware), false,
			""},
		{"one has more, and one has none that can be parsed", whole, and(reports("e", "n", "d", "?"),
			reports("g", "n", "d", "192.0.2.3")), nodeOn(hardware), false, "does not have address 192.0.2.3/32 of node n"},
		{"for another node there is none", whole, and(reports("e", "m", "d", "?")), nodeOn(hardware), true, ""},
		{"an object does not show what node it is of", whole, and(objectOf("Client", "e", map[string]any{"driver": "d",
			"cidrs": []any{}})), nodeOn(hardware), false, ""},
		{"an object is of no node", whole, and(reports("e", "", "d", "192.0.2.3")), nodeOn(hardware), true, ""},
		{"another machine has registered the Node", whole, both, nodeOn(another), false, ""},
		{"nothing identifies the machine", whole, both, nodeOn(""), false, ""},
		{"there is no Node", whole, both, nil, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := seeing(t, c.clients, cutFence(c.fence))
			v := fencing.Volume{Driver: "d", Handle: "h", Attributes: map[string]string{"pool": "p"}}
			expectCut(t, w, c.node, v, c.want, c.lifted)
		})
	}
}

// TestAFenceOfWhichTheVolumesAreNotKnownCoversNone: the volume lacks the attribute that is compared.
func TestAFenceOfWhichTheVolumesAreNotKnownCoversNone(t *testing.T) {
	w := seeing(t, []*unstructured.Unstructured{reports("c", "n", "d", "192.0.2.1")},
		cutFence(func(s map[string]any) { s["pool"] = "p" }))
	expectCut(t, w, nodeOn(hardware), fencing.Volume{Driver: "d", Handle: "h"}, false, "does not cover volume h")
}

// TestAFenceCountsOnlyIfNoOtherObjectOpensItsAddresses: storage has one list of addresses, and csi-addons carries out
// each object by itself.
func TestAFenceCountsOnlyIfNoOtherObjectOpensItsAddresses(t *testing.T) {
	of := func(driver any, holds any, cidrs ...any) map[string]any {
		return map[string]any{"driver": driver, "holds": holds, "cidrs": cidrs}
	}
	const opened = "counts no more, because another object, default/g, opens addresses of it again"
	for _, c := range []struct {
		name   string
		other  map[string]any
		lifted string
	}{
		{"one has an address in common", of("d", false, "192.0.2.1"), opened},
		{"one has a range in common", of("d", false, "192.0.2.0/24"), opened},
		{"one has other addresses", of("d", false, "192.0.2.3"), ""},
		{"one has none", of("d", false), ""},
		{"one cuts them off, too", of("d", true, "192.0.2.1"), ""},
		{"one is of another driver", of("e", false, "192.0.2.1"), ""},
		{"one names no driver", of("", false, "192.0.2.1"), opened},
		{"the driver of one is not known", of(int64(1), false, "192.0.2.1"), opened},
		{"the driver of one with other addresses is not known", of(int64(1), false, "192.0.2.3"), ""},
		{"the addresses of one are not known", of("d", false, "?"), opened},
		{"those of another driver are not known", of("e", false, "?"), ""},
		{"whether one holds is not known", of("d", "?", "192.0.2.1"), opened},
		{"nothing is known of one", map[string]any{}, opened},
	} {
		t.Run(c.name, func(t *testing.T) {
			clients := []*unstructured.Unstructured{reports("c", "n", "d", "192.0.2.1", "192.0.2.2")}
			w := seeing(t, clients, cutFence(whole), objectOf("Fence", "g", c.other))
			expectCut(t, w, nodeOn(hardware), fencing.Volume{Driver: "d", Handle: "h"}, c.lifted == "", c.lifted)
		})
	}
}

// seeing is a watcher that has seen these objects, as its informers do, and can read them.
func seeing(t *testing.T, clients []*unstructured.Unstructured, fences ...*unstructured.Unstructured) *Watcher {
	t.Helper()
	s := cutSource(t)
	w := &Watcher{Sources: []*fencing.Source{s}, Cache: cacheOf(t), Client: live(append(fences, clients...)...)}
	for _, o := range fences {
		see(t, w, s, o)
	}
	w.fill(t.Context(), s)
	for _, o := range clients {
		report(t, w, s, o)
	}
	w.fillClients(t.Context(), s)
	return w
}

func see(t *testing.T, w *Watcher, s *fencing.Source, fence *unstructured.Unstructured) {
	t.Helper()
	kept, err := evaluator(t.Context(), s)(fence)
	if err != nil {
		t.Fatal(err)
	}
	w.put(t.Context(), s, keyOf(kept.(*evaluated)), kept.(*evaluated).fence)
}

func report(t *testing.T, w *Watcher, s *fencing.Source, object *unstructured.Unstructured) {
	t.Helper()
	kept, err := clientEvaluator(t.Context(), s)(object)
	if err != nil {
		t.Fatal(err)
	}
	w.putClient(t.Context(), s, keyOf(kept.(*evaluated)), &kept.(*evaluated).client)
}

// expectCut of node n by the fence of cutRef, and by no other one.
func expectCut(t *testing.T, w *Watcher, node *corev1.Node, v fencing.Volume, want bool, lifted string) {
	t.Helper()
	nvs := stateOn(hardware)
	got := slices.DeleteFunc(w.Cutting(t.Context(), node, nvs, v), func(r volumesv1alpha1.FenceReference) bool {
		return r.Name == "g"
	})
	if (len(got) == 1) != want || want && got[0] != cutRef {
		t.Errorf("fences that cut: %+v; want %+v: %t", got, cutRef, want)
	}
	if got, err := w.Cuts(t.Context(), cutRef, node, nvs, v); err != nil || got != want {
		t.Errorf("read live it cuts: %t, error %v; want %t", got, err, want)
	}
	expectLifted(t, w, cutRef, v, lifted)
}

// expectLifted for this cause; empty if it is not.
func expectLifted(t *testing.T, w *Watcher, ref volumesv1alpha1.FenceReference, v fencing.Volume, want string) {
	t.Helper()
	if causes, err := w.Lifted(t.Context(), "n", []Kept{{By: ref, Volume: v}}); err != nil ||
		!slices.Equal(causes, []string{want}) {
		t.Errorf("causes of the lifts: %q, error %v; want %q", causes, err, want)
	}
}

// TestNothingCutsBeforeASourceWasRead: an object that was not read yet may add an address, or open one.
func TestNothingCutsBeforeASourceWasRead(t *testing.T) {
	for name, read := range map[string]func(*Watcher, *fencing.Source){
		"what is reported was not": func(w *Watcher, s *fencing.Source) { w.fill(t.Context(), s) },
		"the fences were not":      func(w *Watcher, s *fencing.Source) { w.fillClients(t.Context(), s) },
	} {
		t.Run(name, func(t *testing.T) {
			s := cutSource(t)
			w := &Watcher{Sources: []*fencing.Source{s}, Cache: cacheOf(t)}
			see(t, w, s, cutFence(whole))
			report(t, w, s, reports("c", "n", "d", "192.0.2.1"))
			read(w, s)
			if got := w.Cutting(t.Context(), nodeOn(hardware), stateOn(hardware), fencing.Volume{Driver: "d"}); got != nil {
				t.Errorf("fences that cut: %+v, want none", got)
			}
		})
	}
}

func TestAFenceThatCutsIsLiftedOnceItIsAnotherOne(t *testing.T) {
	for name, c := range map[string]struct {
		change func(ref *volumesv1alpha1.FenceReference)
		gone   bool
		cause  string
	}{
		"it is gone": {gone: true, change: func(*volumesv1alpha1.FenceReference) {}, cause: causeGone},
		"another of its name": {change: func(r *volumesv1alpha1.FenceReference) { r.UID = "another" },
			cause: causeChanged},
		"its spec has changed": {change: func(r *volumesv1alpha1.FenceReference) { r.Generation = 0 }, cause: causeChanged},
		"its source is gone": {change: func(r *volumesv1alpha1.FenceReference) { r.Source = "another" },
			cause: causeUnconfigured},
		"its source proves something else": {change: func(r *volumesv1alpha1.FenceReference) {
			r.Proves = volumesv1alpha1.FencePowerOff
		}, cause: causeUnconfigured},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []*unstructured.Unstructured{reports("c", "n", "d", "192.0.2.1")}
			if !c.gone {
				objects = append(objects, cutFence(whole))
			}
			w, ref := &Watcher{Sources: []*fencing.Source{cutSource(t)}, Client: live(objects...)}, cutRef
			c.change(&ref)
			v := fencing.Volume{Driver: "d"}
			expectLifted(t, w, ref, v, c.cause)
			if got, err := w.Cuts(t.Context(), ref, nodeOn(hardware), stateOn(hardware), v); err != nil || got {
				t.Errorf("it cuts: %t, error %v; want that it does not", got, err)
			}
		})
	}
}

func TestWhatCannotBeReadOfAFenceThatCutsIsAnError(t *testing.T) {
	for _, resource := range []string{"fences", "clients"} {
		t.Run(resource, func(t *testing.T) {
			api, down := live(cutFence(whole), reports("c", "n", "d", "192.0.2.1")), errors.New("down")
			api.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, down
			})
			w := &Watcher{Sources: []*fencing.Source{cutSource(t)}, Client: api}
			v := fencing.Volume{Driver: "d"}
			if got, err := w.Cuts(t.Context(), cutRef, nodeOn(hardware), stateOn(hardware), v); got || !errors.Is(err, down) {
				t.Errorf("it cuts: %t, error %v; want the error", got, err)
			}
			// What can be read is not kept waiting.
			unconfigured := cutRef
			unconfigured.Source = "another"
			api.ClearActions()
			causes, err := w.Lifted(t.Context(), "n", []Kept{{cutRef, v}, {unconfigured, v}, {cutRef, v}})
			if !slices.Equal(causes, []string{"", causeUnconfigured, ""}) || !errors.Is(err, down) {
				t.Errorf("causes of the lifts: %q, error %v; want the error, and one cause", causes, err)
			}
			if got := lists(api); got[len(got)-1] != resource || slices.Index(got, resource) != len(got)-1 {
				t.Errorf("resources that were read: %q, want that the read of %s was not tried again", got, resource)
			}
		})
	}
}

// TestAReadThatEndsWithItsContextShowsNoLift: the expressions were not evaluated to their end.
func TestAReadThatEndsWithItsContextShowsNoLift(t *testing.T) {
	api := live(cutFence(whole), reports("c", "n", "d", "192.0.2.1"))
	ctx, cancel := context.WithCancel(t.Context())
	api.PrependReactor("list", "fences", func(clienttesting.Action) (bool, runtime.Object, error) {
		cancel()
		return false, nil, nil
	})
	w := &Watcher{Sources: []*fencing.Source{cutSource(t)}, Client: api}
	v := fencing.Volume{Driver: "e"}
	if got, err := w.Lifted(ctx, "n", []Kept{{cutRef, v}}); got != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("causes of the lifts: %q, error %v; want that the context has ended", got, err)
	}
}

// TestTheFencesAreReadAfterWhatIsReported, and both once: a fence may be lifted at any moment.
func TestTheFencesAreReadAfterWhatIsReported(t *testing.T) {
	v := fencing.Volume{Driver: "d"}
	for name, read := range map[string]func(*Watcher) error{
		"before a detach": func(w *Watcher) error {
			_, err := w.Cuts(t.Context(), cutRef, nodeOn(hardware), stateOn(hardware), v)
			return err
		},
		"of all volumes of a node": func(w *Watcher) error {
			_, err := w.Lifted(t.Context(), "n", []Kept{{cutRef, v}, {cutRef, v}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			api := live(cutFence(whole), reports("c", "n", "d", "192.0.2.1"))
			if err := read(&Watcher{Sources: []*fencing.Source{cutSource(t)}, Client: api}); err != nil {
				t.Fatal(err)
			}
			if got, want := lists(api), []string{"clients", "fences"}; !slices.Equal(got, want) {
				t.Errorf("resources that were read: %q, want %q", got, want)
			}
		})
	}
}

// lists are the resources that were listed, in order.
func lists(api *dynamicfake.FakeDynamicClient) []string {
	var got []string
	for _, a := range api.Actions() {
		got = append(got, a.GetResource().Resource)
	}
	return got
}

// TestAFenceThatCutsIsNotRecordedForAMachine: it shows nothing of one, and sets no taint.
func TestAFenceThatCutsIsNotRecordedForAMachine(t *testing.T) {
	w := seeing(t, []*unstructured.Unstructured{reports("c", "n", "d", "192.0.2.1")}, cutFence(whole))
	if got := w.Of(nodeOn(hardware), stateOn(hardware)); got != nil {
		t.Errorf("fences of the machine: %+v, want none", got)
	}
	if holds, err := w.Holds(t.Context(), volumesv1alpha1.FenceReference{Source: "net"}, nodeOn(hardware),
		stateOn(hardware)); holds || err != nil {
		t.Errorf("it holds for the machine: %t, error %v; want that it does not", holds, err)
	}
}

// BenchmarkCuttingWithoutAFence is what each pass of each volume costs where no access is cut.
func BenchmarkCuttingWithoutAFence(b *testing.B) {
	for _, nodes := range []int{100, 5000} {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			s, known := cutSource(b), newClients()
			w := &Watcher{Sources: []*fencing.Source{s}, filled: sets.New(s.Name), reported: sets.New(s.Name),
				clients: map[string]*clients{s.Name: known}}
			for i := range nodes {
				name := fmt.Sprintf("n%d", i)
				known.set(client.ObjectKey{Name: name}, &reported{of: fencing.Client{NodeName: name, Driver: "d"}})
			}
			node, nvs := nodeOn(hardware), stateOn(hardware)
			b.ReportAllocs()
			for b.Loop() {
				w.Cutting(b.Context(), node, nvs, fencing.Volume{Driver: "d"})
			}
		})
	}
}
