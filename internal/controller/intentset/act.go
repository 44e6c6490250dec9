/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intentset

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// +kubebuilder:rbac:groups=volumes.hawser.io,resources=volumeattachmentintents,verbs=create;patch;delete
// +kubebuilder:rbac:groups=volumes.hawser.io,resources=volumeattachmentintentsets/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;create

// mostRefusals is how many refused creates a pass makes. What refuses one may refuse every other, or none.
const mostRefusals = 3

// act carries out the plan, and adds what the API server did not take to its problems.
func (c *Controller) act(ctx context.Context, f facts, p *plan) error {
	if len(p.adopt)+len(p.remove)+len(p.replace) > 0 {
		if current, err := c.isCurrent(ctx, f.set); err != nil || !current {
			return err
		}
	}
	return errors.Join(c.adopt(ctx, f, p.adopt), c.remove(ctx, f, p), c.delete(ctx, p, p.replace...), c.create(ctx, f, p))
}

// isCurrent reports whether the set, read live, is the one of the plan: the cache may have one that asked for something
// else, or one that is deleted by now.
func (c *Controller) isCurrent(ctx context.Context, set *volumesv1alpha1.VolumeAttachmentIntentSet) (bool, error) {
	live := &volumesv1alpha1.VolumeAttachmentIntentSet{}
	if err := c.Reader.Get(ctx, client.ObjectKeyFromObject(set), live); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return live.UID == set.UID && live.Generation == set.Generation && live.DeletionTimestamp.IsZero(), nil
}

// create makes claims and intents. It begins with any of the nodes, so that those that are refused each time do not
// keep the others waiting.
func (c *Controller) create(ctx context.Context, f facts, p *plan) error {
	refused := 0
	for i := range inTurn(p.claims) {
		problem, err := c.ensureClaim(ctx, f, p.claims[i].name)
		if err != nil {
			return err
		}
		if refused += p.outcome.add(problem); refused == mostRefusals {
			return nil
		}
	}
	missing := len(p.create)
	for i := range inTurn(p.create) {
		problem, err := c.createOne(ctx, f, p.create[i])
		if err != nil {
			return err
		}
		if problem == nil {
			missing--
		}
		if refused += p.outcome.add(problem); refused == mostRefusals {
			break
		}
	}
	p.outcome.failing += int32(missing) //nolint:gosec // a number of nodes
	return nil
}

// add a problem, nil for none. It returns 1 for one that other creates may have too.
func (o *outcome) add(p *problem) (refusals int) {
	if p == nil {
		return 0
	}
	o.problems = append(o.problems, *p)
	if p.reason == volumesv1alpha1.ReasonIntentRefused {
		return 1
	}
	return 0
}

// inTurn are the indexes of a list, from any of them on.
func inTurn[T any](list []T) iter.Seq[int] {
	return func(yield func(int) bool) {
		if len(list) == 0 {
			return
		}
		first := rand.IntN(len(list)) //nolint:gosec // not a secret
		for i := range list {
			if !yield((first + i) % len(list)) {
				return
			}
		}
	}
}

func (c *Controller) createOne(ctx context.Context, f facts, node nodeFacts) (*problem, error) {
	if f.set.Spec.ClaimTemplate != nil {
		if problem, err := c.ensureClaim(ctx, f, node.name); problem != nil || err != nil {
			return problem, err
		}
	}
	intent := f.newIntent(node.name)
	switch err := c.Client.Create(ctx, intent); {
	case apierrors.IsAlreadyExists(err):
		// That of an earlier pass, or on its way out, whose end is an event; or another's.
		live := &volumesv1alpha1.VolumeAttachmentIntent{}
		err := c.Reader.Get(ctx, client.ObjectKeyFromObject(intent), live)
		if err != nil || belongs(f.set, live) {
			return nil, client.IgnoreNotFound(err)
		}
		return &problem{volumesv1alpha1.ReasonNameTaken, fmt.Sprintf(
			"VolumeAttachmentIntent %s was not made for this set; delete or rename it", intent.Name)}, nil
	default:
		return refusal("creating VolumeAttachmentIntent "+intent.Name, err)
	}
}

