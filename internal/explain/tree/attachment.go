/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package tree

import (
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hawser-io/hawser/internal/explain/facts"
)

// attachmentTree shows a VolumeAttachment with its volume, and its node with what uses the volume there.
func attachmentTree(f *facts.Facts) Branch {
	v := &f.Volumes[0]
	root := Branch{Object: f.Subject.String(), Text: attachmentText(v.Attachment.Value)}
	if v.Volume.Asked() {
		root.add(volumeBranch(v))
	}
	node := Branch{Object: facts.KindNode + " " + v.Node, Children: onNode(f, v, v.Node)}
	if n, _ := f.NodeOf(v.Node); facts.Absent(n.Node.Err) {
		node.Text = "does not exist"
	}
	for i := range f.Users.Items {
		pod := &f.Users.Items[i]
		node.add(Branch{Object: facts.KindPod + " " + facts.Key(pod), Text: string(pod.Status.Phase)})
	}
	root.add(node)
	return root
}

// attachmentText is how far an attachment is, with what its attacher reports.
func attachmentText(va *storagev1.VolumeAttachment) string {
	text := "not attached"
	if va.Status.Attached {
		text = "attached"
	}
	if va.DeletionTimestamp != nil {
		text += ", being detached"
	}
	if e := va.Status.AttachError; e != nil {
		text += ", attach fails: " + e.Message
	}
	if e := va.Status.DetachError; e != nil {
		text += ", detach fails: " + e.Message
	}
	return text
}
