/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package report

import (
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
)

// VolumeReport is one volume's line in NodeVolumeState.status and what the node's own part is counted from.
type VolumeReport struct {
	Line      volumesv1alpha1.NodeVolume
	Staged    bool
	Published bool
	// Orphan: an intent is simply not there, or the controller lists no attachment.
	Orphan bool
	// Differs names what the mount table lacks or has too much.
	Differs string
	// Sick is why what is mounted works no more, as the agent has found.
	Sick string
}

// Equal reports whether both say the same; quantities are compared by value.
func (r VolumeReport) Equal(o VolumeReport) bool {
	x, y := r.Line, o.Line
	r.Line, o.Line = volumesv1alpha1.NodeVolume{}, volumesv1alpha1.NodeVolume{}
	return equality.Semantic.DeepEqual(x, y) && reflect.DeepEqual(r, o)
}

// NewVolumeReport is what the record says of the volume.
func NewVolumeReport(v Snapshot, f plan.Facts) VolumeReport {
	r := v.Record
	f.Record = r // a step that failed may have made it after the facts were gathered
	line := volumesv1alpha1.NodeVolume{
		VolumeName: v.Name, AttachmentUID: r.AttachmentUID, InUse: r.CountsAsInUse(f.Now), Unprotected: v.Unprotected,
		PublishedBy: volumesv1alpha1.PublisherAgent, DevicePath: r.Stage.Device,
		MountTableOnly: r.MountTableOnly && len(r.Devices) == 0, Health: r.Health.DeepCopy(),
	}
	if f.Released() {
		line.PublishedBy = volumesv1alpha1.PublisherKubelet
	}
	if r.Stage.Phase != record.PhaseNone {
		line.StagedPath = r.Stage.Path
	}
	if r.Capacity != nil {
		q := r.Capacity.DeepCopy()
		line.Capacity = &q
	}
	out := VolumeReport{Staged: r.Stage.Phase == record.PhaseDone}
	for _, u := range r.Uses {
		if u.Path == "" {
			continue
		}
		out.Published = out.Published || u.Phase == record.PhaseDone
		if u.Device != "" {
			line.DevicePath = u.Device
		}
		line.Publications = append(line.Publications, volumesv1alpha1.Publication{
			Intent: u.Intent, Path: u.Path, Type: u.Type, ReadOnly: u.ReadOnly, Orphan: f.Orphan(u),
		})
	}
	if failures := v.Failures.Ordered(f); len(failures) > 0 {
		line.Error = failures[0].DeepCopy()
	}
	out.Orphan = f.Entry == nil || slices.ContainsFunc(r.Uses, f.Orphan)
	if s := v.Figures; s != nil {
		line.Used, line.Available, line.Inodes, line.InodesUsed = s.Used, s.Available, s.Inodes, s.InodesUsed
	}
	if r.Sick != nil {
		out.Sick = r.Sick.String()
	}
	if len(v.Lost) > 0 {
		out.Differs = "not mounted any more: " + strings.Join(v.Lost, ", ")
	}
	out.Line = line
	return out
}

// reportOfKubelet is the node's line for a volume that only the kubelet uses.
func reportOfKubelet(name string, u kubelet.TrackedUse) VolumeReport {
	return addKubelet(u, VolumeReport{Line: volumesv1alpha1.NodeVolume{
		VolumeName: name, AttachmentUID: u.AttachmentUID, InUse: true, Waiting: u.Waiting,
		PublishedBy: volumesv1alpha1.PublisherKubelet,
		StagedPath:  u.StagedPath, DevicePath: u.DevicePath, MountTableOnly: u.MountTableOnly(),
	}})
}

// addKubelet adds to a volume's report what the kubelet's use of it has to report. The zero use adds nothing.
func addKubelet(u kubelet.TrackedUse, r VolumeReport) VolumeReport {
	r.Staged, r.Published = r.Staged || u.StagedPath != "", r.Published || u.Published
	if r.Differs == "" {
		r.Differs = u.Differs()
	}
	if u.Held != nil {
		r.Line.Error = u.Held.DeepCopy()
	}
	if u.Failure != nil {
		r.Line.Unprotected, r.Line.Error = true, u.Failure.DeepCopy()
	}
	return r
}
