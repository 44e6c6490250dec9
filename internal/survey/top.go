/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package survey

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/handshake"
)

// Use is how full a volume on a node is. Drivers report it once a minute; a value is -1 where the driver reports none.
type Use struct {
	Node   string `json:"node"`
	Volume string `json:"volume"`
	// PersistentVolume is its name, if the node state has it.
	PersistentVolume string `json:"persistentVolume,omitempty"`
	// Claim of the PersistentVolume, with its namespace.
	Claim      string `json:"claim,omitempty"`
	Capacity   int64  `json:"capacity"`
	Used       int64  `json:"used"`
	Available  int64  `json:"available"`
	Inodes     int64  `json:"inodes"`
	InodesUsed int64  `json:"inodesUsed"`
	// Percent and InodesPercent are of what is used, rounded up.
	Percent       int64 `json:"percent"`
	InodesPercent int64 `json:"inodesPercent"`
}

// Top lists the volumes of the node states, the fullest first.
func Top(states []volumesv1alpha1.NodeVolumeState, volumes map[string]*corev1.PersistentVolume) []Use {
	uses := []Use{}
	for i := range states {
		for j := range states[i].Status.Volumes {
			l := &states[i].Status.Volumes[j]
			u := useOf(states[i].Name, facts.PersistentName(&states[i], l.VolumeName), l)
			u.Claim = facts.ClaimName(volumes[u.PersistentVolume])
			uses = append(uses, u)
		}
	}
	slices.SortStableFunc(uses, func(a, b Use) int {
		return cmp.Or(cmp.Compare(max(b.Percent, b.InodesPercent), max(a.Percent, a.InodesPercent)),
			cmp.Compare(a.Node, b.Node), cmp.Compare(a.Volume, b.Volume))
	})
	return uses
}

func useOf(node, pv string, l *volumesv1alpha1.NodeVolume) Use {
	u := Use{Node: node, Volume: l.VolumeName, PersistentVolume: pv, Capacity: bytesOf(l.Capacity), Used: bytesOf(l.Used),
		Available: bytesOf(l.Available), Inodes: count(l.Inodes), InodesUsed: count(l.InodesUsed)}
	// Used and available together are what users can fill; a filesystem keeps some of its capacity for itself.
	u.Percent = percent(u.Used, u.Used+u.Available, u.Available >= 0)
	u.InodesPercent = percent(u.InodesUsed, u.Inodes, true)
	return u
}

func bytesOf(q *resource.Quantity) int64 {
	if q == nil {
		return -1
	}
	return q.Value()
}

func count(n *int64) int64 {
	if n == nil {
		return -1
	}
	return *n
}

func percent(part, whole int64, known bool) int64 {
	if part < 0 || whole <= 0 || !known {
		return -1
	}
	const hundred = 100.0
	p := float64(part) / float64(whole) * hundred
	if rounded := int64(p); float64(rounded) == p {
		return rounded
	}
	return int64(p) + 1
}

// Orphan is something that stays on a node without an owner.
type Orphan struct {
	Node   string `json:"node"`
	Volume string `json:"volume"`
	// Claim of its PersistentVolume, with its namespace.
	Claim string `json:"claim,omitempty"`
	// Intent that does not exist any more; empty for a detach that was forced.
	Intent string `json:"intent,omitempty"`
	Path   string `json:"path,omitempty"`
	// Why it is one, and Run is the way out.
	Why string   `json:"why"`
	Run []string `json:"run"`
}

// Orphans lists the publications without an intent, and the forced detaches that no agent has confirmed.
func Orphans(states []volumesv1alpha1.NodeVolumeState, volumes map[string]*corev1.PersistentVolume) []Orphan {
	orphans := []Orphan{}
	for i := range states {
		state, first := &states[i], len(orphans)
		for j := range state.Status.Volumes {
			l := &state.Status.Volumes[j]
			for _, p := range l.Publications {
				if p.Orphan {
					orphans = append(orphans, orphanOf(state.Name, l.VolumeName, p))
				}
			}
			if last := len(l.Publications) - 1; l.Unlisted() > 0 && (last < 0 || l.Publications[last].Orphan) {
				orphans = append(orphans, Orphan{Node: state.Name, Volume: l.VolumeName, Why: fmt.Sprintf(
					"%d more publications are not listed, and may be without an intent too", l.Unlisted()),
					Run: []string{"kubectl hawser tree node " + state.Name}})
			}
		}
		for j := range state.Spec.Attachments {
			if e := &state.Spec.Attachments[j]; e.DetachedTime != nil {
				orphans = append(orphans, forcedAway(state, e))
			}
		}
		for j := first; j < len(orphans); j++ {
			orphans[j].Claim = facts.ClaimName(volumes[facts.PersistentName(state, orphans[j].Volume)])
		}
	}
	return orphans
}

// forcedAway is a forced detach. A machine whose access is not cut any more may write again, so why names the way out.
func forcedAway(state *volumesv1alpha1.NodeVolumeState, e *volumesv1alpha1.NodeAttachment) Orphan {
	o := Orphan{Node: state.Name, Volume: e.VolumeName,
		Why: "the volume was forced away, and the node's agent has not reported since. Only if its machine is off for " +
			"good may its release be declared",
		Run: []string{"kubectl hawser why node " + state.Name}}
	_, declared := state.Annotations[volumesv1alpha1.DeclaredReleasedPrefix+string(e.AttachmentUID)]
	if !declared && !handshake.NodeOf(state, e.VolumeName).Entry.Lifted {
		o.Run = append(o.Run, fmt.Sprintf("kubectl hawser declare-released %s %s --reason=... --dry-run", state.Name,
			e.AttachmentUID))
	}
	return o
}

func orphanOf(node, volumeName string, p volumesv1alpha1.Publication) Orphan {
	return Orphan{Node: node, Volume: volumeName, Intent: p.Intent.Namespace + "/" + p.Intent.Name, Path: p.Path,
		Why: "the intent does not exist; the publication stays and counts as in use. To release it, create the intent " +
			"again on the same volume, then delete it",
		Run: []string{"kubectl hawser tree node " + node}}
}
