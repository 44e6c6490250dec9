/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package plan

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/internal/selinux"
)

// Facts are everything that is known of one volume at one moment. Plans are made from them alone.
type Facts struct {
	Name  string
	Paths record.Paths
	Now   record.Moment
	Entry *volumesv1alpha1.NodeAttachment
	// Node is the volume's part of the newest NodeVolumeState.
	Node   handshake.Node
	Record *record.Record
	// Intents that name the volume or are named by the record.
	Intents []*volumesv1alpha1.VolumeAttachmentIntent
	// Stage and uses are what the mount table says.
	Stage record.Presence
	// StageLabel is the SELinux label of what is mounted there; empty for none.
	StageLabel string
	// SELinux is the node's; nil where it has none, or where nothing asks for a label.
	SELinux *SELinux
	// Reference is present while the kubelet can see that the agent uses the stage: by the agent's bind mount of it or,
	// for Block, by device nodes.
	Reference record.Presence
	// DeviceNodes are the names of those device nodes.
	DeviceNodes []string
	Uses        map[types.UID]record.Presence
	// Pods are the binds of the volume's publications in pods.
	Pods []record.PodBind
	// Kubelet is the kubelet's use of the volume; nil where it has none.
	Kubelet *kubelet.TrackedUse
	// Unsaved: uses were ended that the disk still names.
	Unsaved bool
	// CallHangs: a driver call that ignored its deadline still runs in this process.
	CallHangs bool
	// DriverSetsGroup: the driver itself gives the files to a group when it mounts.
	DriverSetsGroup bool
	// Unconfirmed: the manager has not confirmed the agent's session, so what the API says may be of the past.
	Unconfirmed bool
	// Overdue: that takes long enough to say so.
	Overdue bool
	// Expands: the driver can expand the volume on the node.
	Expands bool
}

// Unreferenced reports that the kubelet does not see that the stage is used, or not for which intents. A device node
// can be there before the stage.
func (f Facts) Unreferenced() bool {
	if f.Record.Block() {
		bound := slices.ContainsFunc(f.Record.Uses, func(u record.Use) bool { return u.Bound != "" })
		return bound || !slices.Equal(f.Record.Users(), f.DeviceNodes)
	}
	return f.Staged() && f.Record.Stage.Source != "" && f.Reference != record.Present
}

// VolumeSource is where the volume comes from, as the controller's entry has it; the zero value without an entry.
func (f Facts) VolumeSource() record.VolumeSource { return record.VolumeSourceOf(f.Entry) }

// Attached reports that the controller's entry is Attached.
func (f Facts) Attached() bool {
	return f.Entry != nil && f.Entry.State == volumesv1alpha1.AttachmentAttached
}

// Usable reports that the driver may be asked to bring the volume further.
func (f Facts) Usable() bool {
	return f.Attached() && f.Record != nil && f.Record.InUse && f.Entry.AttachmentUID == f.Record.AttachmentUID
}

// WaitsForSession reports that the volume is marked as in use only once the manager has confirmed the session.
func (f Facts) WaitsForSession() bool {
	return f.Unconfirmed && (f.Record == nil || !f.Record.InUse) && len(f.Wanting()) > 0
}

// Stale reports that the record is of an attachment that was taken away while something of it may be here.
func (f Facts) Stale() bool {
	if f.Unconfirmed || !f.Record.CountsAsInUse(f.Now) {
		return false
	}
	if f.Entry == nil {
		return f.declared(f.Record.AttachmentUID)
	}
	return f.Entry.AttachmentUID != f.Record.AttachmentUID || !f.Attached()
}

// declared: an administrator has declared the attachment released, so it was taken away and its entry may be gone.
func (f Facts) declared(uid types.UID) bool {
	_, declared := f.Node.Declares(uid)
	return declared
}

