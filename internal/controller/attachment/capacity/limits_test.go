/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package capacity

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/handshake"
)

var nodeSlots = driverOnNode{node: "a", driver: "d"}

// line is the limits of one node with three places, and what was woken.
type line struct {
	Limits
	present map[string]bool
	woken   []string
}

func newLine(present ...string) *line {
	l := &line{present: map[string]bool{}}
	for _, name := range present {
		l.present[name] = true
	}
	l.wake = func(name string) { l.woken = append(l.woken, name) }
	return l
}

// try asks for capacity for a volume, whose age is its number, and reserves it.
func (l *line) try(volume int) bool {
	name := fmt.Sprint(volume)
	if l.check(nodeSlots, 3, l.present, "va-"+name, waiterOf(volume)).Reached() {
		return false
	}
	l.reserve(nodeSlots, "va-"+name, name)
	return true
}

func waiterOf(volume int) waitingVolume {
	return waitingVolume{volume: fmt.Sprint(volume), since: metav1.Unix(int64(volume), 0)}
}

// pass ends a pass over the volume, which found the limit as it was or the attachment there.
func (l *line) pass(volume int, n *decision.Node) {
	f := &decision.Facts{Volume: fmt.Sprint(volume), Driver: "d"}
	if n != nil {
		f.Nodes = []*decision.Node{n}
	}
	l.EndPass(f)
}

func (l *line) gone(name string) {
	delete(l.present, name)
	l.AttachmentChanged(attachmentTo(name, "uid"), nil)
}

func attachmentTo(name string, uid types.UID) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid},
		Spec:       storagev1.VolumeAttachmentSpec{NodeName: "a", Attacher: "d"},
	}
}

var full = decision.Limit{Known: true, Max: 3, Used: 3}

func TestWhatIsAboutToBeCreatedCounts(t *testing.T) {
	l := newLine("foreign")
	for volume, want := range []bool{true, true, false, false} {
		if got := l.try(volume); got != want {
			t.Errorf("volume %d may be attached to node a: %t, want %t", volume, got, want)
		}
	}
	// The cache shows the first: it does not count twice.
	l.present["va-0"] = true
	if l.try(4) {
		t.Error("volume 4 may be attached to node a, want it refused: the node takes three")
	}
	if !l.try(1) {
		t.Error("volume 1 may not be attached to node a, want its reservation to hold")
	}
}

func TestCapacityGoesToTheVolumeThatWaitedLongest(t *testing.T) {
	l := newLine("x", "y", "z")
	for _, volume := range []int{3, 1, 2} {
		if l.try(volume) {
			t.Fatalf("volume %d may be attached to full node a, want it refused", volume)
		}
		l.pass(volume, on("a", limited(full)))
	}
	l.gone("x")
	if !slices.Equal(l.woken, []string{"1"}) {
		t.Fatalf("volumes woken after attachment x went: %v, want 1, which waited longest", l.woken)
	}
	if l.try(3) {
		t.Error("volume 3 may be attached to node a before volume 1, which waited longer, want it refused")
	}
	if !l.try(1) {
		t.Error("volume 1, which waited longest, may not be attached to node a, want it allowed")
	}
	if !slices.Equal(l.woken, []string{"1", "2"}) {
		t.Errorf("volumes woken after volume 1 got the capacity: %v, want 1 and 2", l.woken)
	}
	if l.try(2) {
		t.Error("volume 2 may be attached to full node a, want it refused")
	}
}

func TestCapacityThatIsNotTakenGoesToTheNext(t *testing.T) {
	for name, n := range map[string]*decision.Node{
		"not wanted any more":          nil,
		"held up by something else":    on("a", limited(decision.Limit{Known: true, Max: 3, Used: 2})),
		"attached by somebody else":    on("a", va("1")),
		"nothing known of its driver":  on("b"),
		"another act was refused here": on("a", waits),
	} {
		t.Run(name, func(t *testing.T) {
			l := newLine("x", "y", "z")
			l.try(1)
			l.try(2)
			l.gone("x")
			l.woken = nil
			l.pass(1, n)
			if !slices.Equal(l.woken, []string{"2"}) {
				t.Fatalf("volumes woken after volume 1 did not take the capacity: %v, want 2", l.woken)
			}
			if !l.try(2) {
				t.Error("volume 2, the next that waits, may not be attached to node a, want it allowed")
			}
		})
	}
}

