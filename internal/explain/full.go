/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// least is the part of a volume that is free before it counts as full. The alerts have the same.
const least = 0.03

// full reports each node where the volume is full, or where its driver reports a problem of it. What an agent last read
// is as old as its stats period.
func (w *walk) full(v *facts.Volume) {
	for i := range w.f.Nodes {
		n := &w.f.Nodes[i]
		if !n.State.Found {
			continue
		}
		for j := range n.State.Value.Status.Volumes {
			l := &n.State.Value.Status.Volumes[j]
			if l.VolumeName == v.UniqueName {
				w.unhealthy(l, about{object: v.Volume.Ref, places: at("node", n.Name)}, "on node "+n.Name+": ")
			}
			if short := shortOf(l); short != "" && l.VolumeName == v.UniqueName {
				w.find(about{object: v.Volume.Ref, reason: catalog.VolumeFull, detail: short + ", as node " + n.Name + " sees it",
					places: at("node", n.Name)})
			}
		}
	}
}

// unhealthy reports what the driver reports of the volume.
func (w *walk) unhealthy(l *volumesv1alpha1.NodeVolume, a about, where string) {
	if l.Health == nil {
		return
	}
	var problems []string
	for _, p := range l.Health.Problems {
		problems = append(problems, p.String())
	}
	a.reason, a.detail, a.since = catalog.VolumeUnhealthy, where+strings.Join(problems, "; "), l.Health.Since.Time
	w.find(a)
}

// shortOf is what a volume has hardly any of; empty if it has enough, or if that is not known.
func shortOf(l *volumesv1alpha1.NodeVolume) string {
	if l.Used != nil && l.Available != nil {
		used, available := l.Used.Value(), l.Available.Value()
		if float64(available) < least*float64(used+available) {
			return fmt.Sprintf("%s of %s free", l.Available, resource.NewQuantity(used+available, resource.BinarySI))
		}
	}
	if l.Inodes != nil && l.InodesUsed != nil {
		if free := *l.Inodes - *l.InodesUsed; float64(free) < least*float64(*l.Inodes) {
			return fmt.Sprintf("%d of %d inodes free", free, *l.Inodes)
		}
	}
	return ""
}

// fullOn reports the volumes of the node that is the subject which are full or have a problem.
func (w *walk) fullOn(n *facts.Node) {
	volumes := map[string]facts.Ref{}
	for i := range n.State.Value.Spec.Attachments {
		e := &n.State.Value.Spec.Attachments[i]
		if e.PersistentVolumeName != "" {
			volumes[e.VolumeName] = facts.Ref{Kind: facts.KindVolume, Name: e.PersistentVolumeName}
		}
	}
	for i := range n.State.Value.Status.Volumes {
		l := &n.State.Value.Status.Volumes[i]
		a := about{object: n.State.Ref, places: at("node", n.Name)}
		has, is := l.VolumeName+" has ", l.VolumeName+": "
		if object, known := volumes[l.VolumeName]; known {
			a.object, has, is = object, "", ""
			if claim := w.f.ClaimOf(n.State.Value, l.VolumeName); claim != "" {
				has, is = "claim "+claim+" has ", "claim "+claim+": "
			}
		}
		w.unhealthy(l, a, is)
		if short := shortOf(l); short != "" {
			a.reason, a.detail = catalog.VolumeFull, has+short
			w.find(a)
		}
	}
}
