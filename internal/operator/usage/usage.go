/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package usage finds the volumes that Hawser has to release before it can be removed.
package usage

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

// mostNames of a kind in a message.
const mostNames = 5

// Use is a volume that is wanted, attached or in use on a node.
type Use struct {
	Node, Volume string
	// States are what it is there, such as attached.
	States []string
}

// Facts are what there is in the cluster.
type Facts struct {
	// Replace is true while a manager may run in attach mode Replace. Pods then get their volumes from Hawser.
	Replace bool
	Intents []volumesv1alpha1.VolumeAttachmentIntent
	States  []volumesv1alpha1.NodeVolumeState
	// NodeExists reports whether there is a Node of this name.
	NodeExists func(string) bool
}

type place struct{ node, volume string }

type uses map[place][]string

func (u uses) add(node, volume, state string) {
	at := place{node, volume}
	u[at] = append(u[at], state)
}

// Find returns the volumes by node and name. In Coexist, what only pods use is upstream's and not among them. A volume
// counts from the intent on: that is before anything is attached for it. What is detached, and was declared released by
// an administrator, does not count.
func Find(f Facts) []Use {
	found, wanted := uses{}, uses{}
	for i := range f.States {
		f.ofState(found, &f.States[i])
	}
	for i := range f.Intents {
		f.ofIntent(wanted, &f.Intents[i])
	}
	// Caches list objects in any order, and each write of another message would lead to a reconcile at once.
	for at, intents := range wanted {
		slices.Sort(intents)
		found[at] = append(found[at], intents...)
	}
	all := make([]Use, 0, len(found))
	for at, states := range found {
		all = append(all, Use{Node: at.node, Volume: at.volume, States: states})
	}
	slices.SortFunc(all, func(a, b Use) int {
		return strings.Compare(a.Node+"\x00"+a.Volume, b.Node+"\x00"+b.Volume)
	})
	return all
}

func (f Facts) ofState(found uses, state *volumesv1alpha1.NodeVolumeState) {
	ofPods := map[string]bool{}
	for i := range state.Status.Volumes {
		switch v := &state.Status.Volumes[i]; {
		case !handshake.NodeOf(state, v.VolumeName).InUse() && !v.HasPublications():
		case !f.Replace && v.PublishedBy == volumesv1alpha1.PublisherKubelet && !v.HasPublications():
			ofPods[v.VolumeName] = true
		default:
			found.add(state.Name, v.VolumeName, describeVolume(v))
		}
	}
	for i := range state.Spec.Attachments {
		entry := &state.Spec.Attachments[i]
		if handshake.NodeOf(state, entry.VolumeName).DeclaredAway() {
			continue
		}
		if !f.Replace && entry.State == volumesv1alpha1.AttachmentAttached && ofPods[entry.VolumeName] {
			continue
		}
		found.add(state.Name, entry.VolumeName, f.describeEntry(state.Name, entry))
	}
}

func describeVolume(v *volumesv1alpha1.NodeVolume) string {
	switch {
	case slices.ContainsFunc(v.Publications, func(p volumesv1alpha1.Publication) bool { return p.Orphan }):
		return "published, but its intent is missing"
	case v.PublishedBy == volumesv1alpha1.PublisherKubelet:
		return "used by pods"
	}
	return "in use"
}

func (f Facts) describeEntry(node string, entry *volumesv1alpha1.NodeAttachment) string {
	switch {
	case f.NodeExists != nil && !f.NodeExists(node):
		return "the Node is gone: declare it released if the machine does not come back"
	case entry.DetachedTime != nil:
		return "detached by force, which the agent has not confirmed"
	case entry.State != volumesv1alpha1.AttachmentDetaching:
		return "attached"
	case entry.DetachError != "":
		return fmt.Sprintf("being detached: %.200s", entry.DetachError)
	}
	return "being detached"
}

func (f Facts) ofIntent(found uses, intent *volumesv1alpha1.VolumeAttachmentIntent) {
	if !f.Replace && OfPod(intent) {
		return
	}
	name := intent.Namespace + "/" + intent.Name
	state := "intent " + name
	if ready := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionReady); ready != nil {
		state += ", " + ready.Reason
	}
	volume := intent.Status.UniqueVolumeName
	if volume == "" {
		volume = "the volume of " + name
	}
	found.add(intent.Spec.NodeName, volume, state)
}

// OfPod reports whether the manager made the intent for a volume that the kubelet mounts for a pod.
func OfPod(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return intent.Labels[volumesv1alpha1.PodUIDLabel] != "" &&
		intent.Spec.Publisher == volumesv1alpha1.PublisherKubelet
}

// Message counts the volumes, and names some of them with their nodes, each with some of its states.
func Message(all []Use) string {
	nodes := map[string]bool{}
	var names []string
	for i, use := range all {
		nodes[use.Node] = true
		if i < mostNames {
			names = append(names, fmt.Sprintf("node %s, %s (%s)", use.Node, use.Volume, Some(use.States)))
		}
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("%d volume(s) on %d node(s): %s", len(all), len(nodes), strings.Join(names, "; "))
}
