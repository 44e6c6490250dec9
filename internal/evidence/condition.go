/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package evidence

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/status"
)

// Awaited reports whether a volume of the node waits for evidence: its agent is marked unreachable, and what is
// attached there is not being detached.
func Awaited(nvs *volumesv1alpha1.NodeVolumeState) bool {
	attached, _ := attachedTo(nvs)
	return handshake.Silent(nvs) && attached > 0
}

// attachedTo counts the volumes that are attached to the node and are not being detached, and names those of them that
// another machine of its name uses. Nothing that is asserted of the node is about that one.
func attachedTo(nvs *volumesv1alpha1.NodeVolumeState) (attached int, foreign []string) {
	for i := range nvs.Spec.Attachments {
		e := &nvs.Spec.Attachments[i]
		if e.State != volumesv1alpha1.AttachmentAttached {
			continue
		}
		attached++
		if handshake.NodeOf(nvs, e.VolumeName).Use.Foreign {
			foreign = append(foreign, e.VolumeName)
		}
	}
	return attached, foreign
}

// Condition is DetachPossible of the node, given the names of the fence sources; nil where nothing waits for evidence.
// It is the same as long as the same is known.
func (g Ground) Condition(sources []string) *metav1.Condition {
	if !Awaited(g.State) {
		return nil
	}
	attached, foreign := attachedTo(g.State)
	c := &metav1.Condition{Type: volumesv1alpha1.ConditionDetachPossible, Status: metav1.ConditionFalse}
	switch given := g.Given(); {
	case attached == len(foreign):
		c.Reason, c.Message = volumesv1alpha1.ReasonAnotherMachine, g.begin()
	case given != nil:
		c.Status, c.Reason = metav1.ConditionTrue, volumesv1alpha1.ReasonEvidenceGiven
		c.Message = g.begin() + "; " + given.Text + ". A volume is detached once no intent wants it there"
	default:
		c.Reason = volumesv1alpha1.ReasonEvidenceMissing
		c.Message = g.begin() + "; " + g.Missing(sources)
	}
	if len(foreign) > 0 {
		c.Message += fmt.Sprintf(". Another machine of this node name uses %s: only a declaration that it has released them "+
			"is evidence", strings.Join(foreign, ", "))
	}
	c.Message = status.Shorten(c.Message, volumesv1alpha1.MaxConditionMessageLength)
	return c
}

// begin says since when the agent is unreachable.
func (g Ground) begin() string {
	since := ""
	if ready := meta.FindStatusCondition(g.State.Status.Conditions, volumesv1alpha1.ConditionReady); ready != nil {
		since = " since " + ready.LastTransitionTime.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("volumes are attached to node %s, whose agent is unreachable%s", g.State.Name, since)
}

// Missing is what is missing for a safe detach, where nothing is evidence: what is void, and what could be evidence.
func (g Ground) Missing(sources []string) string {
	text := "nothing proves that its machine is off or gone"
	for _, a := range g.Assertions() {
		if a.Void != "" {
			text += fmt.Sprintf("; %s, but is no evidence: %s", a.Text, a.Void)
		}
	}
	if g.Node == nil {
		if g.Unseen() == "" {
			return text
		}
		return text + ". If the machine runs, restart its kubelet, so that the Node and its agent come back and release " +
			"the volumes. If it is off for good, declare them released"
	}
	text += ". If the machine is off, set the taint node.kubernetes.io/out-of-service"
	if len(sources) == 0 {
		return text + ". No fence source is configured"
	}
	text += ", or have it fenced. Configured fence sources: " + strings.Join(sources, ", ")
	if why := g.Unrecognized(); why != "" {
		text += ". Their fences do not count: " + why
	}
	return text
}
