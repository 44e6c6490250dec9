/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
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
func lineOf(v *volume, f facts) report {
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
	if failures := v.ordered(f); len(failures) > 0 {
		line.Error = failures[0].DeepCopy()
	}
	out.orphan = f.entry == nil || slices.ContainsFunc(r.Uses, f.orphan)
	v.mu.Lock()
	defer v.mu.Unlock()
	if s := v.figure; s != nil {
		line.Used, line.Available, line.Inodes, line.InodesUsed = s.used, s.available, s.inodes, s.inodesUsed
		out.abnormal = s.abnormal
	}
	if len(v.lost) > 0 {
		out.differs = "not mounted any more: " + strings.Join(v.lost, ", ")
	}
	out.line = line
	return out
}

// renderNode writes the whole status: every volume that is known, and the node's own part.
func (a *Agent) renderNode(nvs *volumesv1alpha1.NodeVolumeState, reports map[string]report) {
	s := &nvs.Status
	looked := a.observer.tells()
	if s.BootID != a.bootID {
		s.ObservedGeneration = 0 // what an earlier boot looked at says nothing of this one
	}
	if looked.uid == nvs.UID && looked.generation <= nvs.Generation {
		s.ObservedGeneration, s.ObservedUID = looked.generation, nvs.UID
	}
	reports = withKubelet(reports, looked.uses)
	s.BootID, s.AgentVersion, s.Drivers = a.bootID, a.Version, a.Registry.Drivers()
	names := make([]string, 0, len(reports))
	for name := range reports {
		names = append(names, name)
	}
	slices.Sort(names)
	summary := volumesv1alpha1.NodeVolumeSummary{Attached: int32(len(nvs.Spec.Attachments))}
	s.Volumes, s.MountTableReleases = nil, a.mountTableReleases(nvs, reports)
	for _, name := range names {
		r := reports[name]
		s.Volumes = append(s.Volumes, *r.line.DeepCopy())
		summary.Staged += count(r.staged)
		summary.Published += count(r.published)
		summary.Failing += count(r.line.Error != nil || r.abnormal != "")
		summary.Orphaned += count(r.orphan)
	}
	s.Summary = &summary
	a.setConditions(nvs, reports, names)
}

// restOnMountTable notes that what ends with the next report ends on the word of the mount table alone; without a UID that it does not.
func (a *Agent) restOnMountTable(volume string, attachment types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.tableReleases, volume)
	if attachment != "" {
		a.tableReleases[volume] = attachment
	}
}

// mountTableReleases adds what is noted to what stands in the API, and leaves out what is in use or not attached any more.
func (a *Agent) mountTableReleases(nvs *volumesv1alpha1.NodeVolumeState, inUse map[string]report) []volumesv1alpha1.MountTableRelease {
	a.mu.Lock()
	defer a.mu.Unlock()
	var releases []volumesv1alpha1.MountTableRelease
	for _, e := range nvs.Spec.Attachments {
		r := volumesv1alpha1.MountTableRelease{VolumeName: e.VolumeName, AttachmentUID: e.AttachmentUID}
		stands := a.tableReleases[e.VolumeName] == e.AttachmentUID || slices.Contains(nvs.Status.MountTableReleases, r)
		if _, used := inUse[e.VolumeName]; stands && !used && e.AttachmentUID != "" {
			releases = append(releases, r)
		}
	}
	maps.DeleteFunc(a.tableReleases, func(name string, _ types.UID) bool { return handshake.AttachmentOf(nvs, name) == nil })
	return releases
}

func count(b bool) int32 {
	if b {
		return 1
	}
	return 0
}

// withKubelet are the reports and those of the volumes that the kubelet alone uses.
func withKubelet(reports map[string]report, uses map[string]kubeletUse) map[string]report {
	all := make(map[string]report, len(reports)+len(uses))
	for name, u := range uses {
		all[name] = u.report(name)
	}
	for name, r := range reports {
		all[name] = uses[name].join(r)
	}
	return all
}

// verdict is a condition's value with its reason and message.
type verdict struct {
	ok              bool
	reason, message string
}

