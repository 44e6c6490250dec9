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
	intent, err := d.AwaitIntent(ctx, namespace, name,
		system.HasReason(volumesv1alpha1.ConditionReady, volumesv1alpha1.ReasonDriverNotFound))
	if err != nil {
		return err
	}
	c := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionReady)
	_, _ = fmt.Fprintf(d.out, "   %s: %s\n", c.Reason, c.Message)
	return d.why(ctx, name, c.Reason)
}

func (d *demo) mendDriver(ctx context.Context) error {
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
