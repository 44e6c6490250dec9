/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package tree

import (
	"fmt"
	"slices"

	"github.com/hawser-io/hawser/internal/explain/facts"
)

// nodeTree shows every volume that is attached to the node or in use there, and the intents that wait.
func nodeTree(f *facts.Facts) Branch {
	n, _ := f.NodeOf(f.Subject.Name)
	root := Branch{Object: f.Subject.String()}
	if !n.State.Found {
		return attachedTree(f)
	}
	var volumes []string
	for i := range n.State.Value.Spec.Attachments {
		volumes = append(volumes, n.State.Value.Spec.Attachments[i].VolumeName)
	}
	for i := range n.State.Value.Status.Volumes {
		volumes = append(volumes, n.State.Value.Status.Volumes[i].VolumeName)
	}
	slices.Sort(volumes)
	volumes = slices.Compact(volumes)
	root.Text = fmt.Sprintf("%d volumes", len(volumes))
	for _, name := range volumes {
		branch := Branch{Object: name, Children: parts(n.State.Value, name), Text: f.NamesOf(n.State.Value, name)}
		for i := range f.NodeIntents.Items {
			if intent := &f.NodeIntents.Items[i]; intent.Status.UniqueVolumeName == name {
				branch.add(intentBranch(intent))
			}
		}
		root.add(branch)
	}
	for i := range f.NodeIntents.Items {
		if intent := &f.NodeIntents.Items[i]; !slices.Contains(volumes, intent.Status.UniqueVolumeName) {
			root.add(intentBranch(intent))
		}
	}
	return root
}

// attachedTree shows what is attached to a node without a node state, as in a cluster without Hawser, with its pods.
func attachedTree(f *facts.Facts) Branch {
	attached := f.Filling.Attachments.Items
	root := Branch{Object: f.Subject.String(), Text: fmt.Sprintf("attachments: %d; no node state", len(attached))}
	if f.Filling.Attachments.Err != nil {
		root.Text = "no node state, and attachments were not read"
	}
	for _, a := range attached {
		branch := Branch{Object: facts.Ref{Kind: facts.KindAttachment, Name: a.Name}.String(), Text: attachedText(a)}
		if a.Volume != "" {
			volume := Branch{Object: facts.Ref{Kind: facts.KindVolume, Name: a.Volume}.String()}
			if claim := facts.ClaimName(f.Filling.Persistent[a.Volume]); claim != "" {
				volume.Text = "claim " + claim
			}
			for _, pod := range f.Filling.UsersOfVolume(a.Volume) {
				volume.add(Branch{Object: "Pod " + pod})
			}
			branch.add(volume)
		}
		root.add(branch)
	}
	return root
}

func attachedText(a facts.Attachment) string {
	if a.Attached {
		return "attached, driver " + a.Driver
	}
	return "not attached, driver " + a.Driver
}
