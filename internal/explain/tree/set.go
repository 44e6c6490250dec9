/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package tree

import (
	"cmp"
	"fmt"
	"slices"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// setTree shows a set with its intents and their claims, by nodes.
func setTree(f *facts.Facts) Branch {
	s := f.Set.Value.Status
	root := Branch{Object: f.Subject.String(),
		Text: fmt.Sprintf("%d of %d intents are ready, %d have the present template", s.Ready, s.Desired, s.Updated)}
	intents := slices.Clone(f.SetIntents.Items)
	slices.SortFunc(intents, func(a, b volumesv1alpha1.VolumeAttachmentIntent) int {
		return cmp.Compare(a.Spec.NodeName, b.Spec.NodeName)
	})
	for i := range intents {
		node := Branch{Object: facts.KindNode + " " + intents[i].Spec.NodeName}
		if claim := intents[i].Spec.Volume.PersistentVolumeClaim; claim != nil {
			node.Text = "claim " + intents[i].Namespace + "/" + claim.ClaimName
		}
		node.add(intentBranch(&intents[i]))
		root.add(node)
	}
	return root
}
