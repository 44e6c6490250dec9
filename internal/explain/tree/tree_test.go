/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package tree

import (
	"testing"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func TestPublicationsThatANodeStateDoesNotListAreCounted(t *testing.T) {
	const listed, all = 2, 10
	line := &volumesv1alpha1.NodeVolume{VolumeName: "v", PublicationCount: all,
		Publications: make([]volumesv1alpha1.Publication, listed)}
	branches := lineBranches(line)
	if last := branches[len(branches)-1].Text; last != "8 more, which are not listed" {
		t.Errorf("the tree ends with %q, want how many are not listed", last)
	}
}
