/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package capacity

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/resolve"
)

// useOf is an intent of the namespace on node a, which is pinned to the volume if that is not empty.
func useOf(namespace, name, volume string) *volumesv1alpha1.VolumeAttachmentIntent {
	i := &volumesv1alpha1.VolumeAttachmentIntent{}
	i.Namespace, i.Name, i.UID = namespace, name, types.UID(namespace+name)
	i.Spec.NodeName, i.Status.UniqueVolumeName = "a", volume
	return i
}

func TestTheVolumesOfOneNamespaceShareItsUsesOfANode(t *testing.T) {
	var u Uses
	all := make([]*volumesv1alpha1.VolumeAttachmentIntent, volumesv1alpha1.MaxNamespaceUses)
	for k := range all {
		all[k] = useOf("crowd", fmt.Sprint(k), fmt.Sprintf("volume-%d", k%100))
		u.IntentChanged(nil, useOf("crowd", fmt.Sprint(k), "")) // before it is pinned
		u.IntentChanged(nil, all[k])
		u.IntentChanged(all[k], all[k])
	}
	kubelets := useOf("crowd", "kubelet", "volume-1")
	kubelets.Spec.Publisher = volumesv1alpha1.PublisherKubelet
	u.IntentChanged(nil, kubelets)
	var woken []string
	u.wake = func(volume string) { woken = append(woken, volume) }
	wakes := func(what string, want ...string) {
		t.Helper()
		if !slices.Equal(woken, want) {
			t.Errorf("%s: volumes %v are woken, want %v", what, woken, want)
		}
		woken = nil
	}

	// refused passes over a volume that these intents want, and returns whether one is kept out.
	refused := func(volume string, intents ...*volumesv1alpha1.VolumeAttachmentIntent) bool {
		n := &decision.Node{Name: "a"}
		for _, i := range intents {
			n.Wanted = append(n.Wanted, &decision.Intent{Object: i, Protected: true, Result: resolve.Result{OK: true}})
		}
		f := &decision.Facts{Volume: volume, Nodes: []*decision.Node{n}}
		u.Gather(n)
		decision.KeepOneUser(f)
		u.EndPass(f)
		return len(n.Refused) > 0
	}
	gone := func(volume string) { u.EndPass(&decision.Facts{Volume: volume}) }
	// since is an intent for the volume that was created at that second.
	since := func(volume string, second int64) *volumesv1alpha1.VolumeAttachmentIntent {
		i := useOf("crowd", "new-"+volume, "")
		i.CreationTimestamp = metav1.Unix(second, 0)
		return i
	}
	if !refused("z-first", since("z-first", 1)) || !refused("second", since("second", 2)) ||
		!refused("third", since("third", 3)) || refused("data", useOf("victim", "new", "")) {
		t.Errorf("with %d uses of namespace crowd: want others of it kept out, and none of namespace victim", len(all))
	}
	u.IntentChanged(useOf("victim", "x", "data"), nil)
	wakes("the end of an intent of namespace victim")
	u.IntentChanged(since("third", 3), nil)
	wakes("the end of an intent that was never pinned")
	u.IntentChanged(all[7], nil)
	wakes("the end of an intent of namespace crowd", "z-first")

	gone("z-first")
	wakes("the intent of the first volume is gone", "second")
	if refused("second", since("second", 2)) {
		t.Error("an intent is kept out although one of its namespace has ended")
	}
	wakes("the second one has found room that is not counted yet")
	pinned := useOf("crowd", "new-second", "second")
	u.IntentChanged(since("second", 2), pinned)
	if refused("second", pinned) {
		t.Error("an intent that is pinned is kept out")
	}
	wakes("there is no room for the third one")
	again := pinned.DeepCopy()
	again.UID, again.Status.UniqueVolumeName = "another", ""
	u.IntentChanged(pinned, again)
	wakes("an intent was created again under its name", "third")
	if refused("third", since("third", 3)) {
		t.Error("an intent is kept out although another one was created again")
	}
	gone("third")
	u.IntentChanged(again, nil)

	for _, i := range all {
		u.IntentChanged(i, nil)
	}
	wakes("the end of all intents: nothing waits")
	if len(u.pinned)+len(u.waiting) > 0 {
		t.Errorf("%d namespaces are counted and %d wait after the end of all intents, want none", len(u.pinned),
			len(u.waiting))
	}
}

func TestAUseThatEndsWhileTheFirstPassOfAVolumeGoesOnWakesIt(t *testing.T) {
	var u Uses
	var woken []string
	u.wake = func(volume string) { woken = append(woken, volume) }
	for k := range volumesv1alpha1.MaxNamespaceUses {
		u.IntentChanged(nil, useOf("crowd", fmt.Sprint(k), "volume"))
	}
	n := &decision.Node{Name: "a", Wanted: []*decision.Intent{
		{Object: useOf("crowd", "new", ""), Protected: true, Result: resolve.Result{OK: true}}}}
	f := &decision.Facts{Volume: "new", Nodes: []*decision.Node{n}}
	u.Gather(n)
	decision.KeepOneUser(f)
	u.IntentChanged(useOf("crowd", "0", "volume"), nil)
	if len(woken) > 0 {
		t.Fatalf("before the pass has ended: volumes %v are woken, want none", woken)
	}
	if u.EndPass(f); !slices.Equal(woken, []string{"new"}) {
		t.Errorf("after the pass: volumes %v are woken, want the one that has room", woken)
	}
}
