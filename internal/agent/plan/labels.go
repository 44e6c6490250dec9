/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package plan

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/selinux"
)

// SELinux is what is known of SELinux on the node.
type SELinux struct {
	// Files is the label of container files.
	Files string
	// Err is why that is not known.
	Err error
}

// labelled reports that the volume is mounted with the label of its users: the node has SELinux, and the driver mounts
// with a label. An administrator's label in the PersistentVolume is for all.
func (f Facts) labelled() bool {
	return f.SELinux != nil && f.Entry != nil && f.Entry.SELinuxMount &&
		f.VolumeSource().Mode != corev1.PersistentVolumeBlock && selinux.Of(f.VolumeSource().MountOptions) == ""
}

func optionsOf(u record.Use) *corev1.SELinuxOptions {
	if u.Mount == nil {
		return nil
	}
	return u.Mount.SELinuxOptions
}

// LabelRefused returns why the volume cannot be mounted with the label that the use asks for. On a node without SELinux
// and for a device a label means nothing, as to the kubelet.
func (f Facts) LabelRefused(u record.Use) error {
	o := optionsOf(u)
	if o == nil || f.SELinux == nil || f.VolumeSource().Mode == corev1.PersistentVolumeBlock {
		return nil
	}
	refused := func(format string, args ...any) error {
		return &failure.Problem{Reason: volumesv1alpha1.ReasonSELinuxOptions, Stalled: true,
			Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case !selinux.Valid(o):
		return refused("seLinuxOptions need a level, and letters, digits, '_' and '.' in the other fields")
	case f.Entry != nil && !f.Entry.SELinuxMount && f.ofPod(u):
		return nil // the container runtime labels the files, as for a claim
	case f.Entry != nil && !f.Entry.SELinuxMount:
		return refused("the CSIDriver %s has no seLinuxMount, so the volume cannot be mounted with a label; take "+
			"seLinuxOptions out of the intent", f.Record.Driver)
	case selinux.Of(f.VolumeSource().MountOptions) != "":
		return refused("mountOptions of the PersistentVolume have a label for all; take seLinuxOptions out of the intent")
	case f.SELinux.Err != nil:
		return &failure.Problem{Reason: volumesv1alpha1.ReasonSELinuxOptions, Err: f.SELinux.Err,
			Message: "the node does not show which label its container files have"}
	}
	return nil
}

// ofPod reports that the use's intent was made for an inline volume of a pod, with the label of that.
func (f Facts) ofPod(u record.Use) bool {
	i := f.Intent(u.Intent.UID)
	return i != nil && i.Labels[volumesv1alpha1.PodUIDLabel] != ""
}

// Label is the label with which the volume is mounted for the use; empty for none.
func (f Facts) Label(u record.Use) string {
	o := optionsOf(u)
	if o == nil || !f.labelled() || f.LabelRefused(u) != nil {
		return ""
	}
	return selinux.Label(f.SELinux.Files, o)
}

// LabelHolder is the use that decides the label of the volume's mount, or nil. One with the label that is mounted holds
// over others, so that nothing is undone for them; then what is published; then the one whose intent was created first.
func (f Facts) LabelHolder() *record.Use {
	var holder *record.Use
	rank := 0
	for k := range f.Record.Uses {
		u := &f.Record.Uses[k]
		if f.Ends(*u) && u.Phase == record.PhaseNone || f.LabelRefused(*u) != nil {
			continue
		}
		r := 1
		if u.Phase != record.PhaseNone {
			r = 2
		}
		if f.Stage == record.Present && selinux.Same(f.Label(*u), f.StageLabel) {
			r += 2
		}
		if r > rank {
			holder, rank = u, r
		}
	}
	return holder
}

// HeldLabel is the label that the uses decide; empty for none.
func (f Facts) HeldLabel() string {
	if holder := f.LabelHolder(); holder != nil {
		return f.Label(*holder)
	}
	return ""
}

// LabelConflict returns why the use cannot have the volume: a filesystem has one label for all of its mounts on a node,
// and another user's is mounted. It waits for a change of labelInputs.
func (f Facts) LabelConflict(u record.Use) error {
	if !f.labelled() {
		return nil
	}
	wanted, held := f.Label(u), f.HeldLabel()
	by := "another intent"
	if holder := f.LabelHolder(); holder != nil {
		by = fmt.Sprintf("intent %s/%s", holder.Intent.Namespace, holder.Intent.Name)
	}
	if f.Stage == record.Present && !selinux.Same(f.StageLabel, held) {
		if held, by = f.StageLabel, "an earlier use"; f.Kubelet != nil {
			by = "the kubelet, for a pod,"
		}
	}
	if selinux.Same(wanted, held) {
		return nil
	}
	return &failure.Problem{Reason: volumesv1alpha1.ReasonSELinuxConflict, AwaitsEvent: true, Message: fmt.Sprintf(
		"%s has the volume mounted on this node with %s, and intent %s/%s wants it with %s; it waits until that use is "+
			"gone or both have one label", by, named(held), u.Intent.Namespace, u.Intent.Name, named(wanted))}
}

func named(label string) string {
	if label == "" {
		return "no SELinux label"
	}
	return "SELinux label " + label
}

// Relabels reports that the stage has to be undone, because nothing uses it any more with the label that it has.
func (f Facts) Relabels() bool {
	if !f.labelled() || f.Stage != record.Present || f.Kubelet != nil || f.LabelHolder() == nil {
		return false
	}
	for _, u := range f.Record.Uses {
		if u.Phase != record.PhaseNone {
			return false
		}
	}
	return !selinux.Same(f.StageLabel, f.HeldLabel())
}
