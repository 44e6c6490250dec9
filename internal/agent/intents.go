/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/status"
)

// report tells the API what became of the volume: its line in company, its intents now.
func (a *Agent) report(ctx context.Context, v *volume, f facts) error {
	v.prune(f)
	a.inform(v, f)
	return a.reportIntents(ctx, v, f)
}

// inform has the volume's line written when something else is, or soon.
func (a *Agent) inform(v *volume, f facts) {
	if v.record != nil && v.record.held(f.now) {
		f.record = v.record
		a.state.inform(v.name, lineOf(v, f))
	}
}

// prune drops the failures of what is not planned any more.
func (v *volume) prune(f facts) {
	if f.busy || f.waitsForSession() {
		return
	}
	planned := map[act]bool{}
	for _, a := range plan(f) {
		planned[a] = true
	}
	maps.DeleteFunc(v.failures, func(a act, _ *failure) bool { return !planned[a] && !v.follows(a, planned) })
}

// follows: the act will be planned when what is planned before it is done.
func (v *volume) follows(a act, planned map[act]bool) bool {
	takes, stages := planned[act{verb: doTake}], planned[act{verb: doStage}]
	switch a.verb {
	case doStage:
		return takes
	case doPublish:
		return (takes || stages) && v.record != nil && v.record.use(a.intent) != nil
	}
	return false
}

// reportIntents writes the status of every intent of the volume, as far as it changes.
func (a *Agent) reportIntents(ctx context.Context, v *volume, f facts) error {
	var errs []error
	for _, i := range f.intents {
		s := viewOf(v, f, i)
		if s.skip {
			continue
		}
		if err := a.updateIntent(ctx, i, s); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// updateIntent brings the view into the intent's status. After a conflict the intent is read live; if it asks for
// something else than before, the watch brings it here again.
func (a *Agent) updateIntent(ctx context.Context, intent *volumesv1alpha1.VolumeAttachmentIntent, s view) error {
	next := intent.DeepCopy()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		before := next.Status.DeepCopy()
		s.apply(next, metav1.NewMicroTime(a.Clock.Now()))
		if equality.Semantic.DeepEqual(before, &next.Status) {
			return nil
		}
		a.step("before intent status")
		err := a.Live.Status().Update(ctx, next)
		a.step("after intent status")
		if !apierrors.IsConflict(err) {
			return err
		}
		live := &volumesv1alpha1.VolumeAttachmentIntent{}
		if err := a.Live.Get(ctx, client.ObjectKeyFromObject(next), live); err != nil {
			return err
		}
		if live.UID != intent.UID || live.Generation != intent.Generation || live.DeletionTimestamp.IsZero() != intent.DeletionTimestamp.IsZero() {
			next = nil
			return nil
		}
		next = live
		return err
	})
	if apierrors.IsNotFound(err) || next == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("writing status of intent %s: %w", client.ObjectKeyFromObject(intent), err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.written[next.UID] = next
	return nil
}

// lookAtIntent computes Ready of an intent that has no volume yet: the controller has said what it waits for.
func (a *Agent) lookAtIntent(ctx context.Context, k client.ObjectKey) error {
	intent := &volumesv1alpha1.VolumeAttachmentIntent{}
	if err := a.Cache.Get(ctx, k, intent); err != nil {
		return client.IgnoreNotFound(err)
	}
	intent = a.newestIntent(intent)
	if intent.Status.UniqueVolumeName != "" || !intent.DeletionTimestamp.IsZero() || !status.CarriedOutByAgent(intent) || !lookedAt(intent) {
		return nil
	}
	return a.updateIntent(ctx, intent, view{ready: true, keep: true})
}

// lookedAt says whether the cluster controller has said anything of the intent.
func lookedAt(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionResolved) != nil ||
		meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionAttached) != nil
}
