/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"testing"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

func TestTheHolderOfTheLockOfAVolume(t *testing.T) {
	lock := handshake.Lock{Exists: true, Holder: "a", User: "uid-x"}
	for name, test := range map[string]struct {
		change       func(*Facts, *Node)
		user         string
		locked, uses bool
	}{
		"its user's":                    {func(*Facts, *Node) {}, "uid-x", true, true},
		"another's":                     {func(f *Facts, _ *Node) { f.Lock.User = "uid-y" }, "uid-x", false, false},
		"nobody's yet":                  {func(f *Facts, _ *Node) { f.Lock.User = "" }, "uid-x", false, false},
		"another node's":                {func(f *Facts, _ *Node) { f.Lock.Holder = "b" }, "uid-x", false, true},
		"being moved":                   {func(f *Facts, _ *Node) { f.Lock.MovedFrom = "b" }, "uid-x", false, true},
		"not there":                     {func(f *Facts, _ *Node) { f.Lock.Exists = false }, "uid-x", false, true},
		"that of a volume for several":  {func(f *Facts, _ *Node) { f.SingleUser, f.Lock.User = false, "" }, "", true, false},
		"that of a node without a wish": {func(f *Facts, n *Node) { n.Wanted = nil; f.Lock.User = "" }, "", true, false},
	} {
		f, n := single("x")
		f.Lock = lock
		i := n.Wanted[0]
		test.change(f, n)
		if got := f.LockUser(n); string(got.UID) != test.user ||
			test.user != "" && (got.Namespace != "default" || got.Name != "x") {
			t.Errorf("lock that is %s: next user %+v, want default/x with UID %q, or none if that is empty", name, got,
				test.user)
		}
		if f.Locked(n) != test.locked || f.LockNames(i) != test.uses {
			t.Errorf("lock that is %s: locked for node a %t, names intent x %t; want %t, %t", name, f.Locked(n), f.LockNames(i),
				test.locked, test.uses)
		}
	}
	f, n := single("x")
	n.Wanted[0].Object.UID = ""
	if f.LockNames(n.Wanted[0]) {
		t.Error("a lock without a user names an intent without a UID, want that it does not")
	}
}

func TestAnIntentReportsThatItIsNotTheSingleUserYet(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Facts, *Node)
		told   string
	}{
		"attached for another": {func(*Facts, *Node) {}, volumesv1alpha1.ReasonReadWriteOncePod},
		"not attached":         {func(_ *Facts, n *Node) { n.State.Entry = handshake.Entry{} }, ""},
		"it is the one":        {func(f *Facts, _ *Node) { f.Lock.User = "uid-x" }, ""},
		"it is pinned":         {func(_ *Facts, n *Node) { n.Wanted[0].Object.Status.UniqueVolumeName = "v" }, ""},
		"several may use it":   {func(f *Facts, _ *Node) { f.SingleUser = false }, ""},
	} {
		f, n := single("x")
		entry(handshake.Attached, "1")(n)
		f.Lock = handshake.Lock{Exists: true, Holder: "a", User: "uid-y"}
		i := n.Wanted[0]
		test.change(f, n)
		found := findUser(f, n, i)
		if got := reasonOf(found); got != test.told {
			t.Errorf("intent x (%s): reason %q, want %q", name, got, test.told)
		}
	}
}

func reasonOf(f *Finding) string {
	if f == nil {
		return ""
	}
	return f.Reason
}
