/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// verb is what can be done for a volume in one step.
type verb string

const (
	// doTake writes the record, and inUse for the entry's attachment.
	doTake verb = "take"
	// doJoin notes in the record what the intents want.
	doJoin verb = "join"
	// doStage and the following call the driver.
	doStage     verb = "stage"
	doPublish   verb = "publish"
	doExpand    verb = "expand"
	doUnpublish verb = "unpublish"
	doUnstage   verb = "unstage"
	// doRefer shows the kubelet that the stage is used, so that it does not unstage.
	doRefer verb = "refer"
	// doShutdown stops a filesystem whose attachment was taken away.
	doShutdown verb = "shutdown"
	// doUnrefer takes that away, for the kubelet to unstage.
	doUnrefer verb = "unrefer"
	// doShutdownKubelet stops a filesystem that the kubelet mounted on an attachment that was forced away.
	doShutdownKubelet verb = "shutdown-kubelet"
	// doClear takes inUse back and forgets the volume.
	doClear verb = "clear"
	// doRecord brings to the disk which uses have ended, so that their intents may be told.
	doRecord verb = "record"
)

// act is one step.
type act struct {
	verb verb
	// intent whose publication it is about.
	intent types.UID
}

// plan lists the steps that may be taken now, in the order in which they matter. The first one that does not
// wait for its next attempt is carried out, and then everything is looked at again.
func plan(f facts) []act {
	if f.busy {
		return nil
	}
	acts := planOwn(f)
	if f.kubeletAway() {
		acts = slices.Insert(acts, 0, act{verb: doShutdownKubelet})
	}
	if f.unsaved {
		acts = append(acts, act{verb: doRecord}) // last: whatever calls the driver writes the record anyway
	}
	return acts
}

// planOwn is the plan for what the agent itself has of the volume.
func planOwn(f facts) []act {
	r := f.record
	switch {
	case f.waitsForSession():
		return nil
	case r == nil:
		if len(f.wanting()) > 0 {
			return []act{{verb: doTake}}
		}
		return nil
	case f.stale():
		return planStale(f)
	case !r.held(f.now) && len(f.wanting()) == 0:
		return []act{{verb: doClear}}
	case !r.InUse && len(f.wanting()) > 0:
		return []act{{verb: doTake}}
	}
	acts := planReleases(f)
	if f.joinChanges() {
		acts = slices.Insert(acts, 0, act{verb: doJoin})
	}
	if !f.kept() {
		return append(acts, planEnd(f)...)
	}
	return append(acts, planForward(f)...)
}

// planStale gives up a volume whose attachment was taken away: what was mounted on it must not reach the device any more.
func planStale(f facts) []act {
	r := f.record
	if !r.block() && !r.ShutDown && f.ownMount() != "" {
		return []act{{verb: doShutdown}}
	}
	var acts []act
	for _, u := range r.Uses {
		acts = append(acts, act{verb: doUnpublish, intent: u.Intent.UID})
	}
	return append(acts, planEnd(f)...)
}

// planReleases undoes what intents ask to be undone, and what they now want to be otherwise. An intent
// that is simply not there asks for nothing, but what it had asked for is finished.
func planReleases(f facts) []act {
	var acts []act
	for _, u := range f.record.Uses {
		if f.releases(u) || f.usable() && f.differs(u) || f.ending(u) {
			acts = append(acts, act{verb: doUnpublish, intent: u.Intent.UID})
		}
	}
	return acts
}

// planEnd undoes the stage once no use is left, and then lets go of the volume.
func planEnd(f facts) []act {
	r := f.record
	switch {
	case len(r.Uses) > 0:
		return nil
	case f.yields() && f.reference != missing:
		return []act{{verb: doUnrefer}}
	case f.yields():
		return nil
	case r.Stage.Phase != PhaseNone || f.reference != missing:
		return []act{{verb: doUnstage}}
	}
	return []act{{verb: doClear}}
}

// planForward brings the volume to where its intents want it.
func planForward(f facts) []act {
	if !f.usable() || len(f.wanting()) == 0 {
		return nil
	}
	var acts []act
	if f.unreferred() {
		acts = append(acts, act{verb: doRefer})
	}
	if !f.staged() {
		return append(acts, act{verb: doStage})
	}
	for _, u := range f.record.Uses {
		if f.wants(u) && u.Want == volumesv1alpha1.DesiredPublished && !f.published(u) && !f.differs(u) {
			acts = append(acts, act{verb: doPublish, intent: u.Intent.UID})
		}
	}
	if f.grows() {
		acts = append(acts, act{verb: doExpand})
	}
	return acts
}
