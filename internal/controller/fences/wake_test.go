/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package fences

import (
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/fencing"
)

// withVolume is the state of a node with a volume of the driver.
func withVolume(node, driver string) *volumesv1alpha1.NodeVolumeState {
	return &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: volumesv1alpha1.NodeVolumeStateSpec{Attachments: []volumesv1alpha1.NodeAttachment{
			{VolumeName: "v", AttachmentUID: "1", Driver: driver, State: volumesv1alpha1.AttachmentAttached},
		}}}
}

// detachedOn is the state of a node from which a volume was detached on a fence of the source.
func detachedOn(node, source string) *volumesv1alpha1.NodeVolumeState {
	nvs := withVolume(node, "")
	nvs.Spec.Attachments[0].Evidence = &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceFenced,
		Fence: &volumesv1alpha1.FenceReference{Source: source, Proves: volumesv1alpha1.FenceAccessCut}}
	return nvs
}

// TestWhatAChangeOfAFenceThatCutsWakes: nodes a and b have the addresses .1 and .2, c and d have them for another
// driver. The volume of e was detached on a fence. f has .1 for the other driver only, and h for a driver of which it
// has no volume.
func TestWhatAChangeOfAFenceThatCutsWakes(t *testing.T) {
	object := func(name, driver string, holds bool, cidrs ...any) *unstructured.Unstructured {
		return objectOf("Fence", name, map[string]any{"driver": driver, "holds": holds, "cidrs": cidrs})
	}
	unclear := objectOf("Client", "unclear", map[string]any{"driver": "d", "cidrs": []any{}})
	seen := func(o *unstructured.Unstructured) func(*testing.T, *Watcher, *fencing.Source) {
		return func(t *testing.T, w *Watcher, s *fencing.Source) { see(t, w, s, o) }
	}
	clientSeen := func(name, node, driver string, cidrs ...any) func(*testing.T, *Watcher, *fencing.Source) {
		return func(t *testing.T, w *Watcher, s *fencing.Source) {
			report(t, w, s, reports(name, node, driver, cidrs...))
		}
	}
	of1, of2 := object("f", "d", true, "192.0.2.1"), object("f", "d", true, "192.0.2.2")
	for _, c := range []struct {
		name string
		// before are fences that are seen before, and clients that report before.
		before, clients []*unstructured.Unstructured
		change          func(*testing.T, *Watcher, *fencing.Source)
		want            []string
	}{
		{"a fence comes", nil, nil, seen(of1), []string{"a", "e"}},
		{"one of several nodes", nil, nil, seen(object("f", "d", true, "192.0.2.0/24")), []string{"a", "b", "e"}},
		{"one of another driver", nil, nil, seen(object("f", "o", true, "192.0.2.0/24")), []string{"c", "d", "e"}},
		{"it changes", []*unstructured.Unstructured{of1}, nil, seen(of2), []string{"a", "b", "e"}},
		{"nothing of it changes", []*unstructured.Unstructured{of1}, nil, seen(of1), nil},
		{"it is lifted", []*unstructured.Unstructured{of1}, nil, seen(object("f", "d", false)), []string{"a", "e"}},
		{"its driver changes", []*unstructured.Unstructured{of1}, nil, seen(object("f", "o", true, "192.0.2.1")),
			[]string{"a", "c", "e", "f"}},
		{"it is gone", []*unstructured.Unstructured{of1}, nil, func(t *testing.T, w *Watcher, s *fencing.Source) {
			w.put(t.Context(), s, types.NamespacedName{Namespace: "default", Name: "f"}, fence{})
		}, []string{"a", "e"}},
		{"another one opens an address of it", []*unstructured.Unstructured{object("f", "d", true, "192.0.2.0/24")}, nil,
			seen(object("g", "d", false, "192.0.2.9")), []string{"a", "b", "e"}},
		{"another one opens it no more", []*unstructured.Unstructured{object("f", "d", true, "192.0.2.0/24"),
			object("g", "d", false, "192.0.2.9")}, nil, seen(object("g", "d", false)), []string{"a", "b", "e"}},
		{"another one opens others", []*unstructured.Unstructured{of1}, nil, seen(object("g", "d", false, "198.51.100.1")),
			[]string{"e"}},
		{"one of no known driver comes", []*unstructured.Unstructured{of1}, nil, seen(object("g", "", false, "192.0.2.9")),
			[]string{"a", "b", "e", "f"}},
		{"one of no known address comes", nil, nil, seen(object("g", "d", false, "?")), []string{"a", "b", "e", "f"}},
		{"its addresses become known", []*unstructured.Unstructured{object("g", "d", false, "?")}, nil,
			seen(object("g", "d", false)), []string{"a", "b", "e", "f"}},
		{"of a node it is not known what it reports", nil,
			[]*unstructured.Unstructured{objectOf("Client", "unclear", map[string]any{"node": "f", "driver": "d"})}, seen(of1),
			[]string{"a", "e", "f"}},
		{"of what node something is reported is not known", nil, []*unstructured.Unstructured{unclear}, seen(of1),
			[]string{"a", "b", "e", "f"}},
		{"something is reported of a node", nil, nil, clientSeen("new", "f", "d", "192.0.2.6"), []string{"f"}},
		{"nothing changes of it", nil, nil, clientSeen("a", "a", "d", "192.0.2.1"), nil},
		{"it is of another node", nil, nil, clientSeen("a", "b", "d", "192.0.2.1"), []string{"a", "b"}},
		{"it is not clear any more", nil, nil, clientSeen("a", "a", "d", "?"), []string{"a"}},
		{"it is of a node that is not known", []*unstructured.Unstructured{of1}, nil,
			func(t *testing.T, w *Watcher, s *fencing.Source) { report(t, w, s, unclear) }, []string{"a", "b", "e", "f"}},
		{"it is of a known one again", []*unstructured.Unstructured{of1}, []*unstructured.Unstructured{unclear},
			func(t *testing.T, w *Watcher, s *fencing.Source) {
				w.putClient(t.Context(), s, types.NamespacedName{Namespace: "default", Name: "unclear"}, nil)
			}, []string{"a", "b", "e", "f"}},
		{"all fences were read", []*unstructured.Unstructured{of1}, nil,
			func(t *testing.T, w *Watcher, s *fencing.Source) { w.fill(t.Context(), s) }, []string{"a", "b", "e", "f"}},
		{"all that is reported was read", []*unstructured.Unstructured{of1}, nil,
			func(t *testing.T, w *Watcher, s *fencing.Source) { w.fillClients(t.Context(), s) },
			[]string{"a", "b", "e", "f"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := cutSource(t)
			w := &Watcher{Sources: []*fencing.Source{s}, Cache: cacheOf(t, withVolume("a", "d"), withVolume("b", "d"),
				withVolume("c", "o"), withVolume("d", "o"), detachedOn("e", s.Name), withVolume("f", "d"),
				detachedOn("g", "another"), withVolume("h", "x"))}
			for node, address := range map[string]string{"a": "192.0.2.1", "b": "192.0.2.2"} {
				clientSeen(node, node, "d", address)(t, w, s)
			}
			clientSeen("c", "c", "o", "192.0.2.1")(t, w, s)
			clientSeen("d", "d", "o", "192.0.2.2")(t, w, s)
			clientSeen("f", "f", "o", "192.0.2.1")(t, w, s)
			clientSeen("h", "h", "d", "192.0.2.1")(t, w, s)
			for _, o := range c.clients {
				report(t, w, s, o)
			}
			for _, o := range c.before {
				see(t, w, s, o)
			}
			var cuts, machines []string
			w.listeners = []listener{
				{wake: func(_ context.Context, node string) { cuts = append(cuts, node) }, cuts: true},
				{wake: func(_ context.Context, node string) { machines = append(machines, node) }},
			}
			c.change(t, w, s)
			slices.Sort(cuts)
			slices.Sort(machines)
			if !slices.Equal(cuts, c.want) || !slices.Equal(machines, c.want) {
				t.Errorf("nodes that are woken: %q, and %q for their lifts; want %q", cuts, machines, c.want)
			}
		})
	}
}
