/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"errors"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/report"
	"github.com/hawser-io/hawser/internal/controller/resolve"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/status"
)

// report writes each intent's findings and returns when to look again by the clock.
func (c *Controller) report(ctx context.Context, f *Facts) (time.Duration, error) {
	c.farewells.observe(f, c.Clock.Now())
	var wait time.Duration
	var failures []error
	for _, n := range f.Nodes {
		c.reportRenamed(ctx, f, n)
		wait = sooner(wait, c.noteSilence(f, n))
		failures = append(failures, c.noteDetachError(ctx, f, n))
		for _, i := range n.Wanted {
			again, err := c.reportWanted(ctx, f, n, i)
			wait, failures = sooner(wait, again), append(failures, err)
		}
		for _, i := range n.Refused {
			found := refusal(f, i)
			if found == nil {
				continue
			}
			failures = append(failures, c.Reporter.Update(ctx, i.Object, func(intent *volumesv1alpha1.VolumeAttachmentIntent) {
				report.Resolved(intent, i.Result)
				c.apply(intent, i.Result.OK, found)
			}))
			wait = sooner(wait, c.Reporter.Remind(i.Object, found.Reason, found.Message))
		}
	}
	return wait, errors.Join(failures...)
}

// reportWanted leaves an attachment that has only just begun, or an agent that has only just started, unsaid for a moment.
func (c *Controller) reportWanted(ctx context.Context, f *Facts, n *Node, i *Intent) (time.Duration, error) {
	found := finding(f, n, i)
	if found == nil {
		return 0, nil
	}
	soon := found.Reason == volumesv1alpha1.ReasonAttaching || found.Reason == volumesv1alpha1.ReasonWaitingForAgent
	if left := c.begun.left(i.Object, f.Driver, soon, c.Clock.Now()); left > 0 {
		return left, nil
	}
	result := i.Result
	if result.OK && n.State.Entry.State != handshake.Attached && f.PolicyMissing != "" {
		result = resolve.PolicyMissing(f.PolicyMissing)
	}
	err := c.Reporter.Update(ctx, i.Object, func(intent *volumesv1alpha1.VolumeAttachmentIntent) {
		if i.Result.OK && c.mayPin(f, i) {
			report.Pin(intent, i.Result.Pins)
		}
		report.Resolved(intent, result)
		c.apply(intent, result.OK, found)
	})
	return c.Reporter.Remind(i.Object, found.Reason, found.Message), err
}

// apply puts a finding into the intent's status. While the intent does not resolve, lastError is about that.
func (c *Controller) apply(intent *volumesv1alpha1.VolumeAttachmentIntent, resolved bool, found *Finding) {
	was := meta.IsStatusConditionTrue(intent.Status.Conditions, volumesv1alpha1.ConditionAttached)
	status.Set(intent, volumesv1alpha1.ConditionAttached, found.Status, found.Reason, found.Message)
	switch {
	case found.Status == metav1.ConditionTrue:
		report.ClearError(intent, report.OperationAttach, report.OperationDetach)
		if !was {
			now := metav1.NewMicroTime(c.Clock.Now())
			report.Timeline(intent).Attached = &now
		}
	case !resolved || found.Reason == volumesv1alpha1.ReasonAttaching || found.Reason == volumesv1alpha1.ReasonDetaching:
	case found.Error != nil:
		setAttacherError(intent, found)
	default:
		report.SetError(intent, report.OperationAttach, found.Reason, found.Message)
	}
	status.SetReadyByController(intent)
}

// setAttacherError counts one failure of the driver's attacher for each time at which it reported one. It tries again by itself, at about
// the time that is named; ours is to wait for its answer.
func setAttacherError(intent *volumesv1alpha1.VolumeAttachmentIntent, found *Finding) {
	operation := report.OperationAttach
	if found.Reason == volumesv1alpha1.ReasonDetachFailed {
		operation = report.OperationDetach
	}
	at := found.Error.Time.Time
	last := intent.Status.LastError
	if last != nil && last.Operation == operation && last.NextAttemptTime != nil &&
		last.NextAttemptTime.Add(-status.Backoff(last.Attempts)).Equal(at) {
		return
	}
	if last != nil && last.NextAttemptTime == nil {
		// That was a wait for something else.
		last = nil
	}
	intent.Status.LastError = status.NextError(last, operation, codeOf(found.Error), found.Error.Message, at)
}

func codeOf(e *storagev1.VolumeError) string {
	if e.ErrorCode == nil {
		return "Unknown"
	}
	return report.CodeName(*e.ErrorCode)
}

// evidenceDue is when evidence may come to stand in for a node that does not let go; zero when it is not waited for.
func evidenceDue(f *Facts, p handshake.Protocol, n *Node) time.Duration {
	if n.State.Entry.State == handshake.Detaching {
		if n.Evidence == nil && awaitsLook(f.Replace, p, n) {
			return n.EvidenceDue
		}
		return 0
	}
	if len(n.Wanted) > 0 || n.Evidence != nil {
		return 0
	}
	foreign := f.Replace && n.Missing && len(n.Attachments) > 0
	if n.State.Entry.State == handshake.Absent && n.held() == nil && !foreign {
		return 0
	}
	return n.EvidenceDue
}

// sooner of two waits, of which zero is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
