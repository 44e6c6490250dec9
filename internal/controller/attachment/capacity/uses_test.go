/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package capacity

import (
	"fmt"
	"testing"

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

	// refused passes over a volume that one new intent of the namespace wants, and returns whether it is kept out.
	refused := func(namespace, volume string) bool {
		n := &decision.Node{Name: "a", Wanted: []*decision.Intent{{
			Object: useOf(namespace, "new", ""), Protected: true, Result: resolve.Result{OK: true}}}}
		f := &decision.Facts{Volume: volume, Nodes: []*decision.Node{n}}
		u.Gather(n)
		decision.KeepOneUser(f)
		u.EndPass(f)
		return len(n.Refused) > 0
	}
	if !refused("crowd", "another") || refused("victim", "data") {
		t.Errorf("with %d uses of namespace crowd another one of it is kept out: %t, and one of namespace victim: %t; want "+
			"only the first", len(all), refused("crowd", "another"), refused("victim", "data"))
	}
	if got := u.IntentChanged(useOf("victim", "x", "data"), nil); got != "" {
		t.Errorf("the end of an intent of namespace victim wakes volume %q, want none", got)
	}
	if got := u.IntentChanged(all[7], nil); got != "another" {
		t.Errorf("the end of an intent of namespace crowd wakes volume %q, want the one that waits", got)
	}
	if refused("crowd", "another") {
		t.Error("an intent is kept out although one of its namespace has ended")
	}
	for _, i := range all {
		if got := u.IntentChanged(i, nil); got != "" {
			t.Errorf("the end of an intent wakes volume %q, want none: nothing waits", got)
		}
	}
	if len(u.pinned)+len(u.waiting) > 0 {
		t.Errorf("%d namespaces are counted and %d wait after the end of all intents, want none", len(u.pinned),
			len(u.waiting))
	}
}
