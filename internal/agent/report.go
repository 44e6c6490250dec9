/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// report is one volume's line in NodeVolumeState.status and what the node's own part is counted from.
type report struct {
	line      volumesv1alpha1.NodeVolume
	staged    bool
	published bool
	// orphan: an intent is simply not there, or the controller lists no attachment.
	orphan bool
	// differs names what the mount table lacks or has too much.
	differs string
	// abnormal is what the driver says of an unhealthy volume.
	abnormal string
}

func (r report) equal(o report) bool {
	x, y := r.line, o.line
	r.line, o.line = volumesv1alpha1.NodeVolume{}, volumesv1alpha1.NodeVolume{}
	return equality.Semantic.DeepEqual(x, y) && reflect.DeepEqual(r, o)
}

// lineOf is what the record says of the volume.
func lineOf(v snapshot, f facts) report {
	r := v.record
	line := volumesv1alpha1.NodeVolume{
		VolumeName: v.name, AttachmentUID: r.AttachmentUID, InUse: r.held(f.now), Unprotected: v.unprotected,
		PublishedBy: volumesv1alpha1.PublisherAgent, DevicePath: r.Stage.Device,
		MountTableOnly: r.MountTableOnly && len(r.Devices) == 0,
	}
	if f.released() {
		line.PublishedBy = volumesv1alpha1.PublisherKubelet
	}
	if r.Stage.Phase != PhaseNone {
		line.StagedPath = r.Stage.Path
	}
	if r.Capacity != nil {
		q := r.Capacity.DeepCopy()
		line.Capacity = &q
	}
	out := report{staged: r.Stage.Phase == PhaseDone}
	for _, u := range r.Uses {
		if u.Path == "" {
			continue
		}
		out.published = out.published || u.Phase == PhaseDone
		if u.Device != "" {
			line.DevicePath = u.Device
		}
		line.Publications = append(line.Publications, volumesv1alpha1.Publication{
			Intent: u.Intent, Path: u.Path, Type: u.Type, ReadOnly: u.ReadOnly, Orphan: f.orphan(u),
		})
	}
	if failures := v.failures.ordered(f); len(failures) > 0 {
		line.Error = failures[0].DeepCopy()
	}
	out.orphan = f.entry == nil || slices.ContainsFunc(r.Uses, f.orphan)
	if s := v.figures; s != nil {
		line.Used, line.Available, line.Inodes, line.InodesUsed = s.used, s.available, s.inodes, s.inodesUsed
		out.abnormal = s.abnormal
	}
	if len(v.lost) > 0 {
		out.differs = "not mounted any more: " + strings.Join(v.lost, ", ")
	}
	out.line = line
	return out
}

// reportOfUse is the node's line for a volume that only the kubelet uses.
func reportOfUse(name string, u kubeletUse) report {
	return joinUse(u, report{line: volumesv1alpha1.NodeVolume{
		VolumeName: name, AttachmentUID: u.AttachmentUID, InUse: true, Waiting: u.waiting, PublishedBy: volumesv1alpha1.PublisherKubelet,
		StagedPath: u.StagedPath, DevicePath: u.DevicePath, MountTableOnly: u.mountTableOnly(),
	}})
}

// joinUse adds to a volume's report what the kubelet's use of it has to tell. The zero use tells nothing.
func joinUse(u kubeletUse, r report) report {
	r.staged, r.published = r.staged || u.StagedPath != "", r.published || u.published
	if r.differs == "" {
		r.differs = u.differs()
	}
	if u.held != nil {
		r.line.Error = u.held.DeepCopy()
	}
	if u.failure != nil {
		r.line.Unprotected, r.line.Error = true, u.failure.DeepCopy()
	}
	return r
}
