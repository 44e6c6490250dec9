/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inline

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// ReasonWaitingForIntent is the reason of the event on a pod whose volume is not published yet.
const ReasonWaitingForIntent = "WaitingForIntent"

// wait is the wait of one call for the publication of its intent.
type wait struct {
	*Plugin
	ctx     context.Context
	request request
	changed <-chan struct{}
	forget  func()
	// over is when the call has to end, late when an event is due. unseen is when it has to end without an intent.
	over, late, unseen clock.Timer
	// because is what the call waits for.
	because string
	// missing: the node does not see the intent.
	missing bool
	// explained: the API server has shown why the cache does not have the intent.
	explained bool
}

func (p *Plugin) newWait(ctx context.Context, r request) *wait {
	w := &wait{Plugin: p, ctx: ctx, request: r}
	w.changed, w.forget = p.Changes.subscribe(r.intent)
	within := longestWait
	if deadline, ok := ctx.Deadline(); ok {
		within = time.Until(deadline)
	}
	w.over, w.late = p.Clock.NewTimer(within-answerBefore), p.Clock.NewTimer(reportWaitAfter)
	w.unseen = p.Clock.NewTimer(longestUnseen)
	return w
}

func (w *wait) end() {
	w.forget()
	w.over.Stop()
	w.late.Stop()
	w.unseen.Stop()
}

// await returns the publication once it is there.
func (w *wait) await() (found, error) {
	for {
		f, err := w.find()
		if err != nil || f.intent != nil {
			return f, err
		}
		if err := w.next(); err != nil {
			return found{}, err
		}
	}
}

// find returns the publication; nothing while it has to be waited for.
func (w *wait) find() (found, error) {
	intent, err := w.Intents.Cached(w.ctx, w.request.intent)
	w.missing = intent == nil
	switch {
	case err != nil:
		return found{}, internal(err)
	case w.missing:
		return found{}, w.absent()
	}
	if err := refuse(w.request, intent); err != nil {
		return found{}, err
	}
	published, err := w.Intents.Published(intent)
	switch {
	case err != nil:
		return found{}, internal(err)
	case published == nil:
		w.because = describe(intent)
		return found{}, nil
	case published.SinglePod && w.usedByAnother(published.VolumeName):
		return found{}, nil
	}
	return found{intent: intent, Publication: *published}, nil
}

// absent explains once why the node does not have the intent. The manager deletes the intent of a claim when the pod
// ends, and creates none again: a kubelet that still asks for the pod must get its answer, or the pod cannot end. If
// somebody else has deleted the intent, the kubelet asks again and finds the next one.
func (w *wait) absent() error {
	if w.request.claim != "" && w.Changes.hasEnded(w.request.intent) {
		return refused("VolumeAttachmentIntent %s was deleted, as it is when its pod ends", w.request.intent)
	}
	w.because = fmt.Sprintf("waiting until the node sees VolumeAttachmentIntent %s", w.request.intent)
	if w.request.claim != "" {
		w.because = fmt.Sprintf("waiting until Hawser has created VolumeAttachmentIntent %s for claim %s",
			w.request.intent, w.request.claim)
	}
	if w.explained {
		return nil
	}
	w.explained = true
	return w.explainAbsent(w.ctx, w.request)
}

// usedByAnother reports whether another pod has the volume, which allows a single one.
func (w *wait) usedByAnother(volumeName string) bool {
	for _, b := range w.Pods.OfVolume(volumeName) {
		if b.Pod.UID != w.request.pod.UID {
			w.because = fmt.Sprintf("the volume's access mode ReadWriteOncePod allows a single pod, which is %s", b.Pod)
			return true
		}
	}
	return false
}

// describe returns what the intent itself reports that it waits for.
func describe(intent *volumesv1alpha1.VolumeAttachmentIntent) string {
	why := "the agent is publishing its volume"
	ready := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionReady)
	if ready != nil && ready.Status != metav1.ConditionTrue {
		why = ready.Reason + ": " + ready.Message
	}
	return fmt.Sprintf("waiting for VolumeAttachmentIntent %s/%s: %s", intent.Namespace, intent.Name, why)
}

// next returns at the next change of what is waited for, or with the reason of the wait once the call has to end.
func (w *wait) next() error {
	for {
		select {
		case <-w.changed:
			return nil
		case <-w.late.C():
			if w.podEnds() {
				// Not final: the kubelet asks to unpublish.
				return status.Errorf(codes.Aborted, "pod %s is being deleted", w.request.pod)
			}
			w.reportWait()
		case <-w.unseen.C():
			if w.missing {
				return status.Error(codes.DeadlineExceeded, w.because)
			}
		case <-w.over.C():
			// Not final: the kubelet tries again, and asks to unpublish when the pod ends.
			return status.Error(codes.DeadlineExceeded, w.because)
		case <-w.ctx.Done():
			return status.FromContextError(w.ctx.Err()).Err()
		}
	}
}

// podEnds reports whether the pod is being deleted. The kubelet ends a pod only once no call for it goes on. A pod that
// is not found may be a static one, whose mirror is not there.
func (w *wait) podEnds() bool {
	pod, err := w.Intents.Pod(w.ctx, w.request.pod)
	return err == nil && isPod(pod, w.request.pod) && pod.DeletionTimestamp != nil
}

// reportWait sends the one event of the call about what it waits for.
func (w *wait) reportWait() {
	w.event(w.request.pod, nil, ReasonWaitingForIntent, w.because)
}
