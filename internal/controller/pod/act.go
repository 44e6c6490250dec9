/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package pod

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
)

// +kubebuilder:rbac:groups=volumes.hawser.io,resources=volumeattachmentintents,verbs=get;create;delete

// Why an intent could not be written, as events on the pod have it.
const (
	// reasonNameTaken: something that is not the pod's intent has its name.
	reasonNameTaken = "IntentNameTaken"
	// reasonRefused: the API server does not take it, for a quota or an admission policy.
	reasonRefused = "IntentRefused"
)

// create makes the intents, and returns what keeps one from being made.
func (c *Controller) create(ctx context.Context, volumes []*podVolume) ([]problem, error) {
	var problems []problem
	var failures []error
	for _, v := range volumes {
		p, err := c.createOne(ctx, v.intent)
		if p != nil {
			p.volume = v.name
			problems = append(problems, *p)
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("creating intent %s/%s: %w", v.intent.Namespace, v.intent.Name, err))
		}
	}
	return problems, errors.Join(failures...)
}

func (c *Controller) createOne(ctx context.Context, intent *volumesv1alpha1.VolumeAttachmentIntent) (*problem, error) {
	switch err := c.Client.Create(ctx, intent.DeepCopy()); {
	case apierrors.IsAlreadyExists(err):
		// That of an earlier pass, or on its way out, whose end is an event; or another's.
		taken, err := c.taken(ctx, intent)
		if err != nil || !taken {
			return nil, err
		}
		return &problem{reason: reasonNameTaken, message: fmt.Sprintf(
			"VolumeAttachmentIntent %s/%s was not made by Hawser for this pod; delete it", intent.Namespace, intent.Name)}, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		// The pod goes with its namespace, where no event can be written either.
		return nil, nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		return &problem{reason: reasonRefused, message: err.Error()}, err
	default:
		return nil, err
	}
}

// taken reads live whether what has the intent's name is another's.
func (c *Controller) taken(ctx context.Context, intent *volumesv1alpha1.VolumeAttachmentIntent) (bool, error) {
	live := &volumesv1alpha1.VolumeAttachmentIntent{}
	if err := c.Reader.Get(ctx, client.ObjectKeyFromObject(intent), live); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	_, wanted, _ := index.PodOf(intent)
	_, uid, ok := index.PodOf(live)
	return !ok || uid != wanted, nil
}

// delete takes the intents back, each under the UID that was decided on.
func (c *Controller) delete(ctx context.Context, intents []*volumesv1alpha1.VolumeAttachmentIntent) error {
	var failures []error
	for _, intent := range intents {
		if c.isLeaving(intent) {
			continue
		}
		c.leaving.Store(intent.UID, nil)
		err := c.Client.Delete(ctx, intent, client.Preconditions{UID: ptr.To(intent.UID)})
		if err != nil {
			c.leaving.Delete(intent.UID)
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			failures = append(failures, fmt.Errorf("deleting intent %s/%s: %w", intent.Namespace, intent.Name, err))
		}
	}
	return errors.Join(failures...)
}

// isLeaving reports whether the intent is being deleted, as the cache has it or as the API server answered.
func (c *Controller) isLeaving(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	_, deleted := c.leaving.Load(intent.UID)
	return deleted || !intent.DeletionTimestamp.IsZero()
}
