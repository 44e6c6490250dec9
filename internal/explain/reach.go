/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// cannotRelease is why a node cannot release volumes; empty if it can.
func (w *nodes) cannotRelease(n *facts.Node) string {
	switch {
	case facts.Absent(n.Node.Err):
		return "node " + n.Name + " does not exist any more"
	case n.Node.Found && NodeReady(n.Node.Value).Status != corev1.ConditionTrue:
		return "node " + n.Name + " is not Ready: " + NodeReady(n.Node.Value).Message
	case w.overdue(n.Lease) > 0:
		return "the agent of node " + n.Name + " does not renew its Lease"
	case w.givenUp(n) != nil:
		return join(w.givenUp(n).Reason, w.givenUp(n).Message)
	default:
		return ""
	}
}

// CannotRelease is why a node cannot release volumes; empty if it can.
func CannotRelease(f *facts.Facts, node string) string {
	n, known := f.NodeOf(node)
	if !known {
		return ""
	}
	return (&nodes{newBuilder(f)}).cannotRelease(&n)
}

// CannotArrive is why no volume of the driver arrives on a node; empty if nothing is known against it.
func CannotArrive(f *facts.Facts, node, driver string) string {
	n, known := f.NodeOf(node)
	w := &nodes{newBuilder(f)}
	switch {
	case !known:
		return ""
	case w.cannotRelease(&n) != "":
		return w.cannotRelease(&n)
	case driver != "" && n.CSINode.Found && driverListed(&n, driver) == "":
		return "node " + node + " does not have driver " + driver + ": its CSINode does not list it"
	case facts.Absent(n.State.Err):
		return "node " + node + " has no node state: Hawser does not work there"
	case facts.Absent(n.Lease.Err) && n.State.Found && n.State.Value.Status.AgentVersion == "":
		return "no agent runs on node " + node
	case n.State.Found && driver != "" && !slices.ContainsFunc(n.State.Value.Status.Drivers,
		func(d volumesv1alpha1.NodeDriver) bool { return d.Name == driver }):
		return "the agent of node " + node + " does not know driver " + driver
	}
	return ""
}

// ManagerSilent reports that no manager leads. The Lease of one that does not elect a leader, or that is installed
// elsewhere, is absent, which is not known to be silence.
func ManagerSilent(f *facts.Facts) bool { return newBuilder(f).overdue(f.ManagerLease) > Takeover }
