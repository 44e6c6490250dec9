/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

func attachlessIn(state *volumesv1alpha1.NodeVolumeState) *volumesv1alpha1.NodeVolumeState {
	state.Spec.Attachments[0].AttachmentName = ""
	return state
}

func TestWhatTheLockNeedsBeforeItNamesAnotherNode(t *testing.T) {
	const other = "somebody-made-it"
	for _, test := range []struct {
		name string
		// lock as it is, and as the cache shows it where that differs.
		lock   exclusive.Lock
		cached *exclusive.Lock
		b      *volumesv1alpha1.NodeVolumeState
		// attached are attachments to b.
		attached []client.Object
		facts    *decision.Node
		taken    bool
		// holder and movedFrom of the lock after that.
		holder, movedFrom string
		fenced            bool
		// told: who has the volume.
		told bool
	}{
		{name: "nobody has it", taken: true, holder: "a"},
		{name: "it is nobody's", lock: exclusive.Lock{User: exclusive.User{Name: "was"}}, taken: true, holder: "a"},
		{name: "its holder has let go",
			lock: exclusive.Lock{Holder: "b"}, b: reported("b"), taken: true, holder: "a", fenced: true},
		{name: "its holder's driver knew no attach",
			lock: exclusive.Lock{Holder: "b"}, b: attachlessIn(entryIn(reported("b"), leavesIt, "2", byAgent)),
			taken: true, holder: "a", fenced: true},
		{name: "its holder's entry is Attached",
			lock: exclusive.Lock{Holder: "b"}, b: entryIn(reported("b"), isThere, "2", ""), holder: "b", told: true},
		{name: "an attachment under the shared name is left", lock: exclusive.Lock{Holder: "b"}, b: reported("b"),
			attached: []client.Object{attachedTo(volume.AttachmentName("d", "h", "b"), "2")}, holder: "b", told: true},
		{name: "the attachment of its holder's entry is left",
			lock: exclusive.Lock{Holder: "b"}, b: entryIn(reported("b"), leavesIt, "2", byAgent),
			attached: []client.Object{attachedTo("va-2", "2")}, holder: "b", told: true},
		{name: "an attachment of any other name is left", lock: exclusive.Lock{Holder: "b"}, b: reported("b"),
			attached: []client.Object{attachedTo(other, "2")}, facts: on("b", va("2"),
				func(n *decision.Node) { n.Attachments[0].Name = other }), holder: "b", told: true},
		{name: "its holder uses it without an entry",
			lock: exclusive.Lock{Holder: "b"}, b: usedIn(reported("b"), "2"), holder: "a", movedFrom: "b", told: true},
		{name: "a move to this node is under way and its last holder has let go",
			lock: exclusive.Lock{Holder: "a", MovedFrom: "b"}, b: reported("b"), taken: true, holder: "a", fenced: true},
		{name: "a move to this node is under way and its last holder uses it",
			lock: exclusive.Lock{Holder: "a", MovedFrom: "b"}, b: usedIn(reported("b"), "2"), holder: "a", movedFrom: "b",
			told: true},
		{name: "the node has it already", lock: exclusive.Lock{Holder: "a"}, taken: true, holder: "a"},
		{name: "it went meanwhile", cached: &exclusive.Lock{Holder: "b"}, b: reported("b")},
	} {
		t.Run(test.name, func(t *testing.T) {
			objects := test.attached
			if test.lock != (exclusive.Lock{}) {
				objects = append(objects, lockOf("v", test.lock))
			}
			if test.b != nil {
				objects = append(objects, test.b)
			}
			c, _ := over(t, objects...)
			refuseNoName(c)
			f, n := factsOf(t, c)
			f.Exclusive, f.Lock = true, test.lock.Handshake()
			if test.cached != nil {
				f.Lock = test.cached.Handshake()
			}
			if test.facts != nil {
				f.Nodes = append(f.Nodes, test.facts)
			}
			nodes := len(f.Nodes)
			taken, err := c.takeLock(t.Context(), f, n)
			if err != nil || taken != test.taken || taken == (n.Wait != nil) {
				t.Errorf("lock of volume v for node a: taken %t, wait %+v, error %v; want taken %t, or a wait", taken, n.Wait, err,
					test.taken)
			}
			lock, err := c.Locks.Read(t.Context(), "v")
			if err != nil || lock.Holder != test.holder || lock.MovedFrom != test.movedFrom || f.Lock != lock.Handshake() {
				t.Errorf("lock of volume v: %+v, in the facts %+v, error %v; want holder %q, moved from %q in both", lock, f.Lock,
					err, test.holder, test.movedFrom)
			}
			if test.b != nil && (liveState(t, c, "b").Spec.Protocol.Fences == 1) != test.fenced {
				t.Errorf("node state b is fenced: %t, want %t", !test.fenced, test.fenced)
			}
			if n.Wait != nil && test.told != (n.Wait.Holder != nil && n.Wait.Holder.Name == "b") {
				t.Errorf("node a: wait %+v, want node b named as the holder: %t", n.Wait, test.told)
			}
			if test.lock.Holder == "" && test.cached == nil && len(f.Nodes) != nodes {
				t.Errorf("nodes in the facts of volume v without a holder: %d, want %d", len(f.Nodes), nodes)
			}
		})
	}
}

