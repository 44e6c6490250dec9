/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
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

func TestADeclarationIsTakenOffOnce(t *testing.T) {
	listing := func(c client.Client, fails bool) client.Client {
		return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
			List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if fails {
					return errDown
				}
				return w.List(ctx, list, opts...)
			},
		})
	}
	request := reconcile.Request{NamespacedName: client.ObjectKey{Name: "a"}}
	t.Run("not where the attachments cannot be listed", func(t *testing.T) {
		c, _ := over(t, declaredState())
		d := &Declarations{Client: listing(c.Client, true), Writer: c.Writer, Events: events.NewFakeRecorder(10)}
		if _, err := d.Reconcile(t.Context(), request); !errors.Is(err, errDown) || !strings.Contains(err.Error(), "node a") {
			t.Error(err)
		}
		if len(liveState(t, c, "a").Annotations) != 6 {
			t.Errorf("declared: %v", liveState(t, c, "a").Annotations)
		}
	})
	t.Run("not where the state cannot be read or is gone", func(t *testing.T) {
		c, _ := over(t, declaredState())
		failing(c, true, "*v1alpha1.NodeVolumeState")
		d := &Declarations{Client: c.Client, Writer: c.Writer, Events: events.NewFakeRecorder(10)}
		if _, err := d.Reconcile(t.Context(), request); !errors.Is(err, errDown) {
			t.Error(err)
		}
		if got := d.ofAttachment(t.Context(), attachmentWithUID("9", "a")); len(got) != 1 || got[0].Name != "a" {
			t.Errorf("an attachment that went wakes %v", got)
		}
		c, _ = over(t)
		d = &Declarations{Client: c.Client, Writer: c.Writer}
		if _, err := d.Reconcile(t.Context(), request); err != nil {
			t.Error(err)
		}
	})
	for name, test := range map[string]struct {
		// cached is what the cache shows, live what stands.
		cached, live func(*volumesv1alpha1.NodeVolumeState)
		left, told   int
		fails        bool
	}{
		"nothing names it":                  {nil, nil, 1, 4, false},
		"the API does not have it any more": {nil, func(s *volumesv1alpha1.NodeVolumeState) { s.Annotations = map[string]string{"other": "1"} }, 1, 0, false},
		"its entry has come meanwhile": {nil, func(s *volumesv1alpha1.NodeVolumeState) {
			s.Spec.Attachments = append(s.Spec.Attachments, volumesv1alpha1.NodeAttachment{AttachmentUID: "5"})
		}, 2, 3, false},
		"the write is not taken": {nil, nil, 6, 0, true},
		"the cache still shows it in use": {func(s *volumesv1alpha1.NodeVolumeState) {
			s.Status.Volumes = []volumesv1alpha1.NodeVolume{{AttachmentUID: "2"}, {AttachmentUID: "5"}}
		}, nil, 3, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			cached, live := declaredState(), declaredState()
			live.Spec.Attachments, live.Status.Volumes = nil, nil
			cached.Spec.Attachments, cached.Status.Volumes = nil, nil
			delete(cached.Annotations, volumesv1alpha1.DeclaredReleasedPrefix+"1")
			delete(live.Annotations, volumesv1alpha1.DeclaredReleasedPrefix+"1")
			if test.cached != nil {
				test.cached(cached)
			}
			if test.live != nil {
				test.live(live)
			}
			c, _ := over(t, live)
			changed := liveState(t, c, "a") // and so newer than what the cache shows
			changed.Labels = map[string]string{"newer": "true"}
			if err := c.Client.Update(t.Context(), changed); err != nil {
				t.Fatal(err)
			}
			behind(t, c, cached)
			c.Writer.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
				Update: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
					if test.fails {
						return errDown
					}
					return w.Update(ctx, o, opts...)
				},
			})
			recorder := events.NewFakeRecorder(10)
			d := &Declarations{Client: c.Client, Writer: c.Writer, Events: recorder}
			_, err := d.Reconcile(t.Context(), request)
			left := len(liveState(t, c, "a").Annotations)
			if test.fails {
				left++ // attachment 1 is not declared here
			}
			if errors.Is(err, errDown) != test.fails || left != test.left || len(recorder.Events) != test.told {
				t.Errorf("%v, %d left, %d told", err, left, len(recorder.Events))
			}
			if test.told > 0 {
				if e := <-recorder.Events; !strings.Contains(e, "node a") || !strings.Contains(e, "attachment ") {
					t.Error(e)
				}
			}
		})
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
	if _, err := attachmentsOn(t.Context(), c.Client, "a"); !errors.Is(err, errDown) {
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
