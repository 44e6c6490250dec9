/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"errors"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/handshake"
)

func TestALockIsCollectedOnlyWhenEachRequestIsAnswered(t *testing.T) {
	for name, lock := range map[string]exclusive.Lock{
		"held": {Holder: "a"}, "given up": {MovedFrom: "a"}, "being moved": {Holder: "b", MovedFrom: "a"},
	} {
		for fails := 1; ; fails++ {
			c, _ := over(t, reported("a"), reported("b"), lockObject(gone, lock))
			r := &requests{fails: fails}
			r.through(c)
			err := c.collect(t.Context(), &Facts{Volume: gone, Lock: handshake.Lock{Exists: true}})
			if r.lost == "" {
				break
			}
			if !errors.Is(err, errDown) || r.wroteAfter {
				t.Errorf("%s: %s is not answered: %v, wrote after it: %t", name, r.lost, err, r.wroteAfter)
			}
		}
	}
}

func TestALockThatIsNeededIsNotLookedAt(t *testing.T) {
	c, _ := over(t, reported("a"), lockObject(gone, exclusive.Lock{Holder: "a"}))
	reads := counting(c)
	c.Locks = exclusive.New(c.Client, c.Reader, c.Clock, nil)
	if err := c.collect(t.Context(), &Facts{Volume: gone, Lock: handshake.Lock{Exists: true}, Described: true}); err != nil || *reads > 0 {
		t.Errorf("%d live reads, %v", *reads, err)
	}
	if left, err := c.Locks.Read(t.Context(), gone); err != nil || left.Holder != "a" {
		t.Errorf("the lock: %+v, %v", left, err)
	}
}

func TestALockThatIsGoneIsNoWork(t *testing.T) {
	c, _ := over(t, reported("a"))
	r := &requests{}
	r.through(c)
	f := &Facts{Volume: gone, Lock: handshake.Lock{Exists: true, Holder: "a"}}
	if err := c.collect(t.Context(), f); err != nil || f.Lock.Exists || r.sent > 1 {
		t.Errorf("%d requests, %+v, %v", r.sent, f.Lock, err)
	}
}

func TestALockIsNotGivenUpWhileItsNodeHasTheVolume(t *testing.T) {
	for name, objects := range map[string][]client.Object{
		"attached":               {entryIn(reported("a"), volumesv1alpha1.AttachmentAttached, "1", "")},
		"moved from, and in use": {usedIn(reported("a"), "1"), reported("b")},
	} {
		lock := exclusive.Lock{Holder: "a"}
		if len(objects) > 1 {
			lock = exclusive.Lock{Holder: "b", MovedFrom: "a"}
		}
		for _, o := range objects {
			for i := range o.(*volumesv1alpha1.NodeVolumeState).Spec.Attachments {
				o.(*volumesv1alpha1.NodeVolumeState).Spec.Attachments[i].VolumeName = gone
			}
			for i := range o.(*volumesv1alpha1.NodeVolumeState).Status.Volumes {
				o.(*volumesv1alpha1.NodeVolumeState).Status.Volumes[i].VolumeName = gone
			}
		}
		c, _ := over(t, append(objects, lockObject(gone, lock))...)
		if err := c.collect(t.Context(), &Facts{Volume: gone, Lock: handshake.Lock{Exists: true}}); err != nil {
			t.Fatal(err)
		}
		if left, err := c.Locks.Read(t.Context(), gone); err != nil || left.Holder != lock.Holder || left.MovedFrom != lock.MovedFrom {
			t.Errorf("%s: the lock is %+v, %v", name, left, err)
		}
	}
}

func TestWhatAnAdministratorSaysIsEvidence(t *testing.T) {
	state := handshake.Node{Declared: []handshake.Declaration{{UID: "1", Reason: "scrapped"}, {UID: "2"}}}
	for uid, want := range map[string]string{"1": "scrapped", "2": "no reason given", "3": ""} {
		e := declaration(state, types.UID(uid))
		if (e != nil) != (want != "") || e != nil && (e.Message != want || e.Type != volumesv1alpha1.EvidenceDeclaredByAdministrator) {
			t.Errorf("attachment %s: %+v", uid, e)
		}
	}
}

