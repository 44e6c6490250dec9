/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intentset

import (
	"context"
	"errors"
	"fmt"

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

// act carries out the plan, and returns what the API server did not take.
func (c *Controller) act(ctx context.Context, f facts, p plan) ([]problem, error) {
	unadopted := c.adopt(ctx, f, p.adopt)
	unremoved := c.remove(ctx, f, p.remove)
	unreplaced := c.delete(ctx, p.replace)
	problems, uncreated := c.create(ctx, f, p)
	return problems, errors.Join(unadopted, unremoved, unreplaced, uncreated)
}

// create makes claims and intents. It stops at the first refusal: what refuses one refuses most of the others.
func (c *Controller) create(ctx context.Context, f facts, p plan) ([]problem, error) {
	var problems []problem
	for _, node := range p.claims {
		problem, err := c.ensureClaim(ctx, f, node.name)
		if problem != nil {
			problems = append(problems, *problem)
		}
		if err != nil {
			return problems, err
		}
	}
	for i, node := range p.create {
		problem, err := c.createOne(ctx, f, node)
		if problem == nil && err == nil {
			continue
		}
		if problem != nil && problem.reason == volumesv1alpha1.ReasonIntentRefused && i < len(p.create)-1 {
			problem.message += fmt.Sprintf(" (%d more nodes wait)", len(p.create)-1-i)
		}
		if problem != nil {
			problems = append(problems, *problem)
		}
		if err != nil || problem.reason == volumesv1alpha1.ReasonIntentRefused {
			return problems, err
		}
	}
	return problems, nil
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
		return refusal(fmt.Sprintf("VolumeAttachmentIntent %s", intent.Name), err)
	}
}

// ensureClaim makes the claim of a node, or finds that of an earlier intent there.
func (c *Controller) ensureClaim(ctx context.Context, f facts, node string) (*problem, error) {
	claim, live := f.newClaim(node), &corev1.PersistentVolumeClaim{}
	err := c.Reader.Get(ctx, client.ObjectKeyFromObject(claim), live)
	switch {
	case apierrors.IsNotFound(err):
		return refusal(fmt.Sprintf("PersistentVolumeClaim %s", claim.Name), c.Client.Create(ctx, claim))
	case err != nil:
		return nil, fmt.Errorf("reading claim %s: %w", claim.Name, err)
	case !f.isClaimOf(live, node):
		return &problem{volumesv1alpha1.ReasonNameTaken, fmt.Sprintf(
			"PersistentVolumeClaim %s was not made for this set; delete it, or give it label %s=%s and annotation %s=%s",
			claim.Name, volumesv1alpha1.IntentSetLabel, f.set.Name, volumesv1alpha1.IntentSetNodeAnnotation, node)}, nil
	}
	return nil, nil
}

// refusal sorts the answer to a create: what the API server does not take is a problem, and no error with a backoff.
func refusal(what string, err error) (*problem, error) {
	switch {
	case err == nil:
		return nil, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil, nil // the set goes with its namespace
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		return &problem{volumesv1alpha1.ReasonIntentRefused, err.Error()}, nil
	}
	return nil, fmt.Errorf("creating %s: %w", what, err)
}

// adopt sets the set as the controller of intents that have none. The set is read live before: one that is being
// deleted adopts nothing.
func (c *Controller) adopt(ctx context.Context, f facts, intents []*volumesv1alpha1.VolumeAttachmentIntent) error {
	if len(intents) == 0 {
		return nil
	}
	live := &volumesv1alpha1.VolumeAttachmentIntentSet{}
	err := c.Reader.Get(ctx, client.ObjectKeyFromObject(f.set), live)
	if err != nil || live.UID != f.set.UID || !live.DeletionTimestamp.IsZero() {
		return client.IgnoreNotFound(err)
	}
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

// remove deletes intents whose node is not selected, if the Node, read live, is not.
func (c *Controller) remove(ctx context.Context, f facts, intents []*volumesv1alpha1.VolumeAttachmentIntent) error {
	for _, intent := range intents {
		node := &corev1.Node{}
		err := c.Reader.Get(ctx, client.ObjectKey{Name: intent.Spec.NodeName}, node)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading node %s: %w", intent.Spec.NodeName, err)
		}
		if err == nil && intent.Name == IntentName(f.set.Name, node.Name) && f.selector.Matches(labels.Set(node.Labels)) {
			continue
		}
		if err := c.delete(ctx, []*volumesv1alpha1.VolumeAttachmentIntent{intent}); err != nil {
			return err
		}
	}
	return nil
}

// delete the intents, each under the UID that was decided on.
func (c *Controller) delete(ctx context.Context, intents []*volumesv1alpha1.VolumeAttachmentIntent) error {
	var failures []error
	for _, intent := range intents {
		c.leaving.Store(intent.UID, nil)
		err := c.Client.Delete(ctx, intent.DeepCopy(), client.Preconditions{UID: ptr.To(intent.UID)})
		if err != nil {
			c.leaving.Delete(intent.UID)
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			failures = append(failures, fmt.Errorf("deleting intent %s: %w", intent.Name, err))
		}
	}
	return errors.Join(failures...)
}

// isLeaving reports whether the intent is being deleted, as the cache has it or as the API server answered.
func (c *Controller) isLeaving(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	_, deleted := c.leaving.Load(intent.UID)
	return deleted || !intent.DeletionTimestamp.IsZero()
}
