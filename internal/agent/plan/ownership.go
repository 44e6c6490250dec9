/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package plan

import (
	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
)

// SetsGroup reports that the agent itself gives the published files to a group.
func (f Facts) SetsGroup(u record.Use) bool {
	return u.Type != volumesv1alpha1.PublicationDevice && f.Group(u) != nil && !f.DriverSetsGroup
}

// planOwnership comes after every publication: it may take long, and a publication interrupts it.
func planOwnership(f Facts) []Step {
	var acts []Step
	for _, u := range f.Record.Uses {
		if f.wantsPublished(u) && f.awaitsOwnership(u) {
			acts = append(acts, Step{Kind: SetOwnership, Intent: u.Intent.UID})
		}
	}
	return acts
}

// wantsPublished reports that the intent wants the publication as it was asked for.
func (f Facts) wantsPublished(u record.Use) bool {
	return f.Wants(u) && u.Want == volumesv1alpha1.DesiredPublished && !f.Differs(u)
}

// awaitsOwnership reports that the driver has published the use in this boot, and that only the ownership of its files
// is missing. The mount table shows no hidden target here, so the step verifies that it is there.
func (f Facts) awaitsOwnership(u record.Use) bool {
	return u.Phase == record.PhaseUnowned && u.BootID == f.Now.BootID &&
		(u.Target != u.Path || f.Uses[u.Intent.UID] == record.Present)
}