func TestWhatWasDeclaredReleasedIsMarkedOnce(t *testing.T) {
	for name, test := range map[string]struct {
		node    *Node
		replace bool
		want    bool
	}{
		"it is being deleted":                        {on("a", va("1", "terminating"), entry(handshake.Detaching, "1"), declared("1")), false, false},
		"another use keeps it":                       {on("a", va("1", "held"), entry(handshake.Detaching, "1"), inUse("2"), declared("1")), false, false},
		"it was forced already":                      {on("a", va("1", "held"), entry(handshake.Detaching, "1"), forced, declared("1")), false, false},
		"its attachment is gone":                     {on("a", entry(handshake.Detaching, "1"), declared("1")), false, false},
		"it is marked":                               {on("a", va("1", "held"), entry(handshake.Detaching, "1"), declared("1")), false, true},
		"it waits for a look, and there is evidence": {on("a", va("1", "held"), entry(handshake.Detaching, "1"), tainted), true, true},
		"it waits for no look":                       {on("a", va("1", "held"), entry(handshake.Detaching, "1"), tainted, lookedSince, unlistedBefore), true, false},
	} {
		steps := restOnEvidence(&Facts{Volume: "v", Replace: test.replace, Nodes: []*Node{test.node}}, handshake.Protocol{Kubelet: test.replace}, test.node)
		if (len(steps) == 1) != test.want || test.want && (steps[0].Act != MarkDetaching || !steps[0].Evidence || steps[0].Attachment == nil ||
			steps[0].Attachment.UID != "1" || steps[0].Node != test.node) {
			t.Errorf("%s: %+v", name, steps)
		}
	}
	for name, test := range map[string]struct {
		node    *Node
		replace bool
		want    bool
	}{
		"beside upstream":        {on("a", va("1", "held"), entry(handshake.Detaching, "1")), false, false},
		"in place of upstream":   {on("a", va("1", "held"), entry(handshake.Detaching, "1")), true, true},
		"its attachment is gone": {on("a", entry(handshake.Detaching, "1")), true, false},
		"it is being deleted":    {on("a", va("1", "terminating"), entry(handshake.Detaching, "1")), true, false},
		"it was forced":          {on("a", va("1", "held"), entry(handshake.Detaching, "1"), forced), true, false},
	} {
		if got := awaitsLook(test.replace, handshake.Protocol{Kubelet: test.replace}, test.node); got != test.want {
			t.Errorf("%s: waits for a look %t", name, got)
		}
	}
}

func TestADeclarationThatChangesWakesItsVolume(t *testing.T) {
	c, _ := over(t)
	reason := declaredState()
	reason.Annotations[volumesv1alpha1.DeclaredReleasedPrefix+"1"] = "another reason"
	if got := woken(t, c.stateChanged, declaredState(), reason); !slices.Equal(got, []string{"v1"}) {
		t.Errorf("another reason wakes %v", got)
	}
	unreasoned := declaredState()
	unreasoned.Annotations[volumesv1alpha1.DeclaredReleasedPrefix+"1"] = ""
	without := declaredState()
	delete(without.Annotations, volumesv1alpha1.DeclaredReleasedPrefix+"1")
	if got := woken(t, c.stateChanged, without, unreasoned); !slices.Equal(got, []string{"v1"}) {
		t.Errorf("one without a reason wakes %v", got)
	}
	lists := 0
	c.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			lists++
			return errDown
		},
	})
	if got := woken(t, c.stateChanged, declaredState(), reason); !slices.Equal(got, []string{"v1"}) || lists != 1 {
		t.Errorf("where the attachments cannot be listed: %v after %d", got, lists)
	}
	if woken(t, c.stateChanged, declaredState(), declaredState()); lists != 1 {
		t.Errorf("%d lists where nothing has changed", lists-1)
	}
	if _, err := index.AttachmentsOf(t.Context(), c.Client, "a"); !errors.Is(err, errDown) {
		t.Error(err)
	}
}

func TestAnAttachmentOfAnEntryIsReadUnlessItIsKnownToBeGone(t *testing.T) {
	c, _ := over(t)
	reads := counting(c)
	for entry, want := range map[*volumesv1alpha1.NodeAttachment]int{
		{AttachmentUID: "1"}:                          0, // a driver that needs no attachment
		{AttachmentUID: "1", AttachmentName: "csi-1"}: 1,
	} {
		*reads = 0
		if va, err := c.readEntryAttachment(t.Context(), entry); va != nil || err != nil || *reads != want {
			t.Errorf("%+v: %v, %v after %d reads", entry, va, err, *reads)
		}
	}
	c.departed.observe(attachmentWithUID("1", "a"), attachmentWithUID("1", "a"))
	if c.departed.has("1") {
		t.Error("what was only changed counts as gone")
	}
}
