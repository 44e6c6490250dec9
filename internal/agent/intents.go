/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/report"
	"github.com/hawser-io/hawser/internal/status"
)

// report writes what became of the volume: the status of its intents now, its line together with other lines.
func (a *Agent) report(ctx context.Context, v *operation.Volume, f plan.Facts) error {
	v.Prune(f)
	a.steps.Inform(v, f)
	return a.steps.ReportIntents(ctx, v, f)
}

// reconcileIntent computes Ready of an intent that has no volume yet: the controller has said what it waits for.
func (a *Agent) reconcileIntent(ctx context.Context, k client.ObjectKey) error {
	intent := &volumesv1alpha1.VolumeAttachmentIntent{}
	if err := a.Cache.Get(ctx, k, intent); err != nil {
		return client.IgnoreNotFound(err)
	}
	intent = a.intents.Newest(intent)
	if intent.Status.UniqueVolumeName != "" || !intent.DeletionTimestamp.IsZero() ||
		!status.CarriedOutByAgent(intent) || !report.ReportedByManager(intent) {
		return nil
	}
	return a.intents.Update(ctx, intent, report.IntentReport{Ready: true, Keep: true})
}
