/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/handshake"
)

func testOutcomes(t *testing.T, c *cluster) {
	failures := map[driver.Outcome]bool{driver.Invalid: true, driver.NotFound: false, driver.Transient: false,
		driver.Uncertain: false}
	for _, method := range []string{"stage", "publish"} {
		for outcome, stalled := range failures {
			t.Run(method+" "+string(outcome), func(t *testing.T) {
				t.Parallel()
				n := c.node(t)
				n.driver.before = n.inUseIsSet
				v := testVolume{handle: "vol"}
				n.driver.fail(method, &driver.Error{Outcome: outcome, Code: "TheCode", Message: "the message"})
				n.start()
				n.attach(v, "uid-1")
				i := n.want(v, "data")
				condition := map[string]string{"stage": volumesv1alpha1.ConditionStaged,
					"publish": volumesv1alpha1.ConditionPublished}[method]
				reason := map[string]string{"stage": volumesv1alpha1.ReasonStageFailed,
					"publish": volumesv1alpha1.ReasonPublishFailed}[method]
				if outcome == driver.Uncertain {
					reason = volumesv1alpha1.ReasonOutcomeUncertain
				}
				got := n.condition(i, condition, reason)
				e := got.Status.LastError
				if e == nil || e.Operation != method || e.Code != "TheCode" || e.Message != "the message" ||
					e.Attempts != 1 || e.NextAttemptTime == nil {
					t.Errorf("%s failed: lastError %+v, want the driver's code and message, attempt 1 and the time of the next one",
						method, e)
				}
				if is := meta.IsStatusConditionTrue(got.Status.Conditions,
					volumesv1alpha1.ConditionStalled); is != stalled {
					t.Errorf("%s failed: Stalled %t, want %t", method, is, stalled)
				}
				if r := meta.FindStatusCondition(got.Status.Conditions, volumesv1alpha1.ConditionReady); r == nil ||
					r.Reason != reason || r.Message != "the message" {
					t.Errorf("%s failed: Ready %+v, want the reason %s and the driver's message", method, r, reason)
				}
				if stalled {
					// Another generation is tried at once.
					n.update(i, func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Spec.ReadOnly = true })
					if method == "stage" {
						n.changeEntry(v, func(e *volumesv1alpha1.NodeAttachment) { e.MountOptions = nil })
					}
				}
				got = n.ready(i)
				if got.Status.LastError != nil || meta.FindStatusCondition(got.Status.Conditions,
					volumesv1alpha1.ConditionStalled) != nil {
					t.Errorf("%s succeeds again: status %+v, want neither lastError nor Stalled", method, got.Status)
				}
				n.release(i)
				n.gone(v)
				n.nothingLeft()
			})
		}
	}
	for _, method := range []string{"unpublish", "unstage"} {
		for outcome := range failures {
			t.Run(method+" "+string(outcome), func(t *testing.T) {
				t.Parallel()
				n := c.node(t)
				if outcome == driver.Uncertain {
					n.timeout = 500 * time.Millisecond // the next call waits for it
				}
				n.driver.before = n.inUseIsSet
				v := testVolume{handle: "vol"}
				n.start()
				n.attach(v, "uid-1")
				i := n.want(v, "data")
				n.ready(i)
				n.driver.fail(method, &driver.Error{Outcome: outcome, Code: "TheCode", Message: "the message"})
				n.release(i)
				reason := map[string]string{"unpublish": volumesv1alpha1.ReasonUnpublishFailed,
					"unstage": volumesv1alpha1.ReasonUnstageFailed}[method]
				if outcome == driver.Uncertain {
					reason = volumesv1alpha1.ReasonOutcomeUncertain
				}
				got := n.condition(i, volumesv1alpha1.ConditionPublished, reason)
				if e := got.Status.LastError; e == nil || e.Operation != method {
					t.Errorf("%s failed: lastError %+v, want its operation", method, e)
				}
				n.gone(v)
				n.nothingLeft()
			})
		}
	}
}

