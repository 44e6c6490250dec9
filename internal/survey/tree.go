/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package survey

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// Branch is an object, or a part of one, with what hangs on it.
type Branch struct {
	Object   string   `json:"object"`
	Text     string   `json:"text,omitempty"`
	Children []Branch `json:"children,omitempty"`
}

func (b *Branch) add(child Branch) { b.Children = append(b.Children, child) }

// Tree shows a PersistentVolume with its claim, lock and nodes, or a node with its volumes.
func Tree(f *facts.Facts) Branch {
	if f.Subject.Kind == facts.KindNode {
		return nodeTree(f)
	}
	return volumeTree(f)
}

func volumeTree(f *facts.Facts) Branch {
	v := &f.Volumes[0]
	root := Branch{Object: v.Volume.Ref.String()}
	if v.Volume.Found {
		pv := v.Volume.Value
		capacity := pv.Spec.Capacity["storage"]
		root.Text = fmt.Sprintf("%s, %s, %s, driver %s", pv.Status.Phase, capacity.String(),
			modes(pv.Spec.AccessModes), v.Driver)
	}
	if v.Claim.Asked() {
		text := "does not exist"
		if v.Claim.Found {
			text = string(v.Claim.Value.Status.Phase)
		}
		root.add(Branch{Object: v.Claim.Ref.String(), Text: text})
	}
	if v.Lock.Value.Holder != "" {
		root.add(Branch{Object: "lock", Text: "node " + v.Lock.Value.Holder + " since " + v.Lock.Value.Since})
	}
	for _, node := range nodesOf(v) {
		root.add(volumeOnNode(f, v, node))
	}
	return root
}

func modes[T ~string](list []T) string {
	var names []string
	for _, mode := range list {
		names = append(names, string(mode))
	}
	return strings.Join(names, "+")
}

// nodesOf are the nodes where a volume is attached, locked or wanted.
func nodesOf(v *facts.Volume) []string {
	var nodes []string
	for i := range v.Elsewhere.Items {
		nodes = append(nodes, v.Elsewhere.Items[i].Spec.NodeName)
	}
	for i := range v.Intents.Items {
		nodes = append(nodes, v.Intents.Items[i].Spec.NodeName)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

func volumeOnNode(f *facts.Facts, v *facts.Volume, node string) Branch {
	branch := Branch{Object: "Node " + node}
	for i := range v.Elsewhere.Items {
		va := &v.Elsewhere.Items[i]
		if va.Spec.NodeName == node {
			text := "not attached"
			if va.Status.Attached {
				text = "attached"
			}
			branch.add(Branch{Object: facts.KindAttachment + " " + va.Name, Text: text})
		}
	}
	if n, known := f.NodeOf(node); known && n.State.Found {
		branch.Children = append(branch.Children, parts(n.State.Value, v.UniqueName)...)
	}
	for i := range v.Intents.Items {
		if intent := &v.Intents.Items[i]; intent.Spec.NodeName == node {
			branch.add(intentBranch(intent))
		}
	}
	return branch
}

func intentBranch(intent *volumesv1alpha1.VolumeAttachmentIntent) Branch {
	text := "not reconciled yet"
	if ready := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionReady); ready != nil {
		text = fmt.Sprintf("Ready %s: %s", ready.Status, ready.Reason)
	}
	return Branch{Object: facts.KindIntent + " " + intent.Namespace + "/" + intent.Name, Text: text}
}

// parts are the entry and the line of one volume in a node state.
func parts(state *volumesv1alpha1.NodeVolumeState, volumeName string) []Branch {
	var branches []Branch
	for i := range state.Spec.Attachments {
		if e := &state.Spec.Attachments[i]; e.VolumeName == volumeName {
			branches = append(branches, entryBranch(e))
		}
	}
	for i := range state.Status.Volumes {
		if l := &state.Status.Volumes[i]; l.VolumeName == volumeName {
			branches = append(branches, lineBranches(l)...)
		}
	}
	return branches
}

func entryBranch(e *volumesv1alpha1.NodeAttachment) Branch {
	text := string(e.State)
	if e.Evidence != nil {
		text += fmt.Sprintf(", evidence %s", e.Evidence.Type)
	}
	if e.DetachError != "" {
		text += ", " + e.DetachError
	}
	return Branch{Object: "entry", Text: text}
}

func lineBranches(l *volumesv1alpha1.NodeVolume) []Branch {
	use := "not in use"
	if l.InUse {
		use = strings.TrimSuffix("in use by "+string(l.PublishedBy), " by ")
	}
	if l.Error != nil {
		use += fmt.Sprintf(", %s fails: %s", l.Error.Operation, l.Error.Message)
	}
	branches := []Branch{{Object: "line", Text: use}}
	if l.StagedPath != "" {
		branches = append(branches, Branch{Object: "staged", Text: l.StagedPath})
	}
	for _, p := range l.Publications {
		text := fmt.Sprintf("%s, for intent %s/%s", p.Path, p.Intent.Namespace, p.Intent.Name)
		if p.Orphan {
			text += ", which does not exist"
		}
		branches = append(branches, Branch{Object: "published", Text: text})
	}
	if more := l.Unlisted(); more > 0 {
		branches = append(branches, Branch{Object: "published", Text: fmt.Sprintf("%d more, which are not listed", more)})
	}
	return branches
}

// ofClaim names the claim by which intents on a node use a volume.
func ofClaim(intents []volumesv1alpha1.VolumeAttachmentIntent, volumeName string) string {
	for i := range intents {
		source := intents[i].Spec.Volume.PersistentVolumeClaim
		if source != nil && intents[i].Status.UniqueVolumeName == volumeName {
			return "claim " + intents[i].Namespace + "/" + source.ClaimName
		}
	}
	return ""
}

// nodeTree shows every volume that is attached to the node or in use there, and the intents that wait.
func nodeTree(f *facts.Facts) Branch {
	n, _ := f.NodeOf(f.Subject.Name)
	root := Branch{Object: f.Subject.String()}
	if !n.State.Found {
		root.Text = "no node state"
		return root
	}
	var names []string
	for i := range n.State.Value.Spec.Attachments {
		names = append(names, n.State.Value.Spec.Attachments[i].VolumeName)
	}
	for i := range n.State.Value.Status.Volumes {
		names = append(names, n.State.Value.Status.Volumes[i].VolumeName)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	root.Text = fmt.Sprintf("%d volumes", len(names))
	for _, name := range names {
		branch := Branch{Object: name, Children: parts(n.State.Value, name), Text: ofClaim(f.NodeIntents.Items, name)}
		for i := range f.NodeIntents.Items {
			if intent := &f.NodeIntents.Items[i]; intent.Status.UniqueVolumeName == name {
				branch.add(intentBranch(intent))
			}
		}
		root.add(branch)
	}
	for i := range f.NodeIntents.Items {
		if intent := &f.NodeIntents.Items[i]; !slices.Contains(names, intent.Status.UniqueVolumeName) {
			root.add(intentBranch(intent))
		}
	}
	return root
}
