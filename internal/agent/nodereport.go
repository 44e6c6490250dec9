/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

// nodeReport renders the node's state. What it notes beside the volumes' lines has a place here.
type nodeReport struct {
	BootID, Version string
	// Drivers are those that are registered.
	Drivers  func() []volumesv1alpha1.NodeDriver
	Observer *observer

	mu sync.Mutex
	// broken are unreadable records whose volume is not known.
	broken []string
	// tableReleases are the attachments whose release rests on the mount table alone, by volume.
	tableReleases map[string]types.UID
}

func newNodeReport(bootID, version string, drivers func() []volumesv1alpha1.NodeDriver, o *observer) *nodeReport {
	return &nodeReport{BootID: bootID, Version: version, Drivers: drivers, Observer: o, tableReleases: map[string]types.UID{}}
}

// noteBroken has the conditions name records that are unreadable.
func (n *nodeReport) noteBroken(broken ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.broken = append(n.broken, broken...)
}

func (n *nodeReport) brokenRecords() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.broken
}

// renderNode writes the whole status: every volume that is known, and the node's own part.
func (n *nodeReport) renderNode(nvs *volumesv1alpha1.NodeVolumeState, reports map[string]report) {
	s := &nvs.Status
	looked := n.Observer.tells()
	if s.BootID != n.BootID {
		s.ObservedGeneration = 0 // what an earlier boot looked at says nothing of this one
	}
	if looked.uid == nvs.UID && looked.generation <= nvs.Generation {
		s.ObservedGeneration, s.ObservedUID = looked.generation, nvs.UID
	}
	reports = withKubelet(reports, looked.uses)
	s.BootID, s.AgentVersion, s.Drivers = n.BootID, n.Version, n.Drivers()
	names := make([]string, 0, len(reports))
	for name := range reports {
		names = append(names, name)
	}
	slices.Sort(names)
	summary := volumesv1alpha1.NodeVolumeSummary{Attached: int32(len(nvs.Spec.Attachments))}
	s.Volumes, s.MountTableReleases = nil, n.mountTableReleases(nvs, reports)
	for _, name := range names {
		r := reports[name]
		s.Volumes = append(s.Volumes, *r.line.DeepCopy())
		summary.Staged += count(r.staged)
		summary.Published += count(r.published)
		summary.Failing += count(r.line.Error != nil || r.abnormal != "")
		summary.Orphaned += count(r.orphan)
	}
	s.Summary = &summary
	n.setConditions(nvs, reports, names)
}

// restOnMountTable notes that what ends with the next report ends on the word of the mount table alone; without a UID that it does not.
func (n *nodeReport) restOnMountTable(volume string, attachment types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.tableReleases, volume)
	if attachment != "" {
		n.tableReleases[volume] = attachment
	}
}

// mountTableReleases adds what is noted to what stands in the API, and leaves out what is in use or not attached any more.
func (n *nodeReport) mountTableReleases(nvs *volumesv1alpha1.NodeVolumeState, inUse map[string]report) []volumesv1alpha1.MountTableRelease {
	n.mu.Lock()
	defer n.mu.Unlock()
	var releases []volumesv1alpha1.MountTableRelease
	for _, e := range nvs.Spec.Attachments {
		r := volumesv1alpha1.MountTableRelease{VolumeName: e.VolumeName, AttachmentUID: e.AttachmentUID}
		stands := n.tableReleases[e.VolumeName] == e.AttachmentUID || slices.Contains(nvs.Status.MountTableReleases, r)
		if _, used := inUse[e.VolumeName]; stands && !used && e.AttachmentUID != "" {
			releases = append(releases, r)
		}
	}
	maps.DeleteFunc(n.tableReleases, func(name string, _ types.UID) bool { return handshake.AttachmentOf(nvs, name) == nil })
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
		all[name] = reportOfUse(name, u)
	}
	for name, r := range reports {
		all[name] = joinUse(uses[name], r)
	}
	return all
}