func (a *Agent) setConditions(nvs *volumesv1alpha1.NodeVolumeState, reports map[string]report, names []string) {
	drivers, healthy := driversReady(nvs), volumesHealthy(reports, names)
	consistent := a.mountsConsistent(reports, names)
	ready := verdict{ok: true, reason: volumesv1alpha1.ReasonReady, message: "the agent is at work"}
	for _, c := range []verdict{drivers, consistent, healthy} {
		if !c.ok {
			ready = c
			break
		}
	}
	released := a.volumesReleased(len(nvs.Spec.Attachments), len(reports))
	for t, c := range map[string]verdict{
		volumesv1alpha1.ConditionReady: ready, volumesv1alpha1.ConditionDriversReady: drivers,
		volumesv1alpha1.ConditionVolumesHealthy: healthy, volumesv1alpha1.ConditionMountsConsistent: consistent,
		volumesv1alpha1.ConditionVolumesReleased: released,
	} {
		value := metav1.ConditionFalse
		if c.ok {
			value = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&nvs.Status.Conditions, metav1.Condition{
			Type: t, Status: value, Reason: c.reason, Message: c.message, ObservedGeneration: nvs.Generation,
		})
	}
	slices.SortFunc(nvs.Status.Conditions, func(x, y metav1.Condition) int { return strings.Compare(x.Type, y.Type) })
}

// volumesReleased: the node may be removed. Something that belongs to no volume that is known may be any volume.
func (a *Agent) volumesReleased(attached, used int) verdict {
	strange := len(a.strange())
	if attached+used+strange == 0 {
		return verdict{ok: true, reason: volumesv1alpha1.ReasonReleased, message: "no volume is attached or in use"}
	}
	message := fmt.Sprintf("%d attached, %d in use", attached, used)
	if strange > 0 {
		message += fmt.Sprintf(", and %d that cannot be told", strange)
	}
	return verdict{reason: volumesv1alpha1.ReasonVolumesPresent, message: message}
}

// strange is what speaks of a volume that is not known: unreadable records, of the agent and of the kubelet, and mounts.
func (a *Agent) strange() []string {
	looked, trouble := a.observer.seen()
	all := append(slices.Clone(a.brokenRecords()), looked.strange...)
	if trouble != "" {
		all = append(all, "what the kubelet uses is not known: "+trouble)
	}
	return all
}

func driversReady(nvs *volumesv1alpha1.NodeVolumeState) verdict {
	var absent []string
	for _, e := range nvs.Spec.Attachments {
		known := slices.ContainsFunc(nvs.Status.Drivers, func(d volumesv1alpha1.NodeDriver) bool { return d.Name == e.Driver })
		if e.Driver != "" && !known && !slices.Contains(absent, e.Driver) {
			absent = append(absent, e.Driver)
		}
	}
	if len(absent) > 0 {
		return verdict{reason: volumesv1alpha1.ReasonDriversMissing, message: "not registered on the node: " + strings.Join(absent, ", ")}
	}
	return verdict{ok: true, reason: volumesv1alpha1.ReasonAsExpected, message: "every driver that is needed is registered"}
}

func volumesHealthy(reports map[string]report, names []string) verdict {
	var failing []string
	for _, name := range names {
		switch r := reports[name]; {
		case r.line.Error != nil:
			failing = append(failing, fmt.Sprintf("%s: %s %s", name, r.line.Error.Operation, r.line.Error.Code))
		case r.abnormal != "":
			failing = append(failing, fmt.Sprintf("%s: %s", name, r.abnormal))
		}
	}
	if len(failing) > 0 {
		return verdict{reason: volumesv1alpha1.ReasonVolumesFailing, message: enumerate(failing)}
	}
	return verdict{ok: true, reason: volumesv1alpha1.ReasonAsExpected, message: "no volume fails"}
}

func (a *Agent) mountsConsistent(reports map[string]report, names []string) verdict {
	differ := a.strange()
	for _, name := range names {
		if r := reports[name]; r.differs != "" {
			differ = append(differ, name+": "+r.differs)
		} else if r.orphan {
			differ = append(differ, name+": in use, but its intent or its attachment is not there")
		}
	}
	if len(differ) > 0 {
		return verdict{reason: volumesv1alpha1.ReasonMountsDiffer, message: enumerate(differ)}
	}
	return verdict{ok: true, reason: volumesv1alpha1.ReasonAsExpected, message: "the mount table agrees with the records"}
}

// enumerate names the first few and counts the others: a condition's message is to be read.
func enumerate(what []string) string {
	const shown = 3
	if len(what) <= shown {
		return strings.Join(what, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(what[:shown], "; "), len(what)-shown)
}

// stopped is what a node's state says once its agent was told to end.
func stopped(nvs *volumesv1alpha1.NodeVolumeState) {
	meta.SetStatusCondition(&nvs.Status.Conditions, metav1.Condition{
		Type: volumesv1alpha1.ConditionReady, Status: metav1.ConditionUnknown, Reason: volumesv1alpha1.ReasonAgentStopped,
		Message: "the agent was stopped; what is mounted stays", ObservedGeneration: nvs.Generation,
	})
}
