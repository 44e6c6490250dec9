/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package capacity

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/handshake"
)

// on builds one node's facts: a node whose agent has reported, with what the options add.
func on(name string, options ...func(*decision.Node)) *decision.Node {
	n := &decision.Node{Name: name, State: handshake.Node{Exists: true, Reported: true}}
	for _, o := range options {
		o(n)
	}
	return n
}

func waits(n *decision.Node) { n.SetWait("", "") }

// va adds an attachment; how is any of held, attached, terminating, name (held by our finalizer) and unpublished.
func va(uid types.UID, how ...string) func(*decision.Node) {
	return func(n *decision.Node) {
		is := func(s string) bool { return slices.Contains(how, s) }
		n.Attachments = append(n.Attachments,
			decision.Attachment{Name: "va-" + string(uid), Held: is("held"), Attachment: handshake.Attachment{
				Exists: true, UID: uid, Attached: is("attached"), Terminating: is("terminating"), NameHeld: is("name"),
				Unpublished: is("unpublished"),
			}})
	}
}
