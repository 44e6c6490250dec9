/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package record is what the agent keeps on the node's disk: a record of each volume that is in use, and the paths.
// A record is written before each driver call, so a later process knows whatever a call may have left behind.
package record

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// Schema is the version of the records' form.
const Schema = 1

// Phase says how far a stage or a publication is known to be.
type Phase string

const (
	// PhaseNone: the driver was not asked, or has undone it.
	PhaseNone Phase = ""
	// PhaseUncertain: the driver was asked; whether it was done is not known.
	PhaseUncertain Phase = "Uncertain"
	// PhaseUnowned: the driver has published it, and its files have yet to be given to the intent's group. The agent of
	// an earlier version takes it for uncertain.
	PhaseUnowned Phase = "Unowned"
	// PhaseDone: the driver said that it was done.
	PhaseDone Phase = "Done"
)

// Record is what the agent remembers of one volume on disk. It is written before each driver call, so
// that whatever a call may have left behind is known to the process that comes after a crash.
type Record struct {
	Schema     int    `json:"schema"`
	VolumeName string `json:"volumeName"`
	// AttachmentUID of the attachment that everything here was made on.
	AttachmentUID types.UID `json:"attachmentUID"`
	// InUse: the node state has inUse for AttachmentUID, written at a version at which it was Attached, and the agent
	// has not begun to clear it.
	InUse bool `json:"inUse"`

	Driver           string                      `json:"driver"`
	Handle           string                      `json:"handle"`
	PersistentVolume string                      `json:"persistentVolume,omitempty"`
	Mode             corev1.PersistentVolumeMode `json:"mode,omitempty"`

	Stage Stage `json:"stage"`
	// Uses are the volume's users, one for each intent.
	Uses []Use `json:"uses,omitempty"`
	// InFlight is the driver call that was begun last and has not returned.
	InFlight *Call `json:"inFlight,omitempty"`
	// Unfinished is the call with the latest deadline of those whose end is not known.
	Unfinished *Call `json:"unfinished,omitempty"`
	// Devices that the volume was seen on. Each is asked whether anything still holds it before the volume is released.
	Devices []SeenDevice `json:"devices,omitempty"`
	// MountTableOnly: it was seen mounted without a device of its own.
	MountTableOnly bool `json:"mountTableOnly,omitempty"`
	// Capacity that the node has seen.
	Capacity *resource.Quantity `json:"capacity,omitempty"`
	// ShutDown: the filesystem was shut down because its attachment was taken away.
	ShutDown bool `json:"shutDown,omitempty"`
	// Rebuilt from the API because the record itself was lost.
	Rebuilt bool `json:"rebuilt,omitempty"`
	// Sick is why what is mounted works no more; nil while it does, as far as is known.
	Sick *Sickness `json:"sick,omitempty"`
	// Health that the driver reports, while it reports a problem.
	Health *volumesv1alpha1.Health `json:"health,omitempty"`
	// Incomplete: rebuilt from a line of the API that did not list every publication, so uses are missing.
	Incomplete bool `json:"incomplete,omitempty"`
}

// Stage is the volume's one mount that all publications come from.
type Stage struct {
	Phase Phase  `json:"phase,omitempty"`
	Path  string `json:"path"`
	// Source is what the mount table showed at Path afterwards, in this boot: device numbers and root. Empty where
	// the driver mounts nothing there, and while the outcome of a call that may mount something new is not known.
	Source string `json:"source,omitempty"`
	// Device is the device node behind it where there is one. Seq is the sequence number of its disk, where the node
	// itself is at Path.
	Device string `json:"device,omitempty"`
	Seq    uint64 `json:"seq,omitempty"`
	// BootID of the kernel that Phase speaks of.
	BootID string `json:"bootID,omitempty"`
	// Errors are those that the filesystem had counted when it was staged, or first examined; nil for one that counts
	// none.
	Errors *int64 `json:"errors,omitempty"`
	// Unstaging: the driver was asked to undo it. What is missing at Path may have been undone.
	Unstaging bool `json:"unstaging,omitempty"`
}

