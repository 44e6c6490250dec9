/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package plan turns what is known of one volume into the steps that may be taken now. It is pure: it reads no clock,
// no disk and no API, and changes nothing.
package plan

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hawser-io/hawser/internal/agent/record"
)

// Kind is what can be done for a volume in one step.
type Kind string

const (
	// MarkInUse writes the record, and inUse for the entry's attachment.
	MarkInUse Kind = "mark-in-use"
	// Join notes in the record what the intents want.
	Join Kind = "join"
	// Stage and the following call the driver.
	Stage Kind = "stage"
	// Remount unmounts a volume that is sick, so that it is staged again.
	Remount Kind = "remount"
	// Publish makes the volume usable at an intent's path.
	Publish Kind = "publish"
	// SetOwnership gives the files of a publication to the intent's group.
	SetOwnership Kind = "set-ownership"
	// Expand lets the node see a larger capacity.
	Expand Kind = "expand"
	// Unpublish undoes a publication.
	Unpublish Kind = "unpublish"
	// Unstage undoes the stage.
	Unstage Kind = "unstage"
	// Reference shows the kubelet that the stage is used, so that it does not unstage.
	Reference Kind = "reference"
	// Shutdown stops a filesystem whose attachment was taken away.
	Shutdown Kind = "shutdown"
	// Dereference takes that away, for the kubelet to unstage.
	Dereference Kind = "dereference"
	// ShutdownKubelet stops a filesystem that the kubelet mounted on an attachment that was forced away.
	ShutdownKubelet Kind = "shutdown-kubelet"
	// ClearInUse takes inUse back and forgets the volume.
	ClearInUse Kind = "clear-in-use"
	// Persist writes to the disk which uses have ended, so that their intents' status may report it.
	Persist Kind = "persist"
)

// Step is one step.
type Step struct {
	Kind Kind
	// Intent whose publication it is about.
	Intent types.UID
}

// Of lists the steps that may be taken now, in the order in which they matter. The first one that does not wait for its
// next attempt is carried out, and then everything is gathered again.
func Of(f Facts) []Step {
	if f.CallHangs {
		return nil
	}
	acts := planOwn(f)
	if f.KubeletForcedAway() {
		acts = slices.Insert(acts, 0, Step{Kind: ShutdownKubelet})
	}
	if f.Unsaved {
		acts = append(acts, Step{Kind: Persist}) // last: whatever calls the driver writes the record anyway
	}
	return acts
}

// Forward reports whether the volume only comes nearer to where its intents want it: nothing is to be undone, nothing
// that was made has gone, and nothing is reported as released.
func Forward(f Facts) bool {
	if f.Record != nil && len(f.Wanting()) == 0 {
		return false
	}
	undoes := func(s Step) bool {
		return !slices.Contains([]Kind{MarkInUse, Join, Stage, Reference, Publish, SetOwnership, Expand}, s.Kind)
	}
	return !slices.ContainsFunc(Of(f), undoes) && len(f.Lost()) == 0
}

// planOwn is the plan for what the agent itself has of the volume.
func planOwn(f Facts) []Step {
	r := f.Record
	switch {
	case f.WaitsForSession():
		return nil
	case r == nil:
		if len(f.Wanting()) > 0 {
			return []Step{{Kind: MarkInUse}}
		}
		return nil
	case f.Stale():
		return planStale(f)
	case !r.CountsAsInUse(f.Now) && len(f.Wanting()) == 0:
		return []Step{{Kind: ClearInUse}}
	case !r.InUse && len(f.Wanting()) > 0:
		return []Step{{Kind: MarkInUse}}
	}
	acts := planReleases(f)
	if f.JoinChanges() {
		acts = slices.Insert(acts, 0, Step{Kind: Join})
	}
	if !f.Kept() {
		return append(acts, planEnd(f)...)
	}
	return append(acts, planForward(f)...)
}

// planStale gives up a volume whose attachment was taken away: what was mounted on it must not reach the device any
// more.
func planStale(f Facts) []Step {
	r := f.Record
	if !r.Block() && !r.ShutDown && f.OwnMount() != "" {
		return []Step{{Kind: Shutdown}}
	}
	var acts []Step
	for _, u := range r.Uses {
		acts = append(acts, Step{Kind: Unpublish, Intent: u.Intent.UID})
	}
	return append(acts, planEnd(f)...)
}

// planReleases undoes what intents ask to be undone, and what they now want to be otherwise. An intent
// that is simply not there asks for nothing, but what it had asked for is finished.
func planReleases(f Facts) []Step {
	var acts []Step
	for _, u := range f.Record.Uses {
		if f.Releases(u) || f.Usable() && f.Differs(u) || f.Ending(u) {
			acts = append(acts, Step{Kind: Unpublish, Intent: u.Intent.UID})
		}
	}
	return acts
}

// planEnd undoes the stage once no use is left, and then lets go of the volume.
func planEnd(f Facts) []Step {
	r := f.Record
	switch {
	case len(r.Uses) > 0:
		return nil
	case f.YieldsToKubelet() && f.Reference != record.Missing:
		return []Step{{Kind: Dereference}}
	case f.Bare():
		return []Step{{Kind: Stage}}
	case f.YieldsToKubelet():
		return nil
	case r.Stage.Phase != record.PhaseNone || f.Reference != record.Missing:
		return []Step{{Kind: Unstage}}
	}
	return []Step{{Kind: ClearInUse}}
}

// planForward brings the volume to where its intents want it.
func planForward(f Facts) []Step {
	if !f.Usable() || len(f.Wanting()) == 0 || f.Record.Sick != nil && !f.remountable() {
		return nil
	}
	if f.Record.Sick != nil {
		return []Step{{Kind: Remount}}
	}
	var acts []Step
	if f.Unreferenced() {
		acts = append(acts, Step{Kind: Reference})
	}
	if !f.Staged() {
		return append(acts, Step{Kind: Stage})
	}
	if f.Relabels() {
		return append(acts, Step{Kind: Unstage})
	}
	for _, u := range f.Record.Uses {
		if f.wantsPublished(u) && !f.Published(u) && !f.awaitsOwnership(u) {
			acts = append(acts, Step{Kind: Publish, Intent: u.Intent.UID})
		}
	}
	acts = append(acts, planOwnership(f)...)
	if f.Grows() {
		acts = append(acts, Step{Kind: Expand})
	}
	return acts
}