func TestTheFirstLockNamesTheSingleUser(t *testing.T) {
	c, _ := over(t)
	f, n := factsOf(t, c)
	f.Exclusive, f.SingleUser, n.Wanted[0].Object.UID = true, true, "uid-i"
	taken, err := c.takeLock(t.Context(), f, n)
	if lock, _ := c.Locks.Read(t.Context(), "v"); !taken || err != nil || lock.User.UID != "uid-i" ||
		lock.User.Name != "i" {
		t.Errorf("first lock of volume v: taken %t, %+v, error %v; want user i with UID uid-i", taken, lock, err)
	}
}

// TestALockDoesNotMoveOnACachedReadOfItsHolder: the holder may have been given the volume since.
func TestALockDoesNotMoveOnACachedReadOfItsHolder(t *testing.T) {
	lock := lockObject("v", exclusive.Lock{Holder: "b"})
	c, _ := over(t, lock, entryIn(reported("b"), isThere, "2", ""), attachedTo(volume.AttachmentName("d", "h", "b"), "2"))
	for _, cached := range [][]client.Object{
		{lock, reported("b"), attachedTo(volume.AttachmentName("d", "h", "b"), "2")},
		{lock, entryIn(reported("b"), isThere, "2", "")},
		{lock, reported("b")},
	} {
		behind(t, c, cached...)
		f, n := factsOf(t, c)
		f.Exclusive, f.Lock = true, lockOn("b")
		if taken, err := c.takeLock(t.Context(), f, n); taken || err != nil {
			t.Errorf("lock of volume v, held by node b, for node a: taken %t, error %v; want neither", taken, err)
		}
		if lock, err := c.Locks.Read(t.Context(), "v"); err != nil || lock.Holder != "b" || lock.MovedFrom != "" {
			t.Errorf("lock of volume v: %+v, error %v; want holder b and no move", lock, err)
		}
	}
}

func TestANodeThatLosesTheRaceForALockWaits(t *testing.T) {
	c, _ := over(t, lockObject("v", exclusive.Lock{Holder: "b"}))
	f, n := factsOf(t, c)
	_, swapped, err := c.swapLock(t.Context(), f, n, exclusive.Lock{Holder: "another"}, exclusive.Lock{Holder: "a"})
	if swapped || err != nil || n.Wait == nil {
		t.Errorf("lock of volume v that changed meanwhile: swapped %t, wait %+v, error %v; want a wait alone", swapped,
			n.Wait, err)
	}
}

func TestAMoveThatNothingWaitsForIsFinished(t *testing.T) {
	moving := exclusive.Lock{Holder: "a", MovedFrom: "b"}
	for _, test := range []struct {
		name     string
		known    handshake.Lock
		stands   exclusive.Lock
		given    func(f *decision.Facts, n *decision.Node)
		finished bool
	}{
		{"nobody waits", moving.Handshake(), moving, func(*decision.Facts, *decision.Node) {}, true},
		{"somebody does, and goes on with it", moving.Handshake(), moving, func(_ *decision.Facts, n *decision.Node) {
			wanted("i")(n)
		}, false},
		{"the lock cannot be read",
			moving.Handshake(), moving, func(f *decision.Facts, _ *decision.Node) { f.LockUnreadable = unreadable }, false},
		{"none is known to be under way", lockOn("a"), moving, func(*decision.Facts, *decision.Node) {}, false},
		{"another leader has finished it", moving.Handshake(), exclusive.Lock{Holder: "a"},
			func(*decision.Facts, *decision.Node) {}, false},
		{"it is given up to nobody", moving.Handshake(), exclusive.Lock{MovedFrom: "b"},
			func(*decision.Facts, *decision.Node) {}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _ := over(t, lockObject("v", test.stands), reported("b"))
			n := on("a")
			f := &decision.Facts{Volume: "v", Driver: "d", VolumeHandle: "h", Exclusive: true, Lock: test.known,
				Nodes: []*decision.Node{n}}
			test.given(f, n)
			if err := c.finishMove(t.Context(), f); err != nil {
				t.Fatal(err)
			}
			want := test.stands
			if test.finished {
				want.MovedFrom = ""
			}
			lock, err := c.Locks.Read(t.Context(), "v")
			if err != nil || lock.Holder != want.Holder || lock.MovedFrom != want.MovedFrom || !test.finished &&
				lock.Write != 1 {
				t.Errorf("lock of volume v: %+v, error %v; want holder %q, moved from %q, unchanged: %t", lock, err, want.Holder,
					want.MovedFrom, !test.finished)
			}
			if fenced := liveState(t, c, "b").Spec.Protocol.Fences == 1; fenced != test.finished {
				t.Errorf("node state b is fenced: %t, want %t", fenced, test.finished)
			}
		})
	}
}
