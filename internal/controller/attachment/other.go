/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

// noteOther takes into the facts that an attachment's PersistentVolume was created again as another volume.
func noteOther(ctx context.Context, cached client.Client, f *decision.Facts, name string) error {
	if _, known := f.Claims[name]; known || name == "" {
		return nil
	}
	pv := &corev1.PersistentVolume{}
	if err := cached.Get(ctx, client.ObjectKey{Name: name}, pv); err != nil {
		return client.IgnoreNotFound(err)
	}
	if other := volume.UniqueNameOf(pv); other != "" && other != f.Volume {
		if f.Others == nil {
			f.Others = map[string]string{}
		}
		f.Others[name] = other
	}
	return nil
}

// checkOther returns an error while the node uses, or is allowed to use, another volume that the driver would detach:
// an attachment is detached by what its PersistentVolume is by now. While the attachment is there, that volume is not
// attached to the node anew.
func (c *Controller) checkOther(
	ctx context.Context, f *decision.Facts, n *decision.Node, a *decision.Attachment,
) error {
	begun := slices.ContainsFunc(a.Finalizers, func(s string) bool { return s != volumesv1alpha1.ForcedAwayFinalizer })
	if _, declared := n.State.Declares(a.UID); declared || !begun || a.PersistentVolume == "" || !decision.Gone(f, a) {
		return nil
	}
	pv, err := c.readVolume(ctx, a.PersistentVolume)
	if err != nil || pv == nil {
		return err
	}
	other := volume.UniqueNameOf(pv)
	if other == "" || other == f.Volume {
		return nil
	}
	nvs, err := c.readState(ctx, n.Name)
	if err != nil {
		return err
	}
	used := false
	if claim := pv.Spec.ClaimRef; claim != nil && !f.Replace {
		u, err := c.users.Get(ctx, usersKey(n.Name, claim.Namespace))
		if err != nil {
			return err
		}
		used = u.use(other, client.ObjectKey{Namespace: claim.Namespace, Name: claim.Name})
	}
	if state := handshake.NodeOf(nvs, other); used || state.InUse() || state.Entry.State == handshake.Attached {
		return fmt.Errorf("PersistentVolume %s of attachment %s is volume %s by now, which node %s uses", pv.Name, a.Name,
			other, n.Name)
	}
	return nil
}

// readVolume reads a PersistentVolume as Hawser uses it; nil when there is none.
func (c *Controller) readVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	pv := &corev1.PersistentVolume{}
	err := c.Reader.Get(ctx, client.ObjectKey{Name: name}, pv)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading PersistentVolume %s: %w", name, err)
	}
	if err != nil {
		return nil, nil
	}
	return volume.Translated(pv)
}