// Sickness is why what is mounted of a volume works no more.
type Sickness struct {
	Cause string `json:"cause"`
	// Since is when the agent saw it first.
	Since time.Time `json:"since"`
	// Remountable: to unmount and stage it again may help.
	Remountable bool `json:"remountable,omitempty"`
}

// Hangs reports whether the volume does not answer: an access to it hangs, or its device takes no requests.
func (r *Record) Hangs() bool { return r.Sick != nil && !r.Sick.Remountable }

func (s Sickness) String() string {
	return fmt.Sprintf("%s, since %s", s.Cause, s.Since.UTC().Format(time.RFC3339))
}

// Use is one intent's hold on the volume.
type Use struct {
	Intent volumesv1alpha1.IntentReference `json:"intent"`
	// Want is Staged or Published.
	Want  volumesv1alpha1.DesiredState `json:"want"`
	Phase Phase                        `json:"phase,omitempty"`
	// Path is where the user finds the volume.
	Path string `json:"path,omitempty"`
	// Target is where the driver publishes; it differs from Path where users see the agent's own bind mount of that.
	Target   string                          `json:"target,omitempty"`
	Type     volumesv1alpha1.PublicationType `json:"type,omitempty"`
	ReadOnly bool                            `json:"readOnly,omitempty"`
	Mount    *volumesv1alpha1.MountSpec      `json:"mount,omitempty"`
	// Bound is where an earlier agent bound the device for the kubelet to see, in vain. It is empty once a device node
	// is there instead.
	Bound string `json:"reference,omitempty"`
	// Source is what the mount table showed at Path afterwards, as with the stage.
	Source string `json:"source,omitempty"`
	// Device is the name of a published device, Seq the sequence number of its disk.
	Device string `json:"device,omitempty"`
	Seq    uint64 `json:"seq,omitempty"`
	BootID string `json:"bootID,omitempty"`
	// Moved: the sub path was renamed or removed since, so Path shows another directory than it names now.
	Moved bool `json:"moved,omitempty"`
	// Live: the intent, which wants the volume staged only, was there when the volume was in use.
	Live bool `json:"live,omitempty"`
}

// Call is one driver call.
type Call struct {
	Operation string `json:"operation"`
	Target    string `json:"target"`
	// Deadline is for readers; Uptime is the same moment on the clock of the boot, which no program can set. The call's
	// context has ended by then.
	Deadline time.Time     `json:"deadline"`
	Uptime   time.Duration `json:"uptime"`
	BootID   string        `json:"bootID"`
	// Mounts: it, or one that is unfinished like it, may mount something as late as at its deadline.
	Mounts bool `json:"mounts,omitempty"`
}

// Moment is now, on the clock that starts at boot.
type Moment struct {
	BootID string
	Uptime time.Duration
}

func (c *Call) ended(now Moment) bool {
	return c == nil || c.BootID != now.BootID || now.Uptime >= c.Uptime
}

// Remaining is how long the call may still run.
func (c *Call) Remaining(now Moment) time.Duration {
	if c.ended(now) {
		return 0
	}
	return c.Uptime - now.Uptime
}

// Begin notes a call that is about to be made.
func (r *Record) Begin(c Call) {
	r.Abandon()
	r.InFlight = &c
}

// Finish notes that the call in flight has ended for certain.
func (r *Record) Finish() { r.InFlight = nil }

// Abandon notes that the end of the call in flight will not become known.
func (r *Record) Abandon() {
	c := r.InFlight
	r.InFlight = nil
	if c == nil {
		return
	}
	u := r.Unfinished
	if u == nil || u.BootID != c.BootID {
		r.Unfinished = c
		return
	}
	mounts := u.Mounts || c.Mounts
	if u.Uptime < c.Uptime {
		r.Unfinished = c
	}
	r.Unfinished.Mounts = mounts
}

// MayMount reports whether an earlier call may still mount something, so that what is undone now may come back.
func (r *Record) MayMount(now Moment) bool {
	return r.Unfinished != nil && r.Unfinished.Mounts && !r.Unfinished.ended(now)
}

