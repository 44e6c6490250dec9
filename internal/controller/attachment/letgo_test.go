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

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
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
			err := c.collectLock(t.Context(), &decision.Facts{Volume: gone, Lock: handshake.Lock{Exists: true}})
			if r.lost == "" {
				break
			}
			if !errors.Is(err, errDown) || r.wroteAfter {
				t.Errorf("lock that is %s, answer to %s lost: error %v, wrote after it %t; want %v and no write", name, r.lost, err,
					r.wroteAfter, errDown)
			}
		}
	}
}

func TestALockInUseIsNotReadForCollection(t *testing.T) {
	c, _ := over(t, reported("a"), lockObject(gone, exclusive.Lock{Holder: "a"}))
	reads := counting(c)
	c.Locks = exclusive.New(c.Client, c.Reader, c.Clock, nil)
	if err := c.collectLock(t.Context(),
		&decision.Facts{Volume: gone, Lock: handshake.Lock{Exists: true}, Described: true}); err != nil || *reads > 0 {
		t.Errorf("lock of volume %s, which is in use: %d live reads, error %v; want none", gone, *reads, err)
	}
	if left, err := c.Locks.Read(t.Context(), gone); err != nil || left.Holder != "a" {
		t.Errorf("lock of volume %s, which is in use: %+v, error %v; want holder a", gone, left, err)
	}
}

func TestADeletedLockIsNoWork(t *testing.T) {
	c, _ := over(t, reported("a"))
	r := &requests{}
	r.through(c)
	f := &decision.Facts{Volume: gone, Lock: handshake.Lock{Exists: true, Holder: "a"}}
	if err := c.collectLock(t.Context(), f); err != nil || f.Lock.Exists || r.sent > 1 {
		t.Errorf("deleted lock of volume %s: %d requests, lock %+v, error %v; want at most 1 request and no lock", gone,
			r.sent, f.Lock, err)
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
		if err := c.collectLock(t.Context(),
			&decision.Facts{Volume: gone, Lock: handshake.Lock{Exists: true}}); err != nil {
			t.Fatal(err)
		}
		if left, err := c.Locks.Read(t.Context(), gone); err != nil || left.Holder != lock.Holder ||
			left.MovedFrom != lock.MovedFrom {
			t.Errorf("lock of volume %s, which is %s: %+v, error %v; want it unchanged: %+v", gone, name, left, err, lock)
		}
	}
}

func TestAChangedDeclarationEnqueuesItsVolume(t *testing.T) {
	c, _ := over(t)
	reason := declaredState()
	reason.Annotations[volumesv1alpha1.DeclaredReleasedPrefix+"1"] = "another reason"
	if got := woken(t, c.stateChanged, declaredState(), reason); !slices.Equal(got, []string{"v1"}) {
		t.Errorf("volumes that another reason of a declaration wakes: %v, want v1", got)
	}
	unreasoned := declaredState()
	unreasoned.Annotations[volumesv1alpha1.DeclaredReleasedPrefix+"1"] = ""
	without := declaredState()
	delete(without.Annotations, volumesv1alpha1.DeclaredReleasedPrefix+"1")
	if got := woken(t, c.stateChanged, without, unreasoned); !slices.Equal(got, []string{"v1"}) {
		t.Errorf("volumes that a declaration without a reason wakes: %v, want v1", got)
	}
	lists := 0
	c.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			lists++
			return errDown
		},
	})
	if got := woken(t, c.stateChanged, declaredState(), reason); !slices.Equal(got, []string{"v1"}) ||
		lists != 1 {
		t.Errorf("volumes that a declaration wakes while attachments cannot be listed: %v after %d lists; want v1 after 1",
			got, lists)
	}
	if woken(t, c.stateChanged, declaredState(), declaredState()); lists != 1 {
		t.Errorf("lists for a node state whose declarations are unchanged: %d, want none", lists-1)
	}
	if _, err := index.AttachmentsOf(t.Context(), c.Client, "a"); !errors.Is(err, errDown) {
		t.Errorf("listing the attachments to node a: error %v, want %v", err, errDown)
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
			t.Errorf("attachment of entry %+v: %v, error %v after %d reads; want none after %d", entry, va, err, *reads, want)
		}
	}
	c.deletions.observe(attachmentWithUID("1", "a"), attachmentWithUID("1", "a"))
	if c.deletions.has("1") {
		t.Error("attachment with UID 1 counts as deleted after a mere change, want it there")
	}
}
