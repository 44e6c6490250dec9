/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/handshake"
)

// nodes is the part of the walk about nodes, agents and managers.
type nodes struct{ *builder }

// node explains a node: its kubelet, drivers, agent and node state.
func (w *nodes) node(name string) {
	for i := range w.f.Nodes {
		if n := &w.f.Nodes[i]; n.Name == name {
			w.nodeLink(n)
			w.under(func() { w.agent(n) })
		}
	}
}

// nodeLink adds a Node and what is wrong with it.
func (w *nodes) nodeLink(n *facts.Node) {
	if n.Node.Err != nil {
		w.missing(n.Node.Ref, n.Node.Err, about{reason: volumesv1alpha1.ReasonNodeNotFound, places: at("node", n.Name)})
		return
	}
	node, ref := n.Node.Value, n.Node.Ref
	ready := NodeReady(node)
	state, text := Good, "Ready"
	if ready.Status != corev1.ConditionTrue {
		state, text = Bad, "not Ready"
		reason := catalog.NodeNotReady
		if ready.Status == corev1.ConditionUnknown {
			reason = catalog.KubeletSilent
		}
		w.find(about{object: ref, reason: reason, detail: ready.Message, since: ready.LastTransitionTime.Time})
	}
	if node.DeletionTimestamp != nil {
		state, text = Bad, text+", being deleted"
		w.find(about{object: ref, reason: volumesv1alpha1.ReasonNodeDeleting, since: node.DeletionTimestamp.Time})
	}
	if handshake.OutOfService(node) != nil {
		text += ", out of service"
		// The node state has another finding about one that is contradicted, and the manager removes its own.
		if !Contradicted(n.State.Value) && handshake.DeclaredOff(node) != nil {
			w.find(about{object: ref, reason: catalog.OutOfService})
		}
	}
	if node.Spec.Unschedulable {
		text += ", cordoned"
		w.find(about{object: ref, reason: catalog.Cordoned, level: w.ifKeptOff()})
	}
	w.link(ref, state, text, ready.LastTransitionTime.Time)
}

// NodeReady is the condition Ready of a Node; Unknown where it has none.
func NodeReady(node *corev1.Node) corev1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{Status: corev1.ConditionUnknown, Message: "the Node has no condition Ready"}
}

// agent explains Hawser's part of a node. On a node without a node state Hawser does nothing, which matters to intents
// only.
func (w *nodes) agent(n *facts.Node) {
	if !n.State.Asked() {
		return
	}
	matters := w.ofHawser()
	level := catalog.Level("")
	if !matters {
		level = catalog.Note
	}
	switch {
	case n.Lease.Found:
		w.lease(n, level)
	case !facts.Absent(n.Lease.Err):
		w.unreadable(n.Lease.Ref, n.Lease.Err)
	case matters && n.State.Found && n.State.Value.Status.AgentVersion != "":
		w.link(n.Lease.Ref, Unknown, "does not exist, but an agent has reported", time.Time{})
		w.find(about{object: n.Lease.Ref, reason: catalog.LeaseElsewhere, places: at("lease", n.Lease.Ref.Name)})
	case matters:
		w.link(n.Lease.Ref, Bad, "does not exist: no agent reports", time.Time{})
		w.lacks(n, about{object: n.Node.Ref, reason: catalog.LeaseMissing})
	}
	switch {
	case n.State.Found:
		w.nodeState(n, matters)
	case !facts.Absent(n.State.Err):
		w.unreadable(n.State.Ref, n.State.Err)
	case matters:
		w.link(n.State.Ref, Bad, "does not exist", time.Time{})
		w.lacks(n, about{object: n.State.Ref, reason: catalog.StateMissing})
	}
}

// ofHawser reports whether the subject has to do with Hawser. A pod or an attachment of upstream's may have not.
func (b *builder) ofHawser() bool {
	switch b.f.Subject.Kind {
	case facts.KindPod:
		return len(b.f.PodIntents.Items) > 0 ||
			slices.ContainsFunc(b.f.Volumes, func(v facts.Volume) bool { return v.Intent.Found })
	case facts.KindAttachment:
		return keeps(&b.f.Volumes[0])
	default:
		return true
	}
}

const (
	// agentLate is after how long an agent has missed two renewals of its Lease.
	agentLate = 25 * time.Second
	// Takeover is how long the next manager may need after the Lease of the last one has ended.
	Takeover = 10 * time.Second
)

// lacks reports what a Node should have. One that is gone can get nothing.
func (w *nodes) lacks(n *facts.Node, a about) {
	if !facts.Absent(n.Node.Err) {
		w.find(a)
	}
}

