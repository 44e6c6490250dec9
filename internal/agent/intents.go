/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/status"
)

// report tells the API what became of the volume: its line in company, its intents now.
func (a *Agent) report(ctx context.Context, v *volume, f facts) error {
	v.prune(f)
	a.steps.Inform(v, f)
	return a.steps.ReportIntents(ctx, v, f)
}

// lookAtIntent computes Ready of an intent that has no volume yet: the controller has said what it waits for.
func (a *Agent) lookAtIntent(ctx context.Context, k client.ObjectKey) error {
	intent := &volumesv1alpha1.VolumeAttachmentIntent{}
	if err := a.Cache.Get(ctx, k, intent); err != nil {
		return client.IgnoreNotFound(err)
	}
	intent = a.intents.newest(intent)
	if intent.Status.UniqueVolumeName != "" || !intent.DeletionTimestamp.IsZero() || !status.CarriedOutByAgent(intent) || !lookedAt(intent) {
		return nil
	}
	return a.intents.update(ctx, intent, view{ready: true, keep: true})
}
