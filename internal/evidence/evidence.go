/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package evidence describes what is asserted of the machine of a node, and what that means for the volumes that are
// attached there, for people: in a condition, and in reports of the plugin. It reads no cluster and detaches nothing.
// What the manager detaches on is decided in internal/controller/attachment, by the same rules of the handshake.
package evidence

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/machine"
)

// Ground is what is known of a node.
type Ground struct {
	// Node is nil where there is none.
	Node  *corev1.Node
	State *volumesv1alpha1.NodeVolumeState
	// Renewal identifies the last renewal of the agent's Lease, as handshake.Renewal does.
	Renewal string
	// Silence is for how long the agent has been silent.
	Silence time.Duration
	// MayBePast: all of this may be of before a restore of the API server, of that ID; empty where it is not known.
	MayBePast bool
	Restore   types.UID
	// Manager is the spec of the VolumeManager; nil where it is not known.
	Manager *volumesv1alpha1.VolumeManagerSpec
}

// Assertion is what an object asserts of the machine of a node. It is evidence once the agent is silent.
type Assertion struct {
	Type  volumesv1alpha1.EvidenceType    `json:"type"`
	Fence *volumesv1alpha1.FenceReference `json:"fence,omitempty"`
	// Text names the object, with a verb.
	Text string `json:"text"`
	// Since is when the manager first saw it, or when it was set.
	Since *metav1.Time `json:"since,omitempty"`
	// Void is why it is no evidence; empty if it is.
	Void string `json:"void,omitempty"`
}

// Assertions about the machine, in the order in which the manager relies on them.
func (g Ground) Assertions() []Assertion {
	if g.Node == nil {
		a := Assertion{Type: volumesv1alpha1.EvidenceNodeGone, Text: fmt.Sprintf("node %s does not exist", g.State.Name),
			Void: g.Unseen()}
		if record := g.State.Status.Node.Absence; record != nil {
			a.Since = &record.Observed
		}
		if a.Void == "" && g.Silence < decision.GoneAfter {
			a.Void = fmt.Sprintf("its agent has not been silent for %s yet", decision.GoneAfter)
		}
		a.Void = cmp.Or(a.Void, g.past())
		return []Assertion{a}
	}
	var all []Assertion
	if taint := handshake.DeclaredOff(g.Node); taint != nil {
		a := Assertion{Type: volumesv1alpha1.EvidenceOutOfServiceTaint, Since: taint.TimeAdded,
			Text: "the Node carries the taint " + corev1.TaintNodeOutOfService}
		a.Void = cmp.Or(void(handshake.TaintAssertion(g.State.Status.Node.OutOfService, taint,
			handshake.LastHeard(g.State, g.Renewal))), g.unreported(), g.past())
		all = append(all, a)
	}
	for i := range g.State.Status.Node.Fences {
		r := &g.State.Status.Node.Fences[i]
		a := Assertion{Type: volumesv1alpha1.EvidenceFenced, Fence: &r.FenceReference, Since: &r.Observed,
			Text: fmt.Sprintf("%s proves %s", FenceName(r.FenceReference), r.Proves)}
		if a.Void = void(handshake.FenceAssertion(*r, handshake.LastHeard(g.State, g.Renewal))); a.Void == "" {
			a.Void = cmp.Or(g.Unrecognized(), g.past())
		}
		all = append(all, a)
	}
	return all
}

// Unseen is why the absence of the Node shows nothing of its machine; empty if it does, or if the Node is there.
func (g Ground) Unseen() string {
	if g.Node != nil {
		return ""
	}
	switch said := handshake.AbsenceAssertion(g.State, g.Renewal); {
	case said.Contradicted:
		return "since the Node was deleted its agent has reported, or the API server was restored, so the machine may run on"
	case !said.Recorded:
		return "no manager saw that the machine was out of reach when the Node was deleted, and Kubernetes ends the agent " +
			"of a deleted Node"
	}
	return ""
}

// FenceName names the object of a fence, and its source.
func FenceName(r volumesv1alpha1.FenceReference) string {
	name := r.Name
	if r.Namespace != "" {
		name = r.Namespace + "/" + name
	}
	return name + " of fence source " + r.Source
}

func void(a handshake.Assertion) string {
	switch {
	case !a.Recorded:
		return "the manager has not recorded it yet"
	case a.Contradicted:
		return "the agent has reported since"
	}
	return ""
}

// Unrecognized is why no fence counts for the machine of the node; empty if fences count.
func (g Ground) Unrecognized() string {
	switch {
	case g.Node == nil:
		return "the Node does not exist, so it is not known what machine a fence is about"
	case machine.Registered(g.Node, g.State) == machine.Undecidable:
		return "the machine cannot be recognized: the Node and the agent's report have no system UUID or machine ID in common"
	}
	return g.unreported()
}

// unreported is why nothing that is asserted of the Node is about what the agent has reported; empty if it is.
func (g Ground) unreported() string {
	switch {
	case machine.Registered(g.Node, g.State) == machine.Other:
		return "another machine has registered the Node than the one whose agent reported"
	case machine.ReportedByAnother(g.Node, g.State):
		return "the machine has booted since its agent reported, and its kubelet may have mounted volumes"
	}
	return ""
}

// past is why nothing that is asserted of the node counts after a restore; empty if it does.
func (g Ground) past() string {
	if !g.MayBePast {
		return ""
	}
	text := "the API server was restored from a backup, and the node is not excused from that"
	if g.Restore != "" {
		text += fmt.Sprintf(" (annotation %s=%s)", volumesv1alpha1.ExcusedFromRestoreAnnotation, g.Restore)
	}
	return text
}

// Given is the first assertion that is evidence; nil where there is none.
func (g Ground) Given() *Assertion {
	for _, a := range g.Assertions() {
		if a.Void == "" {
			return &a
		}
	}
	return nil
}
