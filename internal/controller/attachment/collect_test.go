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
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

var gone = volume.UniqueName("d", "h")

func TestACollectedLockFencesItsLastHolder(t *testing.T) {
	for _, test := range []struct {
		name string
		lock exclusive.Lock
		// objects besides the lock.
		objects []client.Object
		gone    bool
		fences  int64
	}{
		{"held", exclusive.Lock{Holder: "a"}, []client.Object{reported("a")}, true, 1},
		{"held by a node without a state", exclusive.Lock{Holder: "a"}, nil, true, 0},
		{"given up by a process that died", exclusive.Lock{MovedFrom: "a"}, []client.Object{reported("a")}, true, 1},
		{"moved by a process that died", exclusive.Lock{Holder: "b", MovedFrom: "a"},
			[]client.Object{reported("a")}, true, 1},
		{"moved by a process that died, from a node whose agent never reported", exclusive.Lock{Holder: "b", MovedFrom: "a"},
			[]client.Object{
				&volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
			}, false, 0},
		{"given up and fenced", exclusive.Lock{}, nil, true, 0},
		{"held by a node whose agent never reported", exclusive.Lock{Holder: "a"}, []client.Object{
			&volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		}, false, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _ := over(t, append(test.objects, lockObject(gone, test.lock))...)
			if err := c.collectLock(t.Context(),
				&decision.Facts{Volume: gone, Lock: handshake.Lock{Exists: true}}); err != nil {
				t.Fatal(err)
			}
			lock, err := c.Locks.Read(t.Context(), gone)
			if err != nil || (lock == exclusive.Lock{}) != test.gone {
				t.Errorf("lock of volume %s: %+v, error %v; want it gone: %t", gone, lock, err, test.gone)
			}
			nvs := &volumesv1alpha1.NodeVolumeState{}
			if err := c.Reader.Get(t.Context(), client.ObjectKey{Name: "a"}, nvs); client.IgnoreNotFound(err) != nil ||
				nvs.Spec.Protocol.Fences != test.fences {
				t.Errorf("node state a: %d fences, error %v; want %d", nvs.Spec.Protocol.Fences, err, test.fences)
			}
		})
	}
}

func TestALockThatIsTakenJustBeforeItIsDeletedStays(t *testing.T) {
	c, now := over(t, lockObject(gone, exclusive.Lock{}))
	inner := c.Client.(client.WithWatch)
	rival := exclusive.New(inner, inner, now, nil)
	met := false
	c.Locks.Client = interceptor.NewClient(inner, interceptor.Funcs{
		Update: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if !met {
				met = true
				if _, taken, err := rival.Swap(ctx, gone, exclusive.Lock{Write: 1}, exclusive.Lock{Holder: "b"}); err != nil ||
					!taken {
					t.Errorf("taking the lock of volume %s for node b: taken %t, error %v; want it taken", gone, taken, err)
				}
			}
			return w.Update(ctx, o, opts...)
		},
	})
	if err := c.collectLock(t.Context(),
		&decision.Facts{Volume: gone, Lock: handshake.Lock{Exists: true}}); err != nil {
		t.Fatal(err)
	}
	if left, err := c.Locks.Read(t.Context(), gone); err != nil || left.Holder != "b" || !met {
		t.Errorf("lock of volume %s: %+v, error %v, rival's write came between: %t; want holder b", gone, left, err, met)
	}
}

func TestAFreeLockIsTakenByOneWrite(t *testing.T) {
	c, _ := over(t, lockObject(gone, exclusive.Lock{}))
	n := on("b", wanted("i"))
	f := &decision.Facts{Volume: gone, Exclusive: true, Lock: handshake.Lock{Exists: true}, Nodes: []*decision.Node{n}}
	if taken, err := c.takeLock(t.Context(), f, n); !taken || err != nil {
		t.Fatalf("taking the free lock of volume %s for node b: taken %t, error %v; want it taken", gone, taken, err)
	}
	left, err := c.Locks.Read(t.Context(), gone)
	if err != nil || left.Handshake() != (handshake.Lock{Exists: true, Holder: "b"}) || f.Lock != left.Handshake() ||
		left.Write != 2 {
		t.Errorf("lock of volume %s: %+v, error %v, in the facts %+v; want holder b by write 2 in both", gone, left, err,
			f.Lock)
	}
}
