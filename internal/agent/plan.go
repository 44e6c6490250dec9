/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/status"
)

// facts are everything that is known of one volume at one moment. Plans are made from them alone.
type facts struct {
	name  string
	paths paths
	now   moment
	entry *volumesv1alpha1.NodeAttachment
	// node is the volume's part of the newest NodeVolumeState.
	node   handshake.Node
	record *Record
	// intents that name the volume or are named by the record.
	intents []*volumesv1alpha1.VolumeAttachmentIntent
	// stage and uses are what the mount table says.
	stage presence
	// reference is present while the kubelet can see that the agent uses the stage: by the agent's bind mount of it or, for Block,
	// by device nodes.
	reference presence
	// nodes are the names of those device nodes.
	nodes []string
	uses  map[types.UID]presence
	// kubelet is the kubelet's use of the volume; nil where it has none.
	kubelet *kubeletUse
	// unsaved: uses were ended that the disk still names.
	unsaved bool
	// busy: a driver call that ignored its deadline still runs in this process.
	busy bool
	// mountsGroup: the driver itself gives the files to a group when it mounts.
	mountsGroup bool
	// unsettled: the manager has not confirmed the agent's session, so what the API says may be of the past.
	unsettled bool
	// overdue: that takes long enough to say so.
	overdue bool
	// expands: the driver can expand the volume on the node.
	expands bool
}

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

// unreferred: the kubelet does not see that the stage is used, or not by whom. A device node can be there before the stage.
func (f facts) unreferred() bool {
	if f.record.block() {
		bound := slices.ContainsFunc(f.record.Uses, func(u Use) bool { return u.Bound != "" })
		return bound || !slices.Equal(f.record.users(), f.nodes)
	}
	return f.staged() && f.record.Stage.Source != "" && f.reference != present
}

// attached: the controller's entry is Attached.
func (f facts) attached() bool {
	return f.entry != nil && f.entry.State == volumesv1alpha1.AttachmentAttached
}

// usable: the driver may be asked to bring the volume further.
func (f facts) usable() bool {
	return f.attached() && f.record != nil && f.record.InUse && f.entry.AttachmentUID == f.record.AttachmentUID
}

// waitsForSession: the volume is taken into use once the manager has confirmed the session.
func (f facts) waitsForSession() bool {
	return f.unsettled && (f.record == nil || !f.record.InUse) && len(f.wanting()) > 0
}

// holds back an act until the manager has confirmed the session: a record that says in use may be of the time before the volume was forced
// away, and what the API says too.
func (f facts) holds(a act) bool {
	return f.unsettled && (a.verb == doStage || a.verb == doPublish || a.verb == doExpand)
}

// stale: the record speaks of an attachment that was taken away while something of it may be here.
func (f facts) stale() bool {
	if f.unsettled || !f.record.held(f.now) {
		return false
	}
	if f.entry == nil {
		return f.declared(f.record.AttachmentUID)
	}
	return f.entry.AttachmentUID != f.record.AttachmentUID || !f.attached()
}

// declared: an administrator has declared the attachment released, so it was taken away and its entry may be gone.
func (f facts) declared(uid types.UID) bool {
	_, declared := f.node.Declares(uid)
	return declared
}

// yields: the kubelet uses the stage too, and undoes it when it is done. Until then the volume stays in use, by the kubelet.
func (f facts) yields() bool {
	return f.kubelet != nil && f.kubelet.doubt == "" && f.kubelet.held == nil && f.record.Stage.Phase != PhaseNone && len(f.record.Uses) == 0 && !f.stale()
}

// released: nothing is left of the agent's own part, and the disk knows it.
func (f facts) released() bool { return f.yields() && f.reference == missing && !f.unsaved }

// ownMount is the path of a mount that can only be of the record's attachment: made in this boot, at a place where nobody but the
// agent mounts, or at the stage while the kubelet has no part in it. Empty where there is none: a mount that somebody else made
// may be of the volume's next attachment, whatever device it shows.
func (f facts) ownMount() string {
	r := f.record
	staged := r.Stage.Phase != PhaseNone && r.Stage.BootID == f.now.bootID
	if staged && f.reference == present {
		return f.paths.reference(f.name)
	}
	for _, u := range r.Uses {
		if u.Phase != PhaseNone && u.BootID == f.now.bootID && f.uses[u.Intent.UID] == present {
			return u.Target
		}
	}
	if staged && f.stage == present && f.kubelet == nil {
		return r.Stage.Path
	}
	return ""
}

// kubeletStale: what the kubelet has mounted was made on another attachment than the one that the volume has now.
func (f facts) kubeletStale() bool {
	return f.kubelet != nil && f.attached() && f.kubelet.AttachmentUID != "" && f.kubelet.AttachmentUID != f.entry.AttachmentUID
}