// ensureClaim makes the claim of a node, or finds that of an earlier intent there.
func (c *Controller) ensureClaim(ctx context.Context, f facts, node string) (*problem, error) {
	claim, live := f.newClaim(node), &corev1.PersistentVolumeClaim{}
	err := c.Reader.Get(ctx, client.ObjectKeyFromObject(claim), live)
	switch {
	case apierrors.IsNotFound(err):
		return refusal("creating PersistentVolumeClaim "+claim.Name, c.Client.Create(ctx, claim))
	case err != nil:
		return nil, fmt.Errorf("reading claim %s: %w", claim.Name, err)
	case !f.isClaimOf(live, node):
		return &problem{volumesv1alpha1.ReasonNameTaken, fmt.Sprintf(
			"PersistentVolumeClaim %s was not made for this set; delete it, or give it label %s=%s and annotation %s=%s",
			claim.Name, volumesv1alpha1.IntentSetLabel, f.set.Name, volumesv1alpha1.IntentSetNodeAnnotation, node)}, nil
	}
	return nil, nil
}

// refusal sorts the answer to a write: what the API server, or a webhook of it, does not take is a problem, and no
// error with a backoff.
func refusal(what string, err error) (*problem, error) {
	switch {
	case err == nil:
		return nil, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil, nil // the set goes with its namespace
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsInternalError(err):
		return &problem{volumesv1alpha1.ReasonIntentRefused, fmt.Sprintf("%s: %s", what, err)}, nil
	}
	return nil, fmt.Errorf("%s: %w", what, err)
}

// adopt sets the set as the controller of intents that have none.
func (c *Controller) adopt(ctx context.Context, f facts, intents []*volumesv1alpha1.VolumeAttachmentIntent) error {
	for _, intent := range intents {
		adopted := intent.DeepCopy()
		adopted.OwnerReferences = append(adopted.OwnerReferences, ownerReference(f.set))
		patch := client.MergeFromWithOptions(intent, client.MergeFromWithOptimisticLock{})
		err := c.Client.Patch(ctx, adopted, patch)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("adopting intent %s: %w", intent.Name, err)
		}
	}
	return nil
}

// remove deletes intents whose node is not selected or goes, if the Node, read live, is.
func (c *Controller) remove(ctx context.Context, f facts, p *plan) error {
	for _, intent := range p.remove {
		node := &corev1.Node{}
		err := c.Reader.Get(ctx, client.ObjectKey{Name: intent.Spec.NodeName}, node)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading node %s: %w", intent.Spec.NodeName, err)
		}
		if err == nil && !c.goes(node) && intent.Name == IntentName(f.set.Name, node.Name) &&
			f.selector.Matches(labels.Set(node.Labels)) {
			continue
		}
		if err := c.delete(ctx, p, intent); err != nil {
			return err
		}
	}
	return nil
}

// delete the intents, each under the UID that was decided on, and each after the label of its Node.
func (c *Controller) delete(ctx context.Context, p *plan, intents ...*volumesv1alpha1.VolumeAttachmentIntent) error {
	var failures []error
	for _, intent := range intents {
		c.leaving.Store(intent.UID, nil)
		err := c.labeller.withdraw(ctx, intent)
		if err == nil {
			err = c.Client.Delete(ctx, intent.DeepCopy(), client.Preconditions{UID: ptr.To(intent.UID)})
		}
		if err == nil {
			continue
		}
		c.leaving.Delete(intent.UID)
		c.labeller.wake(intent.Spec.NodeName)
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			continue
		}
		problem, err := refusal("deleting VolumeAttachmentIntent "+intent.Name, err)
		p.outcome.add(problem)
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// isLeaving reports whether the intent is being deleted, as the cache has it or as the API server answered.
func (c *Controller) isLeaving(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	_, deleted := c.leaving.Load(intent.UID)
	return deleted || !intent.DeletionTimestamp.IsZero()
}