// CallsEnded reports whether no earlier driver call can still be running.
func (r *Record) CallsEnded(now Moment) bool { return r.InFlight == nil && r.Unfinished.ended(now) }

// Requested notes that the driver is asked to mount in this boot. What is mounted at the path stays known; where
// nothing is, the driver may mount the volume under any device number.
func (s *Stage) Requested(there Presence, bootID string) {
	s.Phase, s.BootID = PhaseUncertain, bootID
	if there == Missing {
		s.Source, s.Device, s.Seq = "", "", 0
	}
}

// Requested is the same for a publication. What an earlier call has left at a hidden target stays known.
func (u *Use) Requested(there Presence, bootID string) {
	u.Phase, u.BootID = PhaseUncertain, bootID
	if there == Missing {
		u.Source, u.Device = "", ""
		if u.Target == u.Path {
			u.Seq = 0
		}
	}
}

// ForgetOtherBoots forgets what was mounted in other boots than this one: device numbers and names mean nothing in the
// next.
func (r *Record) ForgetOtherBoots(bootID string) {
	if r.Stage.BootID != bootID {
		r.Stage.Source, r.Stage.Device, r.Stage.Seq, r.Stage.Errors, r.Sick = "", "", 0, nil, nil
	}
	for i := range r.Uses {
		if u := &r.Uses[i]; u.BootID != bootID {
			u.Source, u.Device, u.Seq = "", "", 0
		}
	}
}

// MayHaveMounts reports whether the driver may have anything of the volume on this node.
func (r *Record) MayHaveMounts() bool {
	return r.Stage.Phase != PhaseNone || slices.ContainsFunc(r.Uses, func(u Use) bool { return u.Phase != PhaseNone })
}

// places are the paths at which the driver, or the agent for its users, has or may have mounted the volume.
func (r *Record) places() []string {
	var paths []string
	if r.Stage.Phase != PhaseNone {
		paths = append(paths, r.Stage.Path)
	}
	for _, u := range r.Uses {
		if u.Phase != PhaseNone {
			paths = append(paths, u.Path, u.Target, u.Bound)
		}
	}
	return paths
}

// CountsAsInUse reports whether the volume counts as in use here.
func (r *Record) CountsAsInUse(now Moment) bool {
	return r.InUse || r.MayHaveMounts() || !r.CallsEnded(now) ||
		slices.ContainsFunc(r.Devices, func(d SeenDevice) bool { return d.Held && d.BootID == now.BootID })
}

// UseOf returns the intent's use, or nil. It points into r.
func (r *Record) UseOf(intent types.UID) *Use {
	i := slices.IndexFunc(r.Uses, func(u Use) bool { return u.Intent.UID == intent })
	if i < 0 {
		return nil
	}
	return &r.Uses[i]
}

// Drop removes the use of the intent, if there is one.
func (r *Record) Drop(intent types.UID) {
	r.Uses = slices.DeleteFunc(r.Uses, func(u Use) bool { return u.Intent.UID == intent })
}

// Users are the UIDs of the intents that use the volume, in order.
func (r *Record) Users() []string {
	var users []string
	for _, u := range r.Uses {
		users = append(users, string(u.Intent.UID))
	}
	slices.Sort(users)
	return users
}

// Copy returns a deep copy.
func (r *Record) Copy() *Record {
	if r == nil {
		return nil
	}
	c := *r
	c.Uses, c.Devices, c.Health = slices.Clone(r.Uses), slices.Clone(r.Devices), r.Health.DeepCopy()
	for i := range c.Uses {
		c.Uses[i].Mount = c.Uses[i].Mount.DeepCopy()
	}
	if r.Sick != nil {
		sick := *r.Sick
		c.Sick = &sick
	}
	if r.InFlight != nil {
		call := *r.InFlight
		c.InFlight = &call
	}
	if r.Unfinished != nil {
		call := *r.Unfinished
		c.Unfinished = &call
	}
	if r.Capacity != nil {
		q := r.Capacity.DeepCopy()
		c.Capacity = &q
	}
	return &c
}
