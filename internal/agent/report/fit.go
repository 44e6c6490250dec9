/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package report

import (
	"encoding/json"
	"slices"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/status"
)

// detail is how much of a volume's line only informs.
type detail struct {
	// publications that are listed, those of orphans first; orphans are at least as many.
	publications, orphans int
	// message is how much of an error's message is kept, and of a message of a driver's, in bytes.
	message int
	// problems that are listed of what a driver reports of the health of one volume, or of its storage.
	problems int
	// figures of the filesystem, and the paths that the agent has on its disk, are kept.
	figures, paths bool
	// upTo is the size of the whole object up to which this detail is taken, in bytes.
	upTo int
}

// details, the fullest first. Up to 1 MiB the manager adds entries (nodestate.SizeLimit), so the first ones leave room
// for these. The API server stores up to 1.5 MiB.
var details = []detail{
	{volumesv1alpha1.ShownPublications, volumesv1alpha1.ShownPublications, 4096, volumesv1alpha1.MaxHealthProblems, true,
		true, 512 << 10},
	{4, 4, 512, 4, true, true, 512 << 10},
	{1, 1, 128, 1, true, true, 1 << 20},
	{0, 1, 32, 0, false, true, 1 << 20},
	{message: 16},
}

// fit leaves out what only informs until the object is small enough to be written; the lines are the status's own. What
// safety needs stays: no volume's line keeps that of another from being written.
func fit(nvs *volumesv1alpha1.NodeVolumeState) {
	lines, drivers := nvs.Status.Volumes, nvs.Status.Drivers
	nvs.Status.Volumes, nvs.Status.Drivers = nil, nil
	rest := size(nvs)
	for at, d := range details {
		cut := make([]volumesv1alpha1.NodeVolume, 0, len(lines))
		for i := range lines {
			cut = append(cut, d.of(lines[i]))
		}
		cutDrivers := slices.Clone(drivers)
		for i := range cutDrivers {
			cutDrivers[i].StorageHealth = d.healthOf(drivers[i].StorageHealth)
		}
		if at == len(details)-1 || rest+size(cut)+size(cutDrivers) <= d.upTo {
			nvs.Status.Volumes, nvs.Status.Drivers = cut, cutDrivers
			return
		}
	}
}

// healthOf lists the worst problems, or none.
func (d detail) healthOf(h *volumesv1alpha1.Health) *volumesv1alpha1.Health {
	if h == nil || d.problems == 0 {
		return nil
	}
	h = h.DeepCopy()
	h.Problems = h.Problems[:min(len(h.Problems), d.problems)]
	for i := range h.Problems {
		h.Problems[i].Message = status.Shorten(h.Problems[i].Message, d.message)
	}
	return h
}

// of is the line in this detail.
func (d detail) of(line volumesv1alpha1.NodeVolume) volumesv1alpha1.NodeVolume {
	var count int32
	line.Publications, count = d.publicationsOf(line.Publications)
	line.PublicationCount = max(line.PublicationCount, count) // a line of another machine was cut before
	if line.Error != nil && len(line.Error.Message) > d.message {
		line.Error = line.Error.DeepCopy()
		line.Error.Message = status.Shorten(line.Error.Message, d.message)
	}
	// The paths of the kubelet's uses stay: where the disk is lost, the API is the only record of them.
	if !d.paths && line.PublishedBy != volumesv1alpha1.PublisherKubelet {
		line.StagedPath, line.DevicePath = "", ""
	}
	line.Health = d.healthOf(line.Health)
	if !d.figures {
		line.Used, line.Available, line.Inodes, line.InodesUsed = nil, nil, nil, nil
	}
	return line
}

// publicationsOf lists some publications, and counts all where it lists some only.
func (d detail) publicationsOf(all []volumesv1alpha1.Publication) (some []volumesv1alpha1.Publication, count int32) {
	if len(all) <= d.publications {
		return all, 0
	}
	for _, p := range all {
		if p.Orphan && len(some) < d.orphans {
			some = append(some, p)
		}
	}
	for _, p := range all {
		if !p.Orphan && len(some) < d.publications {
			some = append(some, p)
		}
	}
	return some, int32(len(all))
}

// size in JSON.
func size(v any) int {
	b, err := json.Marshal(v)
	if err != nil {
		return 0 // what cannot be encoded is not written either
	}
	return len(b)
}
