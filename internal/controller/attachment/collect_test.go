/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

var gone = volume.UniqueName("d", "h")

// leaseOf is the claim of the volume that is gone.
func leaseOf(holder, from string) *coordinationv1.Lease {
	key := claimKey(gone)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, UID: "claim", Annotations: map[string]string{volumesv1alpha1.VolumeNameAnnotation: gone},
	}}
	if holder != "" {
		lease.Spec.HolderIdentity = &holder
	}
	if from != "" {
		lease.Annotations[volumesv1alpha1.MovedFromAnnotation] = from
	}
	return lease
}

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
		lease *coordinationv1.Lease
		// objects besides the claim.
		objects []client.Object
		gone    bool
		fences  int64
	}{
		{"held", leaseOf("a", ""), []client.Object{reported("a")}, true, 1},
		{"held by a node without a state", leaseOf("a", ""), nil, true, 0},
		{"given up by a process that died", leaseOf("", "a"), []client.Object{reported("a")}, true, 1},
		{"moved by a process that died", leaseOf("b", "a"), []client.Object{reported("a")}, true, 1},
		{"given up and fenced", leaseOf("", ""), nil, true, 0},
		{"held by a node whose agent never reported", leaseOf("a", ""), []client.Object{
			&volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		}, false, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _ := over(t, append(test.objects, test.lease)...)
			if err := c.collect(t.Context(), &Facts{Volume: gone, Claim: claimOf(test.lease)}); err != nil {
				t.Fatal(err)
			}
			lease, err := c.readClaim(t.Context(), gone)
			if err != nil || (lease == nil) != test.gone {
				t.Errorf("claim %v, %v", lease, err)
			}
			nvs := &volumesv1alpha1.NodeVolumeState{}
			if err := c.Client.Get(t.Context(), client.ObjectKey{Name: "a"}, nvs); client.IgnoreNotFound(err) != nil || nvs.Spec.Fences != test.fences {
				t.Errorf("%d fences, %v", nvs.Spec.Fences, err)
			}
		})
	}
}

func TestAClaimThatIsTakenJustBeforeItIsDeletedStays(t *testing.T) {
	lease := leaseOf("", "")
	c, _ := over(t, lease)
	c.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		Delete: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			taken := &coordinationv1.Lease{}
			if err := w.Get(ctx, client.ObjectKeyFromObject(o), taken); err != nil {
				return err
			}
			taken.Spec.HolderIdentity = ptr.To("b")
			if err := w.Update(ctx, taken); err != nil {
				return err
			}
			return w.Delete(ctx, o, opts...)
		},
	})
	if err := c.collect(t.Context(), &Facts{Volume: gone, Claim: claimOf(lease)}); err != nil {
		t.Fatal(err)
	}
	if left, err := c.readClaim(t.Context(), gone); err != nil || left == nil || *left.Spec.HolderIdentity != "b" {
		t.Errorf("claim %v, %v", left, err)
	}
}

func TestAClaimThatNobodyHoldsIsTakenByOneWrite(t *testing.T) {
	lease := leaseOf("", "")
	c, _ := over(t, lease)
	n := on("b", wanted("i"))
	f := &Facts{Volume: gone, Exclusive: true, Claim: claimOf(lease), Nodes: []*Node{n}}
	if taken, err := c.takeClaim(t.Context(), f, n); !taken || err != nil {
		t.Fatalf("taken: %t, %v", taken, err)
	}
	left, err := c.readClaim(t.Context(), gone)
	if err != nil || claimOf(left) != (handshake.Claim{Exists: true, Holder: "b"}) || f.Claim != claimOf(left) {
		t.Errorf("claim %v, %v", left, err)
	}
}