// kubeletAway: the attachment under the kubelet's mounts was forced away. A use that is not known to be older than that is
// left alone, and so is one whose attachment was lost: its name was free, so upstream may have attached the volume again.
func (f facts) kubeletAway() bool {
	k, e := f.kubelet, f.entry
	if f.unsettled || k == nil || k.ShutDown || k.doubt != "" || !k.Block && len(k.mounts) == 0 {
		return false
	}
	if e == nil {
		return f.declared(k.AttachmentUID)
	}
	if e.State != volumesv1alpha1.AttachmentDetaching || e.Evidence == nil {
		return false
	}
	switch e.Evidence.Type {
	case volumesv1alpha1.EvidenceAgentReleased, volumesv1alpha1.EvidenceAttachmentLost:
		return false
	}
	return k.AttachmentUID == e.AttachmentUID || k.AttachmentUID == "" && e.DetachedTime == nil
}

// mounted: the mount table shows the stage or a publication. A stage that the agent never made is the kubelet's.
func (f facts) mounted() bool {
	kubelets := f.record.Stage.Phase == PhaseNone && f.kubelet != nil && f.kubelet.held == nil
	if f.stage == present && !kubelets || f.reference != missing && !f.record.block() {
		return true
	}
	return slices.ContainsFunc(f.record.Uses, func(u Use) bool { return f.uses[u.Intent.UID] == present })
}

// staged: the stage is there as it was made, in this boot.
func (f facts) staged() bool {
	s := f.record.Stage
	return s.Phase == PhaseDone && s.BootID == f.now.bootID && (s.Source == "" || f.stage == present)
}

// published: the publication is there as it was made, in this boot.
func (f facts) published(u Use) bool {
	return u.Phase == PhaseDone && u.BootID == f.now.bootID && f.uses[u.Intent.UID] == present
}

// lost lists the paths at which something was mounted in this boot and is not any more.
func (f facts) lost() []string {
	var paths []string
	r := f.record
	if r == nil {
		return nil
	}
	if s := r.Stage; s.Phase == PhaseDone && s.BootID == f.now.bootID && s.Source != "" && f.stage != present {
		paths = append(paths, s.Path)
	}
	for _, u := range r.Uses {
		if u.Phase == PhaseDone && u.BootID == f.now.bootID && f.uses[u.Intent.UID] != present {
			paths = append(paths, u.Path)
		}
	}
	return paths
}

// seen is the capacity that the node sees of a staged volume. One that was staged just now has what the claim records:
// if it has grown since, a node has yet to expand it.
func (f facts) seen(noPart bool) *resource.Quantity {
	switch {
	case noPart: // the node has no part in it
		return f.entry.Capacity
	case f.record.Capacity != nil:
		return f.record.Capacity
	case f.entry.ExpandFrom != nil:
		return f.entry.ExpandFrom
	}
	return f.entry.Capacity
}

// grows: the volume has a larger capacity than the node has seen.
func (f facts) grows() bool {
	r := f.record
	if !f.expands || f.entry.Capacity == nil || !slices.ContainsFunc(r.Uses, func(u Use) bool { return !u.ReadOnly }) {
		return false
	}
	return r.Capacity != nil && compare(*f.entry.Capacity, *r.Capacity) > 0
}

func (f facts) intent(uid types.UID) *volumesv1alpha1.VolumeAttachmentIntent {
	i := slices.IndexFunc(f.intents, func(i *volumesv1alpha1.VolumeAttachmentIntent) bool { return i.UID == uid })
	if i < 0 {
		return nil
	}
	return f.intents[i]
}

// orphan: the use's intent is simply not there.
func (f facts) orphan(u Use) bool { return f.intent(u.Intent.UID) == nil }

// ending: the use's intent is simply not there, and nothing of it has to stay. Either it was gone before anything was there for it, or the
// last call began to unpublish it and nothing is at its path: its end had been asked for.
func (f facts) ending(u Use) bool {
	if !f.orphan(u) || f.uses[u.Intent.UID] != missing {
		return false
	}
	if u.Phase == PhaseNone {
		return !u.Live && !f.unsettled
	}
	c := f.record.Unfinished
	return u.Phase == PhaseUncertain && c != nil && c.Operation == "unpublish" && c.Target == u.Target
}

// releases: the use's intent asks for its end, or for less than there is.
func (f facts) releases(u Use) bool {
	i := f.intent(u.Intent.UID)
	if i == nil {
		return false
	}
	return !i.DeletionTimestamp.IsZero() || !f.unsettled && level(i.Spec.DesiredState) < level(u.Want)
}

func level(d volumesv1alpha1.DesiredState) int {
	switch d {
	case volumesv1alpha1.DesiredAttached:
		return 0
	case volumesv1alpha1.DesiredStaged:
		return 1
	}
	return 2
}

