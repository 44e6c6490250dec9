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
		root.Text = "no node state"
		return root
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