// YieldsToKubelet reports that the kubelet uses the stage too, and undoes it when it is done. Until then the volume
// stays in use, by the kubelet.
func (f Facts) YieldsToKubelet() bool {
	return f.Kubelet != nil && f.Kubelet.Doubt == "" && f.Kubelet.Held == nil &&
		f.Record.Stage.Phase != record.PhaseNone && len(f.Record.Uses) == 0 && !f.Stale()
}

// Released reports that nothing is left of the agent's own part, also in the record on disk.
func (f Facts) Released() bool {
	return f.YieldsToKubelet() && f.Reference == record.Missing && !f.Unsaved && !f.Bare()
}

// Bare reports that the agent has undone a stage that the kubelet began to use meanwhile. The kubelet takes the volume
// for staged, and would publish the directory of the node's own disk that is at the staging path.
func (f Facts) Bare() bool {
	if f.Record == nil {
		return false
	}
	s := f.Record.Stage
	return f.YieldsToKubelet() && s.Unstaging && s.BootID == f.Now.BootID && f.Stage == record.Missing && f.Usable()
}

// OwnMount is the path of a mount that can only be of the record's attachment: made in this boot, at a place where only
// the agent mounts, or at the stage while the kubelet has no part in it. Empty where there is none: another program's
// mount may be of the volume's next attachment, whatever device it shows.
func (f Facts) OwnMount() string {
	r := f.Record
	staged := r.Stage.Phase != record.PhaseNone && r.Stage.BootID == f.Now.BootID
	if staged && f.Reference == record.Present {
		return f.Paths.Reference(f.Name)
	}
	for _, u := range r.Uses {
		if u.Phase != record.PhaseNone && u.BootID == f.Now.BootID && f.Uses[u.Intent.UID] == record.Present {
			return u.Target
		}
	}
	if staged && f.Stage == record.Present && f.Kubelet == nil {
		return r.Stage.Path
	}
	return ""
}

// KubeletStale reports that what the kubelet has mounted was made on another attachment than the one that the volume
// has now.
func (f Facts) KubeletStale() bool {
	return f.Kubelet != nil && f.Attached() && f.Kubelet.AttachmentUID != "" &&
		f.Kubelet.AttachmentUID != f.Entry.AttachmentUID
}

