/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package report

import (
	"k8s.io/apimachinery/pkg/api/resource"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
)

// Figures of one volume, as its driver reported them last.
type Figures struct {
	// Capacity is the size of the filesystem, which is less than that of the volume.
	Capacity, Used, Available *resource.Quantity
	Inodes, InodesUsed        *int64
}

// Snapshot is what the process knows of a volume beside the facts when it reports.
type Snapshot struct {
	Name     string
	Record   *record.Record
	Failures plan.Failures
	// Unprotected: a mount of an attachment that was taken away could not be shut down.
	Unprotected bool
	// Slow names a driver call that takes long; empty where none does.
	Slow string
	// Figures of the volume; nil where none were read.
	Figures *Figures
	// Lost are the mounts that were reported as removed.
	Lost []string
}

// releaseFailure is what keeps the intent from being released.
func (v Snapshot) releaseFailure(
	f plan.Facts, i *volumesv1alpha1.VolumeAttachmentIntent, u *record.Use,
) *failure.Failure {
	if v.Record == nil {
		return nil
	}
	steps := []plan.Step{{Kind: plan.Unpublish, Intent: i.UID}}
	switch {
	case u == nil && f.Bare():
		steps = []plan.Step{{Kind: plan.Stage}}
	case u == nil:
		steps = []plan.Step{{Kind: plan.Persist}, {Kind: plan.Unstage}, {Kind: plan.ClearInUse}, {Kind: plan.Shutdown}}
	}
	for _, step := range steps {
		if failed := v.Failures[step]; failed != nil {
			return failed
		}
	}
	return nil
}