// lease shows how long ago the agent was heard. What its node state has is as old as that.
func (w *nodes) lease(n *facts.Node, level catalog.Level) {
	ref, renewed := n.Lease.Ref, Renewal(n.Lease.Value)
	a := about{object: ref, level: level, since: renewed, places: at("node", n.Name),
		detail: "the agent of node " + n.Name + " renewed it last at " + renewed.UTC().Format(time.RFC3339)}
	switch {
	case w.overdue(n.Lease) > 0:
		w.link(ref, Bad, "not renewed by the agent", renewed)
		a.reason = catalog.LeaseExpired
		w.find(a)
	case w.givenUp(n) != nil:
		w.link(ref, Bad, "not renewed since "+w.givenUp(n).Reason, renewed)
	case w.f.Now.Sub(renewed) > agentLate:
		w.link(ref, Waits, "not renewed in time by the agent", renewed)
		a.reason = catalog.AgentLate
		w.find(a)
	default:
		w.link(ref, Good, "renewed by the agent", time.Time{})
	}
}

// givenUp is the condition by which the agent was stopped or is unreachable, unless it was heard since.
func (b *builder) givenUp(n *facts.Node) *metav1.Condition {
	if !n.State.Found {
		return nil
	}
	ready := meta.FindStatusCondition(n.State.Value.Status.Conditions, volumesv1alpha1.ConditionReady)
	if ready == nil || b.heardSince(n, ready.LastTransitionTime.Time) ||
		ready.Reason != volumesv1alpha1.ReasonAgentStopped && ready.Reason != volumesv1alpha1.ReasonAgentUnreachable {
		return nil
	}
	return ready
}

// driversGone reports drivers of volumes on the node that its CSINode does not list. The kubelet writes that at once,
// and the agent reports it after a minute.
func (w *nodes) driversGone(n *facts.Node, drivers ...string) {
	if !n.CSINode.Found || w.report.has(volumesv1alpha1.ReasonDriversMissing) {
		return
	}
	slices.Sort(drivers)
	gone := slices.DeleteFunc(slices.Compact(drivers), func(d string) bool { return d == "" || driverListed(n, d) != "" })
	if len(gone) == 0 {
		return
	}
	names, since := strings.Join(gone, ", "), Written(n.CSINode.Value.ManagedFields, "")
	w.link(n.CSINode.Ref, Bad, "does not list "+names, since)
	w.find(about{object: n.CSINode.Ref, reason: volumesv1alpha1.ReasonDriversMissing, since: since,
		detail: "volumes on the node need " + names + "; the node has " + driverNames(n.CSINode.Value.Spec.Drivers)})
}

// driversOf are the drivers of what is attached to a node.
func driversOf(state *volumesv1alpha1.NodeVolumeState) []string {
	var drivers []string
	for i := range state.Spec.Attachments {
		drivers = append(drivers, state.Spec.Attachments[i].Driver)
	}
	return drivers
}

func (b *builder) overdue(lease facts.Object[*coordinationv1.Lease]) time.Duration {
	if !lease.Found {
		return -time.Second
	}
	return Overdue(lease.Value, b.f.Now)
}

// heardSince reports whether an agent has renewed its Lease after a moment, which a condition has to the second, and
// still does.
func (b *builder) heardSince(n *facts.Node, moment time.Time) bool {
	return n.Lease.Found && Renewal(n.Lease.Value).After(moment.Add(time.Second)) &&
		b.f.Now.Sub(Renewal(n.Lease.Value)) < agentLate
}

// nodeState explains the conditions of a node state. Of what does not concern the subject it only adds notes.
func (w *nodes) nodeState(n *facts.Node, matters bool) {
	ref, conditions := n.State.Ref, n.State.Value.Status.Conditions
	state, text := Waits, "not reported yet"
	var since time.Time
	reported := map[string]bool{}
	var ready *metav1.Condition
	for i := range conditions {
		c := &conditions[i]
		if c.Type == volumesv1alpha1.ConditionReady {
			ready = c
			continue
		}
		if !Healthy(c) {
			reported[c.Reason] = true
			w.stateCondition(ref, c, matters)
		}
	}
	if ready != nil {
		state, text, since = stateOf(ready), "Ready", ready.LastTransitionTime.Time
		if !Healthy(ready) {
			text = fmt.Sprintf("Ready %s: %s", ready.Status, ready.Reason)
			if !reported[ready.Reason] {
				w.stateCondition(ref, ready, matters)
			}
		}
	}
	w.link(ref, state, text, since)
}

