/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package catalog

import (
	"slices"
	"strings"
)

// Declared is what the Node object declares about its machine.
type Declared int

const (
	// Nothing is declared, or it is not known.
	Nothing Declared = iota
	// Tainted is a Node with the taint node.kubernetes.io/out-of-service.
	Tainted
	// Gone is a Node that does not exist any more.
	Gone
)

// For completes the way out of an entry for a node. No act is advised that is done already, or that needs a Node that
// is gone.
func (e Entry) For(declared Declared) Entry {
	switch {
	case declared == Gone:
		e.Run = slices.DeleteFunc(slices.Clone(e.Run), needsNode)
		if e.Off != "" {
			e.Way = "The Node does not exist any more, which has its volumes detached by force while its agent is silent. " +
				"Make sure that its machine is off: docs/operate.md, \"A node that is dead\"."
		}
	case e.Off == "":
	case declared == Tainted:
		e.Way += " The taint node.kubernetes.io/out-of-service is set already: the volumes are detached by force once the " +
			"agent has been silent since."
	default:
		e.Way += " If the machine is off, set the taint; see docs/operate.md, \"A node that is dead\"."
		e.Run = append(slices.Clone(e.Run), "kubectl taint node {"+e.Off+"} node.kubernetes.io/out-of-service=down:NoExecute"+
			"   # only if the machine is off")
	}
	return e
}

// needsNode reports whether a command fails without the Node object.
func needsNode(command string) bool {
	return slices.ContainsFunc([]string{"get node", "get csinode", "describe node", "taint node", "uncordon"},
		func(verb string) bool { return strings.HasPrefix(command, "kubectl "+verb+" {") })
}
