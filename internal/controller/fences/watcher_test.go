/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package fences

import (
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/fencing"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/machine"
)

const hardware = "11111111-2222-4333-8444-555555555555"

func sourceOf(t *testing.T, change func(*volumesv1alpha1.FenceSource)) *fencing.Source {
	t.Helper()
	spec := volumesv1alpha1.FenceSource{Name: "bmc", Group: "metal3.io", Version: "v1alpha1", Resource: "baremetalhosts",
		NodeName: "object.spec.node", Holds: "!object.status.poweredOn", Proves: volumesv1alpha1.FencePowerOff}
	change(&spec)
	source, err := fencing.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func byProvider(s *volumesv1alpha1.FenceSource) {
	s.NodeName, s.ProviderID = "", "'metal3://' + object.spec.node"
}

func failingToHold(s *volumesv1alpha1.FenceSource) { s.Holds = "object.status.absent" }

func asItIs(*volumesv1alpha1.FenceSource) {}

func hostOf(node string, on bool, uid types.UID) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
		"metadata": map[string]any{"namespace": "hosts", "name": "h", "uid": string(uid)},
		"spec":     map[string]any{"node": node}, "status": map[string]any{"poweredOn": on},
	}}
}

func nodeOn(system string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{ProviderID: "metal3://n"},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{SystemUUID: system}},
	}
}

func stateOn(system string, records ...volumesv1alpha1.FenceObservation) *volumesv1alpha1.NodeVolumeState {
	return &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Status: volumesv1alpha1.NodeVolumeStateStatus{Machine: machine.New(system, ""),
			Node: volumesv1alpha1.NodeObservation{Fences: records}}}
}

func cacheOf(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, storagev1.AddToScheme,
		volumesv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&volumesv1alpha1.NodeVolumeState{}).Build()
}

func refOf(uid types.UID) volumesv1alpha1.FenceReference {
	return volumesv1alpha1.FenceReference{Source: "bmc", Namespace: "hosts", Name: "h", UID: uid,
		Proves: volumesv1alpha1.FencePowerOff}
}

func TestWhichFencesHoldForANode(t *testing.T) {
	recorded := volumesv1alpha1.FenceObservation{FenceReference: refOf("1")}
	for _, c := range []struct {
		name   string
		source func(*volumesv1alpha1.FenceSource)
		object *unstructured.Unstructured
		// unread: the objects of the source were not all read yet.
		unread bool
		node   *corev1.Node
		state  *volumesv1alpha1.NodeVolumeState
		want   int
	}{
		{"one that names it", asItIs, hostOf("n", false, "1"), false, nodeOn(hardware), stateOn(hardware), 1},
		{"one that names what its provider calls it", byProvider, hostOf("n", false, "1"), false, nodeOn(hardware),
			stateOn(hardware), 1},
		{"one that does not hold", asItIs, hostOf("n", true, "1"), false, nodeOn(hardware), stateOn(hardware), 0},
		{"one of another node", asItIs, hostOf("m", false, "1"), false, nodeOn(hardware), stateOn(hardware), 0},
		{"one that names none", asItIs, hostOf("", false, "1"), false, nodeOn(hardware), stateOn(hardware), 0},
		{"another machine has the name", asItIs, hostOf("n", false, "1"), false,
			nodeOn("66666666-7777-4888-8999-aaaaaaaaaaaa"), stateOn(hardware), 0},
		{"nothing identifies the machine", asItIs, hostOf("n", false, "1"), false, nodeOn(""), stateOn(""), 0},
		{"what is recorded, after a restart of the manager", asItIs, nil, true, nodeOn(hardware),
			stateOn(hardware, recorded), 1},
		{"what is recorded, although another machine has registered the Node", asItIs, hostOf("n", false, "1"), false,
			nodeOn("66666666-7777-4888-8999-aaaaaaaaaaaa"), stateOn(hardware, recorded), 1},
		{"what is recorded, although an expression fails", failingToHold, hostOf("n", false, "1"), false, nodeOn(hardware),
			stateOn(hardware, recorded), 1},
		{"what is recorded, although the Node is registered without its provider ID", byProvider, hostOf("n", false, "1"),
			false, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, stateOn(hardware, recorded), 1},
		{"an expression fails", failingToHold, hostOf("n", false, "1"), false, nodeOn(hardware), stateOn(hardware), 0},
		{"what is recorded was lifted meanwhile", asItIs, hostOf("n", true, "1"), false, nodeOn(hardware),
			stateOn(hardware, recorded), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			source := sourceOf(t, c.source)
			w := &Watcher{Sources: []*fencing.Source{source}, filled: sets.New[string]()}
			if c.object != nil {
				w.Cache = cacheOf(t, c.node)
				kept, err := evaluator(t.Context(), source)(c.object)
				if err != nil {
					t.Fatal(err)
				}
				w.put(t.Context(), source, keyOf(kept.(*evaluated)), kept.(*evaluated).fence)
			}
			if !c.unread {
				w.filled.Insert(source.Name)
			}
			if got := w.Of(c.node, c.state); len(got) != c.want || len(got) == 1 && got[0] != refOf("1") {
				t.Errorf("fences %+v, want %d, which is %+v", got, c.want, refOf("1"))
			}
		})
	}
}

func bootOf(node *corev1.Node, boot string) *corev1.Node {
	node.Status.NodeInfo.BootID = boot
	return node
}

