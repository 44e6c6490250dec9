/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package survey

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagehelpers "k8s.io/component-helpers/storage/volume"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/status"
)

// Fate is what a drain does to a volume.
type Fate string

const (
	// Moves means that the volume is released once its pods and intents are gone.
	Moves Fate = "Moves"
	// NeedsDelete means that an intent has to be deleted, because a drain deletes pods only.
	NeedsDelete Fate = "NeedsDelete"
	// LosesData means that the volume is released, and that its data is deleted then.
	LosesData Fate = "LosesData"
	// Unknown means that what decides it could not be read.
	Unknown Fate = "Unknown"
	// Hangs means that the volume would not be released, or could be used nowhere else.
	Hangs Fate = "Hangs"
)

// Drain is what a drain of a node would meet.
type Drain struct {
	Node    string   `json:"node"`
	Volumes []Leaver `json:"volumes"`
	// Blocked is why no volume can be released now; empty if that is not so.
	Blocked string `json:"blocked,omitempty"`
}

// Leaver is one volume of the node.
type Leaver struct {
	Volume           string `json:"volume"`
	PersistentVolume string `json:"persistentVolume,omitempty"`
	// Claim is the one that the PersistentVolume belongs to, with its namespace.
	Claim string   `json:"claim,omitempty"`
	Fate  Fate     `json:"fate"`
	Why   string   `json:"why"`
	Run   []string `json:"run,omitempty"`
}

// Count the volumes of a fate.
func (d *Drain) Count(fate Fate) int {
	n := 0
	for _, v := range d.Volumes {
		if v.Fate == fate {
			n++
		}
	}
	return n
}

// Findings counts the volumes that a person has to look at before the drain.
func (d *Drain) Findings() int { return len(d.Volumes) - d.Count(Moves) - d.Count(NeedsDelete) }

// Ground is what a plan is made on.
type Ground struct {
	State   *volumesv1alpha1.NodeVolumeState
	Intents []volumesv1alpha1.VolumeAttachmentIntent
	// Unread is what could not be read of the node and its intents; empty if all was.
	Unread string
	// Blocked is why the node releases nothing, such as an agent that is silent.
	Blocked string
	// Volumes are the PersistentVolumes of the node by name.
	Volumes map[string]*corev1.PersistentVolume
	// VolumesUnread is why some of them could not be read.
	VolumesUnread error
	// Endings of their data by the same names.
	Endings map[string]facts.Ending
	// Nodes are those of the cluster.
	Nodes []corev1.Node
}

// PlanDrain explains for each volume of a node what a drain would do to it, the worst first.
func PlanDrain(g Ground) Drain {
	d := Drain{Node: g.State.Name, Blocked: g.Blocked, Volumes: []Leaver{}}
	lines := map[string]*volumesv1alpha1.NodeVolume{}
	for i := range g.State.Status.Volumes {
		lines[g.State.Status.Volumes[i].VolumeName] = &g.State.Status.Volumes[i]
	}
	seen := map[string]bool{}
	for i := range g.State.Spec.Attachments {
		e := &g.State.Spec.Attachments[i]
		seen[e.VolumeName] = true
		d.Volumes = append(d.Volumes, leaver(g, e, lines[e.VolumeName]))
	}
	for i := range g.State.Status.Volumes {
		if l := &g.State.Status.Volumes[i]; !seen[l.VolumeName] {
			d.Volumes = append(d.Volumes, leaver(g, &volumesv1alpha1.NodeAttachment{VolumeName: l.VolumeName}, l))
		}
	}
	order := []Fate{LosesData, Hangs, Unknown, NeedsDelete, Moves}
	slices.SortStableFunc(d.Volumes, func(a, b Leaver) int {
		return slices.Index(order, a.Fate) - slices.Index(order, b.Fate)
	})
	return d
}

func leaver(g Ground, e *volumesv1alpha1.NodeAttachment, l *volumesv1alpha1.NodeVolume) Leaver {
	v := Leaver{Volume: e.VolumeName, PersistentVolume: e.PersistentVolumeName,
		Claim: facts.ClaimName(g.Volumes[e.PersistentVolumeName])}
	if why := hangs(g, e, l); why != "" {
		v.Fate, v.Why, v.Run = Hangs, why, []string{"kubectl hawser why node " + g.State.Name}
		return v
	}
	v.Fate, v.Why = Moves, "released when its pods have left the node"
	for i := range g.Intents {
		intent := &g.Intents[i]
		if intent.Status.UniqueVolumeName != e.VolumeName || intent.DeletionTimestamp != nil {
			continue
		}
		if _, ofPod := intent.Labels[volumesv1alpha1.PodUIDLabel]; !ofPod {
			v.Fate = NeedsDelete
			v.Why = fmt.Sprintf("intent %s/%s wants it on this node", intent.Namespace, intent.Name)
			v.Run = append(v.Run, deletion(facts.Key(intent)))
		}
	}
	if ending := g.Endings[e.PersistentVolumeName]; ending.Why != "" {
		v.Fate, v.Why = LosesData, ending.Why+"; "+v.Why
		v.Run = slices.Concat([]string{catalog.SetRetain(e.PersistentVolumeName)}, v.Run)
	} else if why := unknown(g, e); why != "" {
		v.Fate, v.Why = Unknown, why+"; "+v.Why
	}
	return v
}

// unknown is what could not be read and might change what becomes of a volume; empty if all was.
func unknown(g Ground, e *volumesv1alpha1.NodeAttachment) string {
	switch {
	case g.Unread != "":
		return g.Unread
	case g.VolumesUnread != nil && e.PersistentVolumeName != "" && g.Volumes[e.PersistentVolumeName] == nil:
		return "PersistentVolume " + e.PersistentVolumeName + " cannot be read: " + g.VolumesUnread.Error()
	}
	return g.Endings[e.PersistentVolumeName].Unread
}

// deletion is the command that deletes an intent, which is named with its namespace.
func deletion(intent string) string {
	namespace, name, _ := strings.Cut(intent, "/")
	return fmt.Sprintf("kubectl delete vai %s -n %s", name, namespace)
}

// hangs is why a volume would not leave, or could not be used elsewhere; empty if neither.
func hangs(g Ground, e *volumesv1alpha1.NodeAttachment, l *volumesv1alpha1.NodeVolume) string {
	switch {
	case g.Blocked != "":
		return g.Blocked
	case e.DetachError != "":
		return "its detach fails: " + e.DetachError
	case l != nil && status.ReleaseFails(l):
		return fmt.Sprintf("its %s fails: %s", l.Error.Operation, l.Error.Message)
	case l != nil && slices.ContainsFunc(l.Publications, func(p volumesv1alpha1.Publication) bool { return p.Orphan }):
		return "it is published for an intent that does not exist"
	default:
		return nowhere(g, g.Volumes[e.PersistentVolumeName])
	}
}

// nowhere reports a volume that no other node of the cluster may use.
func nowhere(g Ground, pv *corev1.PersistentVolume) string {
	if pv == nil || pv.Spec.NodeAffinity == nil || len(g.Nodes) == 0 {
		return ""
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if n.Name != g.State.Name && !n.Spec.Unschedulable && storagehelpers.CheckNodeAffinity(pv, n.Labels) == nil {
			return ""
		}
	}
	return "no other node may use it, because of the volume's node affinity: its pods would wait"
}
