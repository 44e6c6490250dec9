/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/mount"
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

// compare looks the record's places up in the mount table.
func (f *facts) compare(table *mount.Table) {
	f.stage, f.reference, f.uses = missing, missing, map[types.UID]presence{}
	r := f.record
	if r == nil {
		return
	}
	f.stage = presenceOf(table, r.Stage.Path, r.Stage.Source)
	f.reference = presenceOf(table, f.paths.reference(f.name), r.Stage.Source)
	for _, u := range r.Uses {
		f.uses[u.Intent.UID] = presenceOf(table, u.Path, u.Source)
	}
}