// stateCondition reports a condition of a node state. All but Ready are about the other volumes on the node, so they
// are notes unless the node is the subject: what keeps the subject's own volume is in its intent.
func (w *nodes) stateCondition(ref facts.Ref, c *metav1.Condition, matters bool) {
	a := about{object: ref, reason: c.Reason, detail: c.Message, since: c.LastTransitionTime.Time}
	others := c.Type != volumesv1alpha1.ConditionReady || c.Reason == volumesv1alpha1.ReasonVolumesFailing ||
		c.Reason == volumesv1alpha1.ReasonMountsDiffer
	if !matters || others && w.f.Subject.Kind != facts.KindNode && !w.explainsWait(ref.Name, c) {
		a.level = catalog.Note
	}
	w.find(w.unlessRefuted(a, ref.Name))
}

// explainsWait reports whether a condition is about another identity of the node, and names a volume that the subject
// waits for. What its calls report then follows from that.
func (w *nodes) explainsWait(node string, c *metav1.Condition) bool {
	if c.Reason != volumesv1alpha1.ReasonNodeIDChanged && c.Reason != volumesv1alpha1.ReasonNodeRenamed {
		return false
	}
	return slices.ContainsFunc(w.f.Volumes, func(v facts.Volume) bool {
		return v.Node == node && v.UniqueName != "" && strings.Contains(c.Message, " "+v.UniqueName+" ") &&
			w.otherID(&v) == "" &&
			!(v.Intent.Found && conditionTrue(v.Intent.Value.Status.Conditions, volumesv1alpha1.ConditionReady)) &&
			!(w.f.Pod.Found && PodSettled(w.f.Pod.Value))
	})
}

// system explains the manager, if the subject waits for it.
func (w *nodes) system() {
	if !w.f.Installed {
		w.find(about{object: facts.Ref{Kind: facts.KindManager, Name: volumesv1alpha1.VolumeManagerName},
			reason: catalog.NotInstalled})
		return
	}
	if len(w.report.Findings) == 0 || w.f.Subject.Kind == facts.KindManager || !w.waitsForManager() {
		return
	}
	w.managerLease()
	if w.f.Manager.Found {
		conditions := w.f.Manager.Value.Status.Conditions
		for i := range conditions {
			c := &conditions[i]
			if c.Type == volumesv1alpha1.ConditionReady || c.Type == volumesv1alpha1.ConditionStalled {
				continue // they sum up the others
			}
			if c.Type == volumesv1alpha1.ConditionReplaceCoversNodes &&
				w.f.Manager.Value.Spec.AttachMode != volumesv1alpha1.AttachReplace {
				continue // it warns of a mode that is not set
			}
			if !Healthy(c) {
				w.find(about{object: w.f.Manager.Ref, reason: c.Reason, detail: c.Message, level: catalog.Note,
					since: c.LastTransitionTime.Time})
			}
		}
	}
}

// waitsForManager reports whether the subject has to do with Hawser at all.
func (w *nodes) waitsForManager() bool {
	if slices.Contains([]string{facts.KindIntent, facts.KindNode, facts.KindSet}, w.f.Subject.Kind) ||
		len(w.f.PodIntents.Items) > 0 {
		return true
	}
	return w.f.Subject.Kind != facts.KindPod && slices.ContainsFunc(w.f.Volumes, func(v facts.Volume) bool {
		return len(v.Intents.Items) > 0
	})
}

func (w *nodes) managerLease() {
	lease := w.f.ManagerLease
	switch {
	case facts.Absent(lease.Err) && !w.report.has(catalog.NotObserved):
		// A manager that does not elect a leader has no Lease.
	case facts.Absent(lease.Err) && w.report.notes(catalog.LeaseElsewhere):
		w.link(lease.Ref, Unknown, "does not exist, nor does that of an agent that has reported", time.Time{})
	case facts.Absent(lease.Err):
		w.link(lease.Ref, Bad, "does not exist: no manager has led yet", time.Time{})
		w.find(about{object: lease.Ref, reason: catalog.ManagerSilent})
	case lease.Err != nil:
		w.unreadable(lease.Ref, lease.Err)
	case w.overdue(lease) > Takeover:
		w.link(lease.Ref, Bad, "not renewed by a manager", Renewal(lease.Value))
		w.find(about{object: lease.Ref, reason: catalog.ManagerSilent, since: Renewal(lease.Value)})
	case w.overdue(lease) > 0:
		w.link(lease.Ref, Waits, "not renewed, another manager may take over", Renewal(lease.Value))
		w.find(about{object: lease.Ref, reason: catalog.ManagerSilent, level: catalog.Waiting, since: Renewal(lease.Value)})
	case w.f.Subject.Kind == facts.KindManager:
		w.link(lease.Ref, Good, "renewed by "+holder(lease.Value), time.Time{})
	}
}
