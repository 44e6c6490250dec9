/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

var gone = volume.UniqueName("d", "h")

func TestWhatIsLeftOfAVolumeKeepsItsClaim(t *testing.T) {
	claim := handshake.Claim{Exists: true, Holder: "a"}
	for _, test := range []struct {
		name  string
		facts Facts
		want  bool
	}{
		{"nothing is left", Facts{Claim: claim, Nodes: []*Node{on("a"), on("b")}}, true},
		{"nobody holds it", Facts{Claim: handshake.Claim{Exists: true}}, true},
		{"there is no claim", Facts{}, false},
		{"a PersistentVolume", Facts{Claim: claim, Described: true}, false},
		{"an intent that wants it", Facts{Claim: claim, Nodes: []*Node{on("a", wanted("i"))}}, false},
		{"an intent that leaves", Facts{Claim: claim, Nodes: []*Node{on("a", leaving("i"))}}, false},
		{"an attachment", Facts{Claim: claim, Nodes: []*Node{on("a", va("1"))}}, false},
		{"an entry", Facts{Claim: claim, Nodes: []*Node{on("a"), on("b", entry(handshake.Detaching, "1"))}}, false},
		{"a line", Facts{Claim: claim, Nodes: []*Node{on("a", inUse("1"))}}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := collectable(&test.facts); got != test.want {
				t.Errorf("collectable: %t", got)
			}
		})
	}
}

func TestACollectedClaimFencesItsLastHolder(t *testing.T) {
	for _, test := range []struct {
		name  string
		claim exclusive.Claim
		// objects besides the claim.
		objects []client.Object
		gone    bool
		fences  int64
	}{
		{"held", exclusive.Claim{Holder: "a"}, []client.Object{reported("a")}, true, 1},
		{"held by a node without a state", exclusive.Claim{Holder: "a"}, nil, true, 0},
		{"given up by a process that died", exclusive.Claim{MovedFrom: "a"}, []client.Object{reported("a")}, true, 1},
		{"moved by a process that died", exclusive.Claim{Holder: "b", MovedFrom: "a"}, []client.Object{reported("a")}, true, 1},
		{"moved by a process that died, from a node whose agent never reported", exclusive.Claim{Holder: "b", MovedFrom: "a"}, []client.Object{
			&volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		}, false, 0},
		{"given up and fenced", exclusive.Claim{}, nil, true, 0},
		{"held by a node whose agent never reported", exclusive.Claim{Holder: "a"}, []client.Object{
			&volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		}, false, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _ := over(t, append(test.objects, claimed(gone, test.claim))...)
			if err := c.collect(t.Context(), &Facts{Volume: gone, Claim: handshake.Claim{Exists: true}}); err != nil {
				t.Fatal(err)
			}
			claim, err := c.Claims.Read(t.Context(), gone)
			if err != nil || (claim == exclusive.Claim{}) != test.gone {
				t.Errorf("claim %+v, %v", claim, err)
			}
			nvs := &volumesv1alpha1.NodeVolumeState{}
			if err := c.Reader.Get(t.Context(), client.ObjectKey{Name: "a"}, nvs); client.IgnoreNotFound(err) != nil || nvs.Spec.Fences != test.fences {
				t.Errorf("%d fences, %v", nvs.Spec.Fences, err)
			}
		})
	}
}

func TestAClaimThatIsTakenJustBeforeItIsDeletedStays(t *testing.T) {
	c, now := over(t, claimed(gone, exclusive.Claim{}))
	inner := c.Client.(client.WithWatch)
	rival := exclusive.New(inner, inner, now, nil)
	met := false
	c.Claims.Client = interceptor.NewClient(inner, interceptor.Funcs{
		Update: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if !met {
				met = true
				if _, taken, err := rival.Swap(ctx, gone, exclusive.Claim{Write: 1}, exclusive.Claim{Holder: "b"}); err != nil || !taken {
					t.Errorf("taken: %t, %v", taken, err)
				}
			}
			return w.Update(ctx, o, opts...)
		},
	})
	if err := c.collect(t.Context(), &Facts{Volume: gone, Claim: handshake.Claim{Exists: true}}); err != nil {
		t.Fatal(err)
	}
	if left, err := c.Claims.Read(t.Context(), gone); err != nil || left.Holder != "b" || !met {
		t.Errorf("claim %+v, %v; met %t", left, err, met)
	}
}

func TestAClaimThatNobodyHoldsIsTakenByOneWrite(t *testing.T) {
	c, _ := over(t, claimed(gone, exclusive.Claim{}))
	n := on("b", wanted("i"))
	f := &Facts{Volume: gone, Exclusive: true, Claim: handshake.Claim{Exists: true}, Nodes: []*Node{n}}
	if taken, err := c.takeClaim(t.Context(), f, n); !taken || err != nil {
		t.Fatalf("taken: %t, %v", taken, err)
	}
	left, err := c.Claims.Read(t.Context(), gone)
	if err != nil || left.Handshake() != (handshake.Claim{Exists: true, Holder: "b"}) || f.Claim != left.Handshake() || left.Write != 2 {
		t.Errorf("claim %+v, %v", left, err)
	}
}
