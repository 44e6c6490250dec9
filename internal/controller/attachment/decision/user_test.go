/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

// single is a volume for a single user on node a, as a leader sees it whose cache shows these intents.
func single(names ...string) (*Facts, *Node) {
	n := on("a", wanted(names...))
	for _, i := range n.Wanted {
		i.Object.UID, i.Result.Pins.UniqueVolumeName = types.UID("uid-"+i.Object.Name), "v"
	}
	return &Facts{
		Volume: "v", Driver: "d", VolumeHandle: "h", Exclusive: true, SingleUser: true, AttachRequired: true,
		Nodes: []*Node{n},
	}, n
}

func TestTheUserInALockIsIgnoredWhereTheVolumeMayHaveSeveral(t *testing.T) {
	f, n := single("y")
	f.Lock = handshake.Lock{Exists: true, Holder: "a", User: "uid-x"}
	if f.Locked(n) {
		t.Error("volume v is locked for intent y by the lock of uid-x, want that it is not")
	}
	if f.SingleUser = false; !f.Locked(n) {
		t.Error("volume v, which may now have several users, is not locked for node a by the lock of uid-x, want that it is")
	}
}

func TestARefusedIntentReportsTheRefusalFirst(t *testing.T) {
	f, n := single("y")
	entry(handshake.Attached, "1")(n)
	if found := findUser(f, n, n.Wanted[0]); found == nil || found.Reason != volumesv1alpha1.ReasonReadWriteOncePod ||
		!strings.Contains(found.Message, "not yet the one") {
		t.Errorf("finding for intent y: %+v, want reason %s", found, volumesv1alpha1.ReasonReadWriteOncePod)
	}
	n.SetWait(volumesv1alpha1.ReasonClaimDeleting, "refused")
	if found := findUser(f, n, n.Wanted[0]); found == nil || found.Reason != volumesv1alpha1.ReasonClaimDeleting {
		t.Errorf("finding for intent y after a refusal: %+v, want reason %s", found, volumesv1alpha1.ReasonClaimDeleting)
	}
}

func TestTheIntentThatTheLockNamesIsFirst(t *testing.T) {
	f, n := single("a-younger-name", "z")
	f.Lock = handshake.Lock{Exists: true, Holder: "a", User: "uid-z"}
	entry(handshake.Attached, "1")(n)
	va("1", "held", "attached")(n)
	if steps := electAndDecide(f, handshake.Protocol{}); len(n.Wanted) != 1 || n.Wanted[0].Object.Name != "z" ||
		len(n.Refused) != 1 || slices.ContainsFunc(steps, func(s Step) bool { return s.Act == TakeUser }) {
		t.Errorf("volume v, locked for intent z: wanted %v, refused %v, steps %+v; want z alone, one refused and no TakeUser",
			n.Wanted, n.Refused, steps)
	}
	f, n = single("z")
	f.Lock = handshake.Lock{Exists: true, Holder: "a", User: "uid-gone"}
	entry(handshake.Attached, "1")(n)
	va("1", "held", "attached")(n)
	if steps := electAndDecide(f, handshake.Protocol{}); len(steps) != 1 || steps[0].Act != TakeUser {
		t.Errorf("steps for volume v, locked for a user that is gone: %+v, want %s alone", steps, TakeUser)
	}
}

func TestAVolumeForASingleUserThatTheKubeletStillSeesIsDetachedBeforeAnAgentsIntentGetsIt(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Facts, *Node)
		want   bool
	}{
		{"as said", func(*Facts, *Node) {}, true},
		{"in Coexist upstream lists", func(f *Facts, _ *Node) { f.Replace = false }, false},
		{"several users", func(f *Facts, _ *Node) { f.SingleUser = false }, false},
		{"not listed", func(_ *Facts, n *Node) { n.Lists.Attached = false }, false},
		{"nobody wants it", func(_ *Facts, n *Node) { n.Wanted = nil }, false},
		{"an intent of the kubelet", func(_ *Facts, n *Node) {
			n.Wanted[0].Object.Spec.Publisher = volumesv1alpha1.PublisherKubelet
		}, false},
		{"the lock names the intent", func(f *Facts, _ *Node) { f.Lock.User = "uid-y" }, false},
		{"the lock names another one", func(f *Facts, _ *Node) { f.Lock.User = "uid-x" }, true},
		{"an intent that is pinned", func(_ *Facts, n *Node) { n.Wanted[0].Object.Status.UniqueVolumeName = "v" }, false},
	} {
		f, n := single("y")
		entry(handshake.Attached, "1")(n)
		va("1", "held", "attached")(n)
		f.Replace, n.Lists.Attached = true, true
		c.change(f, n)
		if got := f.ListedForAnother(n); got != c.want {
			t.Errorf("%s: listed for another one is %t, expected %t", c.name, got, c.want)
		}
		steps := attachSteps(f, n)
		if c.want && len(steps) != 0 {
			t.Errorf("%s: steps to attach %+v, expected none", c.name, steps)
		}
		if c.want && keeps(f, n, n) {
			t.Errorf("%s: node a keeps volume v, want that it loses it", c.name)
		}
		if !c.want && len(n.Wanted) > 0 && !keeps(f, n, n) {
			t.Errorf("%s: node a does not keep volume v, want that it keeps it", c.name)
		}
	}
	f, n := single("y")
	f.Replace, n.Lists.Attached = true, true
	if !keeps(f, n, n) {
		t.Error("node a, to which volume v is not attached yet, does not keep it, want that it does")
	}
}