func TestRoomThatWasReservedInVainIsGivenBack(t *testing.T) {
	l := newLine("x", "y")
	if !l.try(1) || l.try(2) {
		t.Fatal("capacity of node a: want room for volume 1 and none for volume 2")
	}
	l.pass(2, on("a", limited(full)))
	// The create failed and may yet arrive.
	l.pass(1, on("a", waits))
	if l.try(2) {
		t.Fatal("volume 2 got the capacity while the attachment of volume 1 may still appear, want it refused")
	}
	// A later pass finds nothing of it.
	l.pass(1, on("a"))
	if !slices.Equal(l.woken, []string{"2"}) || !l.try(2) {
		t.Errorf("volumes woken after volume 1 gave its capacity back: %v, want 2, which then gets it", l.woken)
	}
}

func TestAReservationEndsWithItsOwnAttachmentOnly(t *testing.T) {
	l := newLine("x", "y")
	l.try(1)
	l.AttachmentChanged(attachmentTo("va-1", "of an earlier life"), nil)
	if l.try(2) {
		t.Fatal("the end of an earlier attachment va-1 released the reservation of volume 1, want it kept")
	}
	l.created(nodeSlots, "va-1", "uid")
	l.AttachmentChanged(nil, attachmentTo("va-1", "uid"))
	if len(l.reserved[nodeSlots]) > 0 {
		t.Errorf("reservations after the cache has attachment va-1: %v, want none", l.reserved)
	}
}

func TestAChangedNodeEnqueuesTheFirstThatWaits(t *testing.T) {
	l := newLine("x", "y", "z")
	l.try(2)
	l.try(1)
	l.NodeChanged("b")
	if len(l.woken) > 0 {
		t.Errorf("volumes woken by a change of node b: %v, want none", l.woken)
	}
	l.NodeChanged("a")
	if !slices.Equal(l.woken, []string{"1"}) {
		t.Errorf("volumes woken by a change of node a: %v, want 1", l.woken)
	}
}

func TestNothingIsKeptOfVolumesThatAreSettled(t *testing.T) {
	l := newLine("x", "y")
	l.try(1)
	l.try(2)
	l.present["va-1"] = true
	l.try(2)
	named := on("a")
	named.Attachments = []decision.Attachment{{Name: "va-1", Attachment: handshake.Attachment{Exists: true}}}
	l.pass(1, named)
	l.pass(2, nil)
	if len(l.reserved)+len(l.waiting)+len(l.at) > 0 {
		t.Errorf("kept of settled volumes: reservations %v, waiting %v, nodes %v; want none", l.reserved, l.waiting, l.at)
	}
}

func limited(l decision.Limit) func(*decision.Node) { return func(n *decision.Node) { n.Limit = l } }

func TestOnlyARefusalProvesThatNothingWasCreated(t *testing.T) {
	va := schema.GroupResource{Group: "storage.k8s.io", Resource: "volumeattachments"}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{apierrors.NewForbidden(va, "v", errors.New("no")), true},
		{fmt.Errorf("creating: %w", apierrors.NewConflict(va, "v", errors.New("no"))), true},
		{apierrors.NewTimeoutError("slow", 1), false},
		{apierrors.NewServerTimeout(va, "create", 1), false},
		{apierrors.NewInternalError(errors.New("etcd")), false},
		{errors.New("connection reset by peer"), false},
	} {
		if got := answered(c.err); got != c.want {
			t.Errorf("error %v proves that nothing was created: %t, want %t", c.err, got, c.want)
		}
	}
}
