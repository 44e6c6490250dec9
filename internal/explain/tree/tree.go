/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package tree shows an object with what hangs on it: a volume, claim or attachment with its nodes, a node with its
// volumes, a set with its intents, a VolumeManager with its workloads. It is pure.
package tree

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	storagev1 "k8s.io/api/storage/v1"

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

// Of shows the subject of the facts.
func Of(f *facts.Facts) Branch {
	switch f.Subject.Kind {
	case facts.KindNode:
		return nodeTree(f)
	case facts.KindSet:
		return setTree(f)
	case facts.KindAttachment:
		return attachmentTree(f)
	case facts.KindManager:
		return managerTree(f)
	case facts.KindVolume:
		return volumeTree(f, &f.Volumes[0])
	default:
		return userTree(f)
	}
}

// userTree shows a pod, claim or intent with its volumes.
func userTree(f *facts.Facts) Branch {
	root := Branch{Object: f.Subject.String()}
	for i := range f.Volumes {
		v := &f.Volumes[i]
		switch {
		case v.Claim.Ref == f.Subject:
			root.Text = claimText(v)
		case v.Intent.Ref == f.Subject:
			root = intentBranch(v.Intent.Value)
		}
		if v.Volume.Asked() {
			root.add(volumeTree(f, v))
		} else {
			root.add(Branch{Object: v.Claim.Ref.String(), Text: claimText(v)})
		}
	}
	if f.Subject.Kind == facts.KindPod {
		root.Text = strings.TrimSpace(string(f.Pod.Value.Status.Phase) + " " + on(f.Pod.Value.Spec.NodeName))
	}
	return root
}

func on(node string) string {
	if node == "" {
		return "on no node"
	}
	return "on node " + node
}

func claimText(v *facts.Volume) string {
	switch {
	case v.Claim.Found:
		return string(v.Claim.Value.Status.Phase)
	case facts.Absent(v.Claim.Err):
		return "does not exist"
	}
	return "not read"
}

func volumeTree(f *facts.Facts, v *facts.Volume) Branch {
	root := volumeBranch(v)
	if v.Lock.Value.Holder != "" {
		root.add(Branch{Object: "lock", Text: "node " + v.Lock.Value.Holder + " since " + v.Lock.Value.Since})
	}
	for _, node := range nodesOf(v) {
		root.add(volumeOnNode(f, v, node))
	}
	return root
}

// volumeBranch is a PersistentVolume with its claim.
func volumeBranch(v *facts.Volume) Branch {
	root := Branch{Object: v.Volume.Ref.String()}
	if v.Volume.Found {
		pv := v.Volume.Value
		capacity := pv.Spec.Capacity["storage"]
		root.Text = fmt.Sprintf("%s, %s, %s, driver %s", pv.Status.Phase, capacity.String(),
			modes(pv.Spec.AccessModes), v.Driver)
	} else if facts.Absent(v.Volume.Err) {
		root.Text = "does not exist"
	}
	if v.Claim.Asked() {
		root.add(Branch{Object: v.Claim.Ref.String(), Text: claimText(v)})
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

// attachmentsOf are the attachments of a volume: to the node where it is wanted, and to others.
func attachmentsOf(v *facts.Volume) []storagev1.VolumeAttachment {
	if !v.Attachment.Found {
		return v.Elsewhere.Items
	}
	return append([]storagev1.VolumeAttachment{*v.Attachment.Value}, v.Elsewhere.Items...)
}

// nodesOf are the nodes where a volume is attached, locked or wanted.
func nodesOf(v *facts.Volume) []string {
	var nodes []string
	for _, va := range attachmentsOf(v) {
		nodes = append(nodes, va.Spec.NodeName)
	}
	for i := range v.Intents.Items {
		nodes = append(nodes, v.Intents.Items[i].Spec.NodeName)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

func volumeOnNode(f *facts.Facts, v *facts.Volume, node string) Branch {
	branch := Branch{Object: "Node " + node}
	for _, va := range attachmentsOf(v) {
		if va.Spec.NodeName == node {
			branch.add(Branch{Object: facts.KindAttachment + " " + va.Name, Text: attachmentText(&va)})
		}
	}
	branch.Children = append(branch.Children, onNode(f, v, node)...)
	return branch
}

// onNode are the parts of a volume in the node state, and its intents on the node.
func onNode(f *facts.Facts, v *facts.Volume, node string) []Branch {
	var branches []Branch
	if n, known := f.NodeOf(node); known && n.State.Found {
		branches = parts(n.State.Value, v.UniqueName)
	}
	for i := range v.Intents.Items {
		if intent := &v.Intents.Items[i]; intent.Spec.NodeName == node {
			branches = append(branches, intentBranch(intent))
		}
	}
	return branches
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
