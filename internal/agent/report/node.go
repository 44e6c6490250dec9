/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package report

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/status"
)

// Node renders the node's state. What it notes beside the volumes' lines has a place here.
type Node struct {
	BootID, Version string
	// Machine that this agent runs on.
	Machine volumesv1alpha1.MachineIdentity
	// Drivers are those that are registered.
	Drivers  func() []volumesv1alpha1.NodeDriver
	Observer *kubelet.Observer
	// Directories counts those of pods.
	Directories func() int

	// unknownUser are volumes that were in use on a machine which is not known. It is set before the first report.
	unknownUser []string

	mu sync.Mutex
	// Broken are unreadable records whose volume is not known.
	Broken []string
	// TableReleases are the attachments whose release rests on the mount table alone, by volume.
	TableReleases map[string]types.UID
	// storage is what each driver has reported of the health of its storage; nil for no problem.
	storage map[string]*volumesv1alpha1.Health
}

// NewNode returns a renderer of the node's state.
func NewNode(bootID, version string, m volumesv1alpha1.MachineIdentity,
	drivers func() []volumesv1alpha1.NodeDriver, o *kubelet.Observer) *Node {
	return &Node{BootID: bootID, Version: version, Machine: m, Drivers: drivers, Observer: o,
		TableReleases: map[string]types.UID{}, storage: map[string]*volumesv1alpha1.Health{}}
}

// AddBroken has the conditions name records that are unreadable.
func (n *Node) AddBroken(broken ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.Broken = append(n.Broken, broken...)
}

// BrokenRecords describes the unreadable records whose volume is not known.
func (n *Node) BrokenRecords() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.Broken
}

// Render writes the whole status: every volume that is known, and the node's own part.
func (n *Node) Render(nvs *volumesv1alpha1.NodeVolumeState, reports map[string]VolumeReport) {
	s := &nvs.Status
	looked := n.Observer.BeginReport()
	if s.BootID != n.BootID {
		s.ObservedGeneration = 0 // what an earlier boot observed does not hold for this one
	}
	if looked.UID == nvs.UID && looked.Generation <= nvs.Generation {
		s.ObservedGeneration, s.Protocol.ObservedUID = looked.Generation, nvs.UID
	}
	others := n.others(nvs, reports)
	reports = withKubelet(reports, looked.Uses)
	s.BootID, s.Machine, s.Drivers = n.BootID, n.Machine, n.registered()
	s.AgentVersion = status.Shorten(n.Version, volumesv1alpha1.MaxVersionLength)
	names := make([]string, 0, len(reports))
	for name := range reports {
		// One of the kubelet's, which no entry can name. One line that is too long would cost the whole report.
		if len(name) <= volumesv1alpha1.MaxVolumeNameLength {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	summary := volumesv1alpha1.NodeVolumeSummary{Attached: int32(len(nvs.Spec.Attachments)),
		Directories: int32(n.Directories())}
	s.Volumes, s.MountTableReleases = others, n.MountTableReleases(nvs, reports)
	for _, name := range names {
		r := reports[name]
		s.Volumes = append(s.Volumes, *r.Line.DeepCopy())
		summary.Staged += count(r.Staged)
		summary.Published += count(r.Published)
		summary.Failing += count(r.Line.Error != nil || r.Line.Health != nil || r.Sick != "")
		summary.Orphaned += count(r.Orphan)
	}
	s.Summary = &summary
	n.SetConditions(nvs, reports, names, others)
	fit(nvs)
}

// NoteMountTableRelease notes that what ends with the next report is shown by the mount table alone; without a UID that
// it is not.
func (n *Node) NoteMountTableRelease(volume string, attachment types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.TableReleases, volume)
	if attachment != "" {
		n.TableReleases[volume] = attachment
	}
}

// MountTableReleases adds what is noted to what the API has, and leaves out what is in use or not attached any more.
func (n *Node) MountTableReleases(nvs *volumesv1alpha1.NodeVolumeState,
	inUse map[string]VolumeReport) []volumesv1alpha1.MountTableRelease {
	n.mu.Lock()
	defer n.mu.Unlock()
	var releases []volumesv1alpha1.MountTableRelease
	for _, e := range nvs.Spec.Attachments {
		r := volumesv1alpha1.MountTableRelease{VolumeName: e.VolumeName, AttachmentUID: e.AttachmentUID}
		stands := n.TableReleases[e.VolumeName] == e.AttachmentUID || slices.Contains(nvs.Status.MountTableReleases, r)
		if _, used := inUse[e.VolumeName]; stands && !used && e.AttachmentUID != "" {
			releases = append(releases, r)
		}
	}
	maps.DeleteFunc(n.TableReleases, func(name string,
		_ types.UID) bool {
		return handshake.AttachmentOf(nvs, name) == nil
	})
	return releases
}

func count(b bool) int32 {
	if b {
		return 1
	}
	return 0
}

// withKubelet are the reports and those of the volumes that the kubelet alone uses.
func withKubelet(reports map[string]VolumeReport, uses map[string]kubelet.TrackedUse) map[string]VolumeReport {
	all := make(map[string]VolumeReport, len(reports)+len(uses))
	for name, u := range uses {
		all[name] = reportOfKubelet(name, u)
	}
	for name, r := range reports {
		all[name] = addKubelet(uses[name], r)
	}
	return all
}