// wants: the use's intent is there and wants the volume.
func (f facts) wants(u Use) bool {
	return slices.ContainsFunc(f.wanting(), func(i *volumesv1alpha1.VolumeAttachmentIntent) bool { return i.UID == u.Intent.UID })
}

// differs: the publication was asked for with other parameters than its intent has now.
func (f facts) differs(u Use) bool {
	i := f.intent(u.Intent.UID)
	if i == nil || u.Phase == PhaseNone || u.Want != volumesv1alpha1.DesiredPublished || i.Spec.DesiredState != volumesv1alpha1.DesiredPublished {
		return false
	}
	return u.ReadOnly != i.Spec.ReadOnly || !reflect.DeepEqual(u.Mount, i.Spec.Mount)
}

// kept: some use stays, or is about to come.
func (f facts) kept() bool {
	if len(f.wanting()) > 0 && f.usable() {
		return true
	}
	return slices.ContainsFunc(f.record.Uses, func(u Use) bool { return !f.gone(u) })
}

// gone: the use ends altogether, it does not merely become less.
func (f facts) gone(u Use) bool {
	i := f.intent(u.Intent.UID)
	return i != nil && (!i.DeletionTimestamp.IsZero() || !f.unsettled && level(i.Spec.DesiredState) == 0)
}

// wanting lists the intents that the agent is to carry out now. One without the release finalizer could be gone before the agent has
// undone anything; the manager sets it, and that wakes the agent.
func (f facts) wanting() []*volumesv1alpha1.VolumeAttachmentIntent {
	if !f.attached() {
		return nil
	}
	var wanting []*volumesv1alpha1.VolumeAttachmentIntent
	for _, i := range f.intents {
		if i.DeletionTimestamp.IsZero() && status.Finalized(i) && i.Spec.Publisher != volumesv1alpha1.PublisherKubelet &&
			level(i.Spec.DesiredState) > 0 && i.Status.UniqueVolumeName == f.name &&
			i.Status.VolumeName == f.entry.PersistentVolumeName {
			wanting = append(wanting, i)
		}
	}
	return wanting
}

// joinChanges says whether the record does not yet say what the intents want.
func (f facts) joinChanges() bool {
	unread := func(u Use) bool { return f.wants(u) && u.Want == volumesv1alpha1.DesiredStaged && !u.Live }
	return f.usable() && (!reflect.DeepEqual(f.joined(), f.record.Uses) || slices.ContainsFunc(f.record.Uses, unread))
}

// joined is the record's uses with what the wanting intents want. A use that the driver was asked for keeps
// its parameters until it is undone; one whose intent is gone is adopted by an intent of the same name.
func (f facts) joined() []Use {
	var uses []Use
	if f.record != nil {
		uses = slices.Clone(f.record.Uses)
	}
	for _, i := range f.wanting() {
		k := slices.IndexFunc(uses, func(u Use) bool { return u.Intent.UID == i.UID })
		if k < 0 {
			k = slices.IndexFunc(uses, func(u Use) bool {
				return f.orphan(u) && u.Intent.Namespace == i.Namespace && u.Intent.Name == i.Name
			})
		}
		if k < 0 {
			uses = append(uses, Use{})
			k = len(uses) - 1
		}
		if uses[k].Phase == PhaseNone {
			live := uses[k].Live && uses[k].Intent.UID == i.UID
			uses[k] = f.wish(i)
			uses[k].Live = live && uses[k].Want == volumesv1alpha1.DesiredStaged
		} else {
			uses[k].Intent = referenceTo(i)
		}
	}
	return uses
}

// wish is the use that the intent asks for.
func (f facts) wish(i *volumesv1alpha1.VolumeAttachmentIntent) Use {
	u := Use{Intent: referenceTo(i), Want: volumesv1alpha1.DesiredStaged}
	if level(i.Spec.DesiredState) < level(volumesv1alpha1.DesiredPublished) {
		return u
	}
	u.Want = volumesv1alpha1.DesiredPublished
	u.Path = f.paths.published(i.Namespace, i.Name)
	u.Target = u.Path
	u.Type = volumesv1alpha1.PublicationMount
	u.ReadOnly = i.Spec.ReadOnly
	u.Mount = i.Spec.Mount.DeepCopy()
	if f.entry.VolumeMode == corev1.PersistentVolumeBlock {
		u.Type = volumesv1alpha1.PublicationDevice
		if u.ReadOnly {
			u.Target = f.paths.hidden(i.UID) // until the kernel refuses writes
		}
	} else if u.Mount != nil && u.Mount.SubPath != "" {
		u.Target = f.paths.hidden(i.UID)
	}
	return u
}

func referenceTo(i *volumesv1alpha1.VolumeAttachmentIntent) volumesv1alpha1.IntentReference {
	return volumesv1alpha1.IntentReference{Namespace: i.Namespace, Name: i.Name, UID: i.UID}
}
