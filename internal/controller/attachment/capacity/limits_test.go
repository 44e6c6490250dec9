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
			t.Errorf("volume %d: %v", volume, got)
		}
	}
	// The cache shows the first: it does not count twice.
	l.present["va-0"] = true
	if l.try(4) {
		t.Error("a fourth was let in")
	}
	if !l.try(1) {
		t.Error("a volume was refused the room that it had reserved")
	}
}

func TestCapacityGoesToTheVolumeThatWaitedLongest(t *testing.T) {
	l := newLine("x", "y", "z")
	for _, volume := range []int{3, 1, 2} {
		if l.try(volume) {
			t.Fatalf("volume %d was let into a full node", volume)
		}
		l.pass(volume, on("a", limited(full)))
	}
	l.gone("x")
	if !slices.Equal(l.woken, []string{"1"}) {
		t.Fatalf("woken: %v", l.woken)
	}
	if l.try(3) {
		t.Error("somebody younger came first")
	}
	if !l.try(1) {
		t.Error("the oldest was refused")
	}
	if !slices.Equal(l.woken, []string{"1", "2"}) {
		t.Errorf("the next was not woken, who would see whether there is more room: %v", l.woken)
	}
	if l.try(2) {
		t.Error("the node is overfull")
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
				t.Fatalf("woken: %v", l.woken)
			}
			if !l.try(2) {
				t.Error("the next was refused")
			}
		})
	}
}

func TestRoomThatWasReservedInVainIsGivenBack(t *testing.T) {
	l := newLine("x", "y")
	if !l.try(1) || l.try(2) {
		t.Fatal("one place was free")
	}
	l.pass(2, on("a", limited(full)))
	// The create failed and may yet arrive.
	l.pass(1, on("a", waits))
	if l.try(2) {
		t.Fatal("the room was given away while the attachment may still come about")
	}
	// A later pass finds nothing of it.
	l.pass(1, on("a"))
	if !slices.Equal(l.woken, []string{"2"}) || !l.try(2) {
		t.Errorf("the room was not given back; woken: %v", l.woken)
	}
}

func TestAReservationEndsWithItsOwnAttachmentOnly(t *testing.T) {
	l := newLine("x", "y")
	l.try(1)
	l.AttachmentChanged(attachmentTo("va-1", "of an earlier life"), nil)
	if l.try(2) {
		t.Fatal("the end of an earlier attachment of the same name gave the room away")
	}
	l.created(nodeSlots, "va-1", "uid")
	l.AttachmentChanged(nil, attachmentTo("va-1", "uid"))
	if len(l.reserved[nodeSlots]) > 0 {
		t.Error("the reservation stands though the cache shows the attachment")
	}
}

func TestAChangedNodeEnqueuesTheFirstThatWaits(t *testing.T) {
	l := newLine("x", "y", "z")
	l.try(2)
	l.try(1)
	l.NodeChanged("b")
	if len(l.woken) > 0 {
		t.Errorf("another node woke %v", l.woken)
	}
	l.NodeChanged("a")
	if !slices.Equal(l.woken, []string{"1"}) {
		t.Errorf("woken: %v", l.woken)
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
		t.Errorf("left: %v %v %v", l.reserved, l.waiting, l.at)
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
			t.Errorf("%v: %v", c.err, got)
		}
	}
}
