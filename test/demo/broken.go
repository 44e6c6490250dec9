/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/system"
)

// breakDriver stops the node's part of the CSI driver, so that nothing can be mounted on node A.
func (d *demo) breakDriver(ctx context.Context) error {
	if err := d.StopProcess(ctx, system.NodeDriver(nodeA)); err != nil {
		return err
	}
	if _, err := d.Kubectl(ctx, "apply", "-k", sample("")); err != nil {
		return err
	}
	return d.waitsForDriver(ctx, dataOnA)
}

// waitsForDriver waits until an intent waits for the driver, and has why explain that.
func (d *demo) waitsForDriver(ctx context.Context, name string) error {
	reason, err := d.missesDriver(ctx, name)
	if err != nil {
		return err
	}
	return d.why(ctx, name, reason)
}

// missesDriver waits until an intent waits for the driver, and returns its reason. It depends on whether the driver had
// left the node's list of drivers when the volume was attached.
func (d *demo) missesDriver(ctx context.Context, name string) (reason string, err error) {
	unregistered := system.HasReason(volumesv1alpha1.ConditionReady, volumesv1alpha1.ReasonDriverNotInstalled)
	silent := system.HasReason(volumesv1alpha1.ConditionReady, volumesv1alpha1.ReasonStageFailed)
	intent, err := d.AwaitIntent(ctx, namespace, name, func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return unregistered(i) || silent(i)
	})
	if err != nil {
		return "", err
	}
	c := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionReady)
	_, _ = fmt.Fprintf(d.out, "   %s: %s\n", c.Reason, c.Message)
	return c.Reason, nil
}

func (d *demo) repairDriver(ctx context.Context) error {
	if err := d.StartAgain(ctx, system.NodeDriver(nodeA)); err != nil {
		return err
	}
	for _, name := range onNodeA {
		if _, err := d.AwaitReady(ctx, namespace, name); err != nil {
			return err
		}
	}
	return d.remove(ctx)
}