func testHang(t *testing.T, c *cluster) {
	n := c.node(t)
	n.timeout = time.Second
	n.start()
	release := n.driver.hang("stage", "stuck")
	stuck, fine := testVolume{handle: "stuck"}, testVolume{handle: "fine"}
	n.attach(stuck, "uid-1")
	s := n.want(stuck, "stuck")
	n.called("stage stuck")
	n.attach(fine, "uid-2")
	n.ready(n.want(fine, "fine"))
	n.condition(s, volumesv1alpha1.ConditionStaged, volumesv1alpha1.ReasonOutcomeUncertain)
	n.release(s)
	// The call may have its effect yet: the volume stays in use, for as long as it takes.
	n.update(n.want(fine, "witness"), func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Spec.ReadOnly = true })
	n.state("the stuck volume in use", func(s *volumesv1alpha1.NodeVolumeState) bool {
		l := handshake.VolumeOf(s, stuck.name())
		return l != nil && l.InUse
	})
	if count, _ := n.driver.count("unstage stuck"); count != 0 {
		t.Errorf("volume stuck: %d unstage calls beside the one that hangs, want 0", count)
	}
	n.driver.clearHang("stage", "stuck")
	release()
	n.gone(stuck)
	if count, _ := n.driver.count("unstage stuck"); count == 0 {
		t.Error("volume stuck: no unstage call after the one that hung has ended, want one")
	}
}

func testOutage(t *testing.T, c *cluster) {
	n := c.node(t)
	n.timeout = 500 * time.Millisecond
	n.driver.before = n.inUseIsSet
	v := testVolume{handle: "vol"}
	a := n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	n.ready(i)
	a.writes.setDown(true)
	n.release(i)
	second := testVolume{handle: "second"}
	n.attach(second, "uid-2")
	j := n.want(second, "other")
	// The watch still brings what is wanted; nothing new may be mounted.
	n.called("unpublish vol")
	a.writes.setDown(false)
	n.gone(v)
	n.ready(j)
}

func testExpandFails(t *testing.T, c *cluster) {
	n, v, _ := c.attached(t)
	i := n.want(v, "data")
	n.ready(i)
	n.driver.fail("expand", &driver.Error{Outcome: driver.Transient, Code: "FailedPrecondition", Message: "not now"})
	n.grow(v, "2Gi")
	got := n.condition(i, volumesv1alpha1.ConditionExpanded, volumesv1alpha1.ReasonExpandFailed)
	if !meta.IsStatusConditionTrue(got.Status.Conditions, volumesv1alpha1.ConditionReady) {
		t.Errorf("intent %s: conditions %+v, want it Ready", got.Name, got.Status.Conditions)
	}
	n.condition(i, volumesv1alpha1.ConditionExpanded, volumesv1alpha1.ReasonExpanded)
}

func testPanic(t *testing.T, c *cluster) {
	n := c.node(t)
	n.timeout = 500 * time.Millisecond
	v := testVolume{handle: "vol"}
	n.driver.setBefore(func(string, string) error { panic("ouch") })
	n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	n.condition(i, volumesv1alpha1.ConditionStaged, volumesv1alpha1.ReasonOutcomeUncertain)
	n.driver.setBefore(nil)
	n.ready(i)
}

func testAttempts(t *testing.T, c *cluster) {
	n := c.node(t)
	v := testVolume{handle: "vol"}
	n.driver.setBefore(func(string, string) error {
		return &driver.Error{Outcome: driver.Transient, Code: "Internal", Message: "wrong"}
	})
	a := n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	attempted := func(more int32) int32 {
		return n.intent(i, "another attempt", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
			return i.Status.LastError != nil && i.Status.LastError.Attempts != more
		}).Status.LastError.Attempts
	}
	attempted(attempted(0))
	a.stop()
	var before volumesv1alpha1.VolumeAttachmentIntent
	n.must(n.client.Get(t.Context(), client.ObjectKeyFromObject(i), &before))
	n.start()
	if now := attempted(before.Status.LastError.Attempts); now <= before.Status.LastError.Attempts {
		t.Errorf("attempts for intent %s: %d before the restart, then %d; want more", before.Name,
			before.Status.LastError.Attempts, now)
	}
	n.driver.setBefore(nil)
	n.ready(i)
}