// KubeletForcedAway reports that the attachment under the kubelet's mounts was forced away. A use that is not known to
// be older than that is left alone, and so is one whose attachment was lost: its name was free, so upstream may have
// attached the volume again.
func (f Facts) KubeletForcedAway() bool {
	k, e := f.Kubelet, f.Entry
	if f.Unconfirmed || k == nil || k.ShutDown || k.Doubt != "" || !k.Block && len(k.Mounts) == 0 {
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

// Mounted reports that the mount table shows the stage or a publication, or that a pod has one bound. A stage that the
// agent never made is the kubelet's.
func (f Facts) Mounted() bool {
	kubelets := f.Record.Stage.Phase == record.PhaseNone && f.Kubelet != nil && f.Kubelet.Held == nil
	if f.Stage == record.Present && !kubelets || f.Reference != record.Missing && !f.Record.Block() {
		return true
	}
	return len(f.Pods) > 0 || slices.ContainsFunc(f.Record.Uses, func(u record.Use) bool {
		return f.Uses[u.Intent.UID] == record.Present
	})
}

// PodsOf lists the pods that use the publication, each once.
func (f Facts) PodsOf(u record.Use) []string {
	return f.podsWith(func(b record.PodBind) bool { return b.Shows(f.Name, u.Intent) })
}

// PodsOfVolume lists the pods that use any publication of the volume.
func (f Facts) PodsOfVolume() []string { return f.podsWith(func(record.PodBind) bool { return true }) }

func (f Facts) podsWith(bind func(record.PodBind) bool) []string {
	var pods []string
	for _, b := range f.Pods {
		if bind(b) {
			pods = append(pods, b.Pod.String())
		}
	}
	slices.Sort(pods)
	return slices.Compact(pods)
}

// Staged reports that the stage is there as it was made, in this boot.
func (f Facts) Staged() bool {
	s := f.Record.Stage
	return s.Phase == record.PhaseDone && s.BootID == f.Now.BootID && (s.Source == "" || f.Stage == record.Present)
}

// Published reports that the publication is there as it was made, in this boot.
func (f Facts) Published(u record.Use) bool {
	return u.Phase == record.PhaseDone && u.BootID == f.Now.BootID && f.Uses[u.Intent.UID] == record.Present
}

// Bindable reports whether pods may bind the publication: it is as its intent asks for, and the attachment that it was
// made on is still there. Nothing new is shown of a volume that is sick.
func (f Facts) Bindable(u record.Use) bool {
	return !f.Unconfirmed && f.Usable() && f.Record.Sick == nil && f.Published(u) &&
		u.Type == volumesv1alpha1.PublicationMount && !f.Releases(u) && !f.Differs(u)
}

// remountable reports whether to unmount and stage a volume that is sick may help, and takes it from no pod.
func (f Facts) remountable() bool {
	return f.Record.Sick.Remountable && len(f.Pods) == 0 && f.Kubelet == nil
}

// Lost lists the paths at which something was mounted in this boot and is not any more.
func (f Facts) Lost() []string {
	var paths []string
	r := f.Record
	if r == nil {
		return nil
	}
	if s := r.Stage; s.Phase == record.PhaseDone && s.BootID == f.Now.BootID && s.Source != "" &&
		f.Stage != record.Present {
		paths = append(paths, s.Path)
	}
	for _, u := range r.Uses {
		if u.Phase == record.PhaseDone && u.BootID == f.Now.BootID && f.Uses[u.Intent.UID] != record.Present {
			paths = append(paths, u.Path)
		}
	}
	return paths
}

// SeenCapacity is the capacity that the node sees of a staged volume. One that was staged just now has what the claim
// records: if it has grown since, a node has yet to expand it.
func (f Facts) SeenCapacity(noPart bool) *resource.Quantity {
	switch {
	case noPart: // the node has no part in it
		return f.VolumeSource().Capacity
	case f.Record.Capacity != nil:
		return f.Record.Capacity
	case f.VolumeSource().ExpandFrom != nil:
		return f.VolumeSource().ExpandFrom
	}
	return f.VolumeSource().Capacity
}

// Grows reports that the volume has a larger capacity than the node has seen, and can be expanded now.
func (f Facts) Grows() bool {
	seen := f.Record.Capacity
	if !f.Expands || f.VolumeSource().Capacity == nil || seen == nil || f.ExpandPath() == "" {
		return false
	}
	return CompareQuantities(*f.VolumeSource().Capacity, *seen) > 0
}

// ExpandPath is where the volume is, for a use that may write: a publication, or the stage. It is empty where there is
// none yet: drivers find the device by what is mounted at the path, and that of a bare staging path is the node's disk.
func (f Facts) ExpandPath() string {
	writable := false
	for _, u := range f.Record.Uses {
		if !u.ReadOnly && f.Published(u) {
			return u.Target
		}
		writable = writable || !u.ReadOnly
	}
	s := f.Record.Stage
	if !writable || f.Stage != record.Present || s.Source == "" || f.Record.Block() && s.Device == "" {
		return ""
	}
	return s.Path
}

// Compare finds the record's places in the mount table.
func (f *Facts) Compare(table *mount.Table) {
	f.Stage, f.Reference, f.Uses = record.Missing, record.Missing, map[types.UID]record.Presence{}
	r := f.Record
	if r == nil {
		return
	}
	f.Stage = record.PresenceOf(table, r.Stage.Path, r.Stage.Source)
	if e, mounted := table.At(r.Stage.Path); mounted {
		f.StageLabel = selinux.Of(e.SuperOptions)
	}
	f.Reference = record.PresenceOf(table, f.Paths.Reference(f.Name), r.Stage.Source)
	for _, u := range r.Uses {
		presence := record.PresenceOf
		if u.SubPath() != "" {
			presence = record.PresenceOfPart
		}
		f.Uses[u.Intent.UID] = presence(table, u.Path, u.Source)
	}
}
