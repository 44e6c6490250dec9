/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/handshake"
)

func TestTheIntentsThatMayBePinnedToAVolumeForASingleUser(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*decision.Facts, *decision.Intent)
		may    bool
	}{
		"whom the lock names": {func(f *decision.Facts, _ *decision.Intent) {
			f.Lock = handshake.Lock{Exists: true, User: "uid-x"}
		}, true},
		"nobody else": {func(f *decision.Facts, _ *decision.Intent) {
			f.Lock = handshake.Lock{Exists: true, User: "uid-y"}
		}, false},
		"who is already": {func(_ *decision.Facts, i *decision.Intent) {
			i.Object.Status.UniqueVolumeName = "v"
		}, true},
		"anybody, where several may use it": {func(f *decision.Facts, _ *decision.Intent) { f.SingleUser = false }, true},
	} {
		c, _ := over(t)
		f, n := single("x")
		test.change(f, n.Wanted[0])
		if c.mayPin(f, n.Wanted[0]) != test.may {
			t.Errorf("intent x (%s) may be pinned to volume v: %t, want %t", name, !test.may, test.may)
		}
	}
}

func TestTheLocksUserIsReadLive(t *testing.T) {
	there, _ := single("x")
	deleting := stored(there)[0].(*volumesv1alpha1.VolumeAttachmentIntent)
	deleting.DeletionTimestamp, deleting.Finalizers = ptr.To(metav1.Now()), []string{"f"}
	user := exclusive.User{Namespace: "default", Name: "x", UID: "uid-x"}
	for name, test := range map[string]struct {
		live []client.Object
		user exclusive.User
		want handshake.Intent
	}{
		"it is there":         {stored(there), user, handshake.Intent{Exists: true}},
		"it is being deleted": {[]client.Object{deleting}, user, handshake.Intent{Exists: true, Deleting: true}},
		"it is gone":          {nil, user, handshake.Intent{}},
		"another one has its name": {stored(there), exclusive.User{Namespace: "default", Name: "x", UID: "before"},
			handshake.Intent{}},
		"nobody": {stored(there), exclusive.User{}, handshake.Intent{}},
	} {
		c, _ := over(t, test.live...)
		behind(t, c)
		refuseNoName(c)
		if got, err := c.readUser(t.Context(), test.user); err != nil || got != test.want {
			t.Errorf("user %q of the lock (%s): %+v, error %v; want %+v", test.user.Name, name, got, err, test.want)
		}
		failing(c, false, "*v1alpha1.VolumeAttachmentIntent")
		if got, err := c.readUser(t.Context(),
			test.user); errors.Is(err, errDown) == (test.user == exclusive.User{}) || got != (handshake.Intent{}) {
			t.Errorf("user %q of the lock (%s), which cannot be read: %+v, error %v; want no intent, and an error for a user",
				test.user.Name, name, got, err)
		}
	}
}

func TestTheUserIsNotTakenFromWhatCannotBeRead(t *testing.T) {
	user := exclusive.User{Namespace: "default", Name: "x", UID: "uid-x"}
	for _, kind := range []string{"*v1alpha1.VolumeAttachmentIntent", "*v1alpha1.NodeVolumeState"} {
		f, n := single("y")
		c, _ := over(t, reported("a"))
		lockedFor(t, c, user)
		failing(c, false, kind)
		lock := exclusive.Lock{Holder: "a", User: user}
		if taken, err := c.takeLockUser(t.Context(), f, n, lock); taken || !errors.Is(err, errDown) {
			t.Errorf("taking the user's place while a %s cannot be read: taken %t, error %v; want %v", kind, taken, err, errDown)
		}
		if kind == "*v1alpha1.VolumeAttachmentIntent" {
			if passes, err := c.mayPassLockOn(t.Context(), f, n, lock); passes || !errors.Is(err, errDown) {
				t.Errorf("passing the lock on while a %s cannot be read: passes %t, error %v; want %v", kind, passes, err, errDown)
			}
		}
	}
}

