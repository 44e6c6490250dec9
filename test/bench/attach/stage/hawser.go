/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package stage

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// Lasting is longer than any run: an agent whose Lease lasts so long need not renew it.
const Lasting = 7 * 24 * time.Hour

// SetLeases creates the missing Leases of the nodes' agents, which last so long.
func (s *Stage) SetLeases(ctx context.Context, duration func(node string) time.Duration) error {
	return Each(ctx, s.Nodes, func(ctx context.Context, node string) error {
		now := metav1.NowMicro()
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: volumesv1alpha1.InstallNamespace,
				Name: volumesv1alpha1.AgentLeasePrefix + node},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &node, LeaseDurationSeconds: ptr.To(int32(duration(node).Seconds())),
				AcquireTime: &now, RenewTime: &now},
		}
		if err := s.client.Create(ctx, lease); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("creating the Lease of node %s: %w", node, err)
		}
		return nil
	})
}

// SetStates creates the missing NodeVolumeStates.
func (s *Stage) SetStates(ctx context.Context) error {
	return Each(ctx, s.Nodes, func(ctx context.Context, node string) error {
		state := &volumesv1alpha1.NodeVolumeState{
			ObjectMeta: metav1.ObjectMeta{Name: node, Finalizers: []string{volumesv1alpha1.ReleaseFinalizer}},
		}
		if err := s.client.Create(ctx, state); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("creating the state of node %s: %w", node, err)
		}
		return nil
	})
}

// Sweep removes what a contender left, so that the next one begins with volumes that were never attached. It
// runs without a contender, as a user that no admission policy limits. It returns how many attachments were
// left.
func (s *Stage) Sweep(ctx context.Context, manager client.Client) (int, error) {
	if err := s.sweepWishes(ctx); err != nil {
		return 0, err
	}
	left, err := s.sweepAttachments(ctx, manager)
	if err != nil {
		return left, err
	}
	claims := client.MatchingLabels{volumesv1alpha1.ExclusiveLocksLabel: "true"}
	if err := manager.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(volumesv1alpha1.InstallNamespace),
		claims); err != nil {
		return left, fmt.Errorf("deleting the locks of exclusive volumes: %w", err)
	}
	return left, s.sweepNodes(ctx)
}

func (s *Stage) sweepWishes(ctx context.Context) error {
	if err := s.client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(Namespace),
		client.GracePeriodSeconds(0)); err != nil {
		return fmt.Errorf("deleting the pods: %w", err)
	}
	if err := s.client.DeleteAllOf(ctx, &volumesv1alpha1.VolumeAttachmentIntent{},
		client.InNamespace(Namespace)); err != nil {
		return fmt.Errorf("deleting the intents: %w", err)
	}
	intents := &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := s.client.List(ctx, intents); err != nil {
		return fmt.Errorf("listing the intents: %w", err)
	}
	return Each(ctx, intents.Items, func(ctx context.Context, i volumesv1alpha1.VolumeAttachmentIntent) error {
		return s.strip(ctx, &i)
	})
}

// strip removes every finalizer.
func (s *Stage) strip(ctx context.Context, o client.Object) error {
	if len(o.GetFinalizers()) == 0 {
		return nil
	}
	o.SetFinalizers(nil)
	if err := s.client.Update(ctx, o); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the finalizers of %s: %w", o.GetName(), err)
	}
	return nil
}

func (s *Stage) sweepAttachments(ctx context.Context, manager client.Client) (int, error) {
	attachments := &storagev1.VolumeAttachmentList{}
	if err := s.client.List(ctx, attachments); err != nil {
		return 0, fmt.Errorf("listing the attachments: %w", err)
	}
	err := Each(ctx, attachments.Items, func(ctx context.Context, a storagev1.VolumeAttachment) error {
		a.Annotations, a.Finalizers = nil, nil
		if err := manager.Update(ctx, &a); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("releasing attachment %s: %w", a.Name, err)
		}
		if err := s.client.Delete(ctx, &a); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting attachment %s: %w", a.Name, err)
		}
		return nil
	})
	return len(attachments.Items), err
}

func (s *Stage) sweepNodes(ctx context.Context) error {
	states := &volumesv1alpha1.NodeVolumeStateList{}
	if err := s.client.List(ctx, states); err != nil {
		return fmt.Errorf("listing the states of the nodes: %w", err)
	}
	if err := Each(ctx, states.Items, func(ctx context.Context, nvs volumesv1alpha1.NodeVolumeState) error {
		if len(nvs.Spec.Attachments) == 0 {
			return nil
		}
		nvs.Spec.Attachments = nil
		return s.client.Update(ctx, &nvs)
	}); err != nil {
		return fmt.Errorf("emptying the states of the nodes: %w", err)
	}
	nodes := &corev1.NodeList{}
	if err := s.client.List(ctx, nodes); err != nil {
		return fmt.Errorf("listing the nodes: %w", err)
	}
	if err := Each(ctx, nodes.Items, func(ctx context.Context, node corev1.Node) error {
		if len(node.Status.VolumesAttached) == 0 {
			return nil
		}
		node.Status.VolumesAttached = nil
		return s.client.Status().Update(ctx, &node)
	}); err != nil {
		return fmt.Errorf("emptying the lists of the nodes: %w", err)
	}
	return nil
}