func TestARecordedFenceIsReadAgainBeforeItCounts(t *testing.T) {
	down := errors.New("down")
	for _, c := range []struct {
		name  string
		live  *unstructured.Unstructured
		node  *corev1.Node
		fails error
		want  bool
	}{
		{"it holds", hostOf("n", false, "1"), nodeOn(hardware), nil, true},
		{"it was lifted", hostOf("n", true, "1"), nodeOn(hardware), nil, false},
		{"the object was deleted", nil, nodeOn(hardware), nil, false},
		{"another object has its name", hostOf("n", false, "2"), nodeOn(hardware), nil, false},
		{"it is of another node by now", hostOf("m", false, "1"), nodeOn(hardware), nil, false},
		{"another machine has registered the Node", hostOf("n", false, "1"),
			nodeOn("66666666-7777-4888-8999-aaaaaaaaaaaa"), nil, false},
		{"the machine has booted since its agent reported", hostOf("n", false, "1"),
			bootOf(nodeOn(hardware), "2"), nil, false},
		{"the Node is gone", hostOf("n", false, "1"), nil, nil, false},
		{"it cannot be read", hostOf("n", false, "1"), nodeOn(hardware), down, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var objects []runtime.Object
			if c.live != nil {
				objects = append(objects, c.live)
			}
			live := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), objects...)
			if c.fails != nil {
				live.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, c.fails
				})
			}
			w := &Watcher{Sources: []*fencing.Source{sourceOf(t, asItIs)}, Client: live}
			state := stateOn(hardware)
			state.Status.BootID = "1"
			got, err := w.Holds(t.Context(), refOf("1"), c.node, state)
			if got != c.want || !errors.Is(err, c.fails) {
				t.Errorf("the fence holds: %t, error %v; want %t, %v", got, err, c.want, c.fails)
			}
		})
	}
}

func TestAFenceOfASourceThatIsNotConfiguredAnyMoreProvesNothing(t *testing.T) {
	w, recorded := &Watcher{}, volumesv1alpha1.FenceObservation{FenceReference: refOf("1")}
	if got := w.Of(nodeOn(hardware), stateOn(hardware, recorded)); got != nil {
		t.Errorf("fences without a source: %v, want none", got)
	}
	if holds, err := w.Holds(t.Context(), refOf("1"), nodeOn(hardware), stateOn(hardware)); holds || err != nil {
		t.Errorf("a fence without a source holds: %t, error %v; want that it does not", holds, err)
	}
}

// holdingFor has the host of node n as the only object of the source, all of which were read.
func holdingFor(t *testing.T, source *fencing.Source) *Watcher {
	t.Helper()
	w := &Watcher{Sources: []*fencing.Source{source}, filled: sets.New(source.Name), Cache: cacheOf(t, nodeOn(hardware))}
	kept, err := evaluator(t.Context(), source)(hostOf("n", false, "1"))
	if err != nil {
		t.Fatal(err)
	}
	w.put(t.Context(), source, keyOf(kept.(*evaluated)), kept.(*evaluated).fence)
	return w
}

func TestAFenceThatWasContradictedStaysSoWhileItsSourceIsNotConfigured(t *testing.T) {
	named := func(s *volumesv1alpha1.FenceSource) { s.Name = "bmcs" }
	instance := func(s *volumesv1alpha1.FenceSource) { s.Proves = volumesv1alpha1.FenceInstanceGone }
	whileOn := func(s *volumesv1alpha1.FenceSource) { s.Holds = "object.status.poweredOn" }
	cuts := cutSource(t)
	cuts.Name = "bmc"
	of := func(change func(*volumesv1alpha1.FenceSource)) *Watcher { return holdingFor(t, sourceOf(t, change)) }
	contradicted := metav1.Unix(1000, 0)
	for _, c := range []struct {
		name string
		// meanwhile is for one rollout, and after from then on.
		meanwhile, after *Watcher
		want             bool
	}{
		{"there is none", &Watcher{}, of(asItIs), true},
		{"it has another name", of(named), of(asItIs), true},
		{"its name is that of one that cuts access", &Watcher{Sources: []*fencing.Source{cuts}}, of(asItIs), true},
		{"it comes back and proves something else", &Watcher{}, of(instance), true},
		{"it proves something else", of(instance), of(asItIs), true},
		{"it is there, and the fence was lifted", of(whileOn), of(asItIs), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			state := stateOn(hardware, volumesv1alpha1.FenceObservation{FenceReference: refOf("1"), LastRenewal: "1",
				Contradicted: &contradicted})
			var own []volumesv1alpha1.FenceObservation
			for _, w := range []*Watcher{c.meanwhile, c.after} {
				// The agent is silent, so nothing contradicts the fence again.
				state.Status.Node.Fences = handshake.RecordFences(state.Status.Node.Fences, w.Of(nodeOn(hardware), state),
					handshake.Heard{Renewal: "2"}, metav1.Now())
				own = slices.DeleteFunc(slices.Clone(state.Status.Node.Fences), func(r volumesv1alpha1.FenceObservation) bool {
					return r.Source != "bmc"
				})
			}
			if len(own) != 1 || (own[0].Contradicted != nil) != c.want {
				t.Errorf("fences once the source is back: %+v, want one, contradicted %t", own, c.want)
			}
		})
	}
}

func TestAFenceThatWasContradictedIsForgottenOnceItsSourceIsBackAndItDoesNotHold(t *testing.T) {
	contradicted := metav1.Unix(1000, 0)
	state := stateOn(hardware, volumesv1alpha1.FenceObservation{FenceReference: refOf("1"), Contradicted: &contradicted})
	w := &Watcher{Sources: []*fencing.Source{sourceOf(t, asItIs)}, filled: sets.New("bmc")}
	if got := w.Of(nodeOn(hardware), state); got != nil {
		t.Errorf("fences of node n: %+v, want none", got)
	}
}