func TestTheLockPassesOnWithoutAskingWhereItsUserStays(t *testing.T) {
	for name, user := range map[string]exclusive.User{
		"its own": {Namespace: "default", Name: "x", UID: "uid-x"}, "nobody": {},
	} {
		f, n := single("x")
		c, _ := over(t, reported("a"))
		reads := counting(c)
		if passes, err := c.mayPassLockOn(t.Context(), f, n, exclusive.Lock{Holder: "b", User: user}); !passes ||
			err != nil || *reads > 0 {
			t.Errorf("lock of volume v with user %s: passes on %t after %d reads, error %v; want true after none", name, passes,
				*reads, err)
		}
	}
	f, n := single("x")
	c, _ := over(t, reported("a"))
	reads := counting(c)
	if taken, err := c.takeLockUser(t.Context(), f, n, exclusive.Lock{Holder: "a", User: f.LockUser(n)}); !taken ||
		err != nil || *reads > 0 {
		t.Errorf("lock of volume v with the same user: taken %t after %d reads, error %v; want true after none", taken,
			*reads, err)
	}
	f.SingleUser = false
	if taken, err := c.takeLockUser(t.Context(), f, n,
		exclusive.Lock{Holder: "a", User: exclusive.User{UID: "uid-y"}}); !taken || err != nil || *reads > 0 {
		t.Errorf("lock of volume v for several users: taken %t after %d reads, error %v; want true after none", taken, *reads,
			err)
	}
}

func TestALockThatAnotherClientChangedIsNotTaken(t *testing.T) {
	f, n := single("y")
	c, _ := over(t, reported("a"))
	lockedFor(t, c, exclusive.User{Namespace: "default", Name: "z", UID: "uid-z"})
	stale := exclusive.Lock{Holder: "a", User: exclusive.User{Namespace: "default", Name: "x", UID: "uid-x"}}
	if taken, err := c.takeLockUser(t.Context(), f, n, stale); taken || err != nil || n.Wait == nil {
		t.Errorf("lock of volume v that another client changed: taken %t, wait %+v, error %v; want a wait alone", taken,
			n.Wait, err)
	}
}

func TestTheLockOfAWaitingNodeNamesItsHolder(t *testing.T) {
	user, _ := single("x")
	f, n := single("y")
	c, _ := over(t, append(stored(user), reported("a"))...)
	lock := exclusive.Lock{Holder: "b", User: exclusive.User{Namespace: "default", Name: "x", UID: "uid-x"}}
	if passes, err := c.mayPassLockOn(t.Context(), f, n, lock); passes || err != nil || n.Wait == nil ||
		n.Wait.Reason != volumesv1alpha1.ReasonReadWriteOncePod {
		t.Errorf("lock of volume v with user x: passes on %t, wait %+v, error %v; want reason %s", passes, n.Wait, err,
			volumesv1alpha1.ReasonReadWriteOncePod)
	}
}

func TestTheUserIsNotTakenWhileTheListOfTheNodeCannotBeRead(t *testing.T) {
	gone := exclusive.User{Namespace: "default", Name: "gone", UID: "uid-gone"}
	for _, replace := range []bool{true, false} {
		f, n := single("y")
		f.Replace = replace
		c, _ := over(t, append(stored(f), reported("a"))...)
		failing(c, false, "*v1.Node")
		taken, err := c.takeLockUser(t.Context(), f, n, exclusive.Lock{Holder: "a", User: gone})
		if replace && (taken || !errors.Is(err, errDown)) {
			t.Errorf("in Replace, while Node a cannot be read: the user is taken %t, error %v, expected %v", taken, err, errDown)
		}
		if !replace && err != nil {
			t.Errorf("in Coexist, where Node a is not asked about the user: error %v, want none", err)
		}
	}
}

func TestTheListsOfANodeAreReadLive(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "node-uid"}}
	node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "v"}}
	node.Status.VolumesInUse = []corev1.UniqueVolumeName{"v"}
	c, _ := over(t, node)
	n := on("a")
	both := handshake.KubeletLists{Attached: true, InUse: true}
	if err := c.readLists(t.Context(), "v", n); err != nil || n.Lists != both {
		t.Errorf("Node a lists v: %+v, error %v, expected it as attached and in use", n.Lists, err)
	}
	if err := c.readLists(t.Context(), "other", n); err != nil || n.Lists != (handshake.KubeletLists{}) {
		t.Errorf("Node a lists other: %+v, error %v, expected nothing", n.Lists, err)
	}
	missing := on("b")
	none := handshake.KubeletLists{Missing: true}
	if err := c.readLists(t.Context(), "v", missing); err != nil || missing.Lists != none {
		t.Errorf("Node b, which does not exist, lists v: %+v, error %v, expected it missing", missing.Lists, err)
	}
	failing(c, false, "*v1.Node")
	if err := c.readLists(t.Context(), "v", n); !errors.Is(err, errDown) {
		t.Errorf("Node a cannot be read: error %v, expected %v", err, errDown)
	}
}
