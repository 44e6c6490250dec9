/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/evidence"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/handshake"
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

// Evidence is what is asserted of the machine of a node whose node state was read.
func Evidence(f *facts.Facts, n *facts.Node) evidence.Ground {
	g := evidence.Ground{State: n.State.Value}
	if n.Node.Found {
		g.Node = n.Node.Value
	}
	if f.Manager.Found {
		g.Manager = &f.Manager.Value.Spec
	}
	if n.Lease.Found {
		g.Renewal, g.Silence = handshake.Renewal(n.Lease.Value), Overdue(n.Lease.Value, f.Now)
	} else if ready := meta.FindStatusCondition(g.State.Status.Conditions, volumesv1alpha1.ConditionReady); Silent(f, n) &&
		ready != nil {
		g.Silence = f.Now.Sub(ready.LastTransitionTime.Time)
	}
	return g
}

// FenceSources are the names of the sources in the VolumeManager.
func FenceSources(f *facts.Facts) []string {
	names := []string{}
	if f.Manager.Found && f.Manager.Value.Spec.Fencing != nil {
		for _, s := range f.Manager.Value.Spec.Fencing.Sources {
			names = append(names, s.Name)
		}
	}
	return names
}

// Silent reports whether the agent of a node is known to be silent.
func Silent(f *facts.Facts, n *facts.Node) bool {
	if n.Lease.Found {
		return Overdue(n.Lease.Value, f.Now) > 0
	}
	return facts.Absent(n.Lease.Err) && n.State.Found && handshake.Silent(n.State.Value)
}

// outlooks shows for each volume of a node whose agent is silent whether it is detached, on which evidence and since
// when. What is being detached has a link of its own.
func (w *walk) outlooks(n *facts.Node) {
	if !n.State.Found || !Silent(w.f, n) {
		return
	}
	g := Evidence(w.f, n)
	given := g.Given()
	waits := false
	for i := range n.State.Value.Spec.Attachments {
		e := &n.State.Value.Spec.Attachments[i]
		o := g.Outlook(e.VolumeName, w.f.NodeIntents.Items)
		if e.State == volumesv1alpha1.AttachmentDetaching {
			continue
		}
		ref := facts.Ref{Kind: facts.KindAttachment, Name: e.AttachmentName}
		state, text, since := Bad, w.named(n.State.Value, e.VolumeName)+" stays attached: ", w.silentSince(n)
		switch {
		case o.Fate == evidence.Stays || o.Fate == evidence.NeedsDelete || o.Fate == evidence.DetachesByKubernetes:
			text += o.Why
		case given == nil:
			waits = true
			text += "nothing proves that the machine is off (" + o.Why + ")"
		default:
			state = Waits
			text = w.named(n.State.Value, e.VolumeName) + " is to be detached on evidence " + string(given.Type) + " (" +
				given.Text + "): " + o.Why
			if given.Since != nil {
				since = given.Since.Time
			}
		}
		w.link(ref, state, text, since)
	}
	if waits && given == nil && !w.report.has(volumesv1alpha1.ReasonEvidenceMissing) {
		w.find(about{object: n.State.Ref, reason: volumesv1alpha1.ReasonEvidenceMissing, since: w.silentSince(n),
			places: at("node", n.Name), detail: g.Missing(FenceSources(w.f))})
	}
}

// silentSince is when the agent of a node was heard last, as far as that is known.
func (w *walk) silentSince(n *facts.Node) time.Time {
	if n.Lease.Found {
		return Renewal(n.Lease.Value)
	}
	return time.Time{}
}
