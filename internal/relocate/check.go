/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package relocate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	storagehelpers "k8s.io/component-helpers/storage/volume"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// Verdict of a check.
type Verdict string

const (
	// OK means that nothing is in the way.
	OK Verdict = "OK"
	// Note is worth knowing.
	Note Verdict = "Note"
	// Unknown means that it cannot be read.
	Unknown Verdict = "Unknown"
	// Hangs means that the volume would not be released, or would not arrive.
	Hangs Verdict = "Hangs"
	// Refused means that the intent must not be changed by hand.
	Refused Verdict = "Refused"
)

// Check is one thing that a move depends on.
type Check struct {
	Verdict Verdict  `json:"verdict"`
	About   string   `json:"about"`
	Text    string   `json:"text"`
	Run     []string `json:"run,omitempty"`
}

// Finding reports whether a person has to look at it before the move.
func (c Check) Finding() bool { return c.Verdict != OK && c.Verdict != Note }

// Findings counts the checks that a person has to look at.
func Findings(checks []Check) int {
	n := 0
	for _, c := range checks {
		if c.Finding() {
			n++
		}
	}
	return n
}

// checker collects checks.
type checker struct {
	r      *facts.Relocation
	checks []Check
}

func (c *checker) add(v Verdict, about, format string, args ...any) *Check {
	c.checks = append(c.checks, Check{Verdict: v, About: about, Text: fmt.Sprintf(format, args...)})
	return &c.checks[len(c.checks)-1]
}

// manager checks that a manager acts.
func (c *checker) manager() {
	if explain.ManagerSilent(c.r.Facts) {
		c.add(Hangs, "manager", "no manager renews the Lease, so nothing is attached or detached").Run =
			[]string{"kubectl get pods -n " + c.r.ManagerLease.Ref.Namespace + " -l app.kubernetes.io/component=manager"}
	} else if unread := c.r.ManagerLease.Unread(); unread != "" {
		c.add(Unknown, "manager", "%s", unread)
	}
}

// unreadOf is what cannot be read of what shows that a node and its agent are alive; empty if all can.
func unreadOf(n *facts.Node) string {
	return cmp.Or(n.Node.Unread(), n.State.Unread(), n.Lease.Unread())
}

// Unread is what cannot be read of what shows that the manager, a node and its agent are alive; empty if all can.
func Unread(f *facts.Facts, node string) string {
	n, _ := f.NodeOf(node)
	return cmp.Or(f.ManagerLease.Unread(), unreadOf(&n))
}

// target checks the node where intents go, and that its agent knows these drivers.
func (c *checker) target(node string, drivers sets.Set[string]) {
	n, _ := c.r.NodeOf(node)
	about := "node " + node
	blocked := ""
	for _, driver := range sets.List(drivers.Insert("")) {
		blocked = cmp.Or(blocked, explain.CannotArrive(c.r.Facts, node, driver))
	}
	switch unread := unreadOf(&n); {
	case !n.Node.Found:
		c.add(Unknown, about, "it cannot be read: %v", n.Node.Err)
		return
	case blocked != "":
		c.add(Hangs, about, "%s", blocked).Run = []string{"kubectl hawser why node " + node}
	case unread != "":
		c.add(Unknown, about, "%s", unread)
	case n.Node.Value.DeletionTimestamp != nil:
		c.add(Hangs, about, "the Node is being deleted")
	default:
		c.add(OK, about, "it is Ready, and its agent is heard")
	}
	if n.Node.Value.Spec.Unschedulable {
		c.add(Note, about, "it is cordoned: pods that use the volume cannot be scheduled to it").Run =
			[]string{"kubectl uncordon " + node}
	}
}

// fits checks the driver, the limit and the node affinity for a PersistentVolume. others is how many volumes of the
// driver come to the node before it.
func (c *checker) fits(pv *corev1.PersistentVolume, driver, node string, attaches bool, others int) {
	n, _ := c.r.NodeOf(node)
	if n.Node.Found {
		if err := storagehelpers.CheckNodeAffinity(pv, n.Node.Value.Labels); err != nil {
			c.add(Hangs, "node affinity", "PersistentVolume %s excludes node %s: %v", pv.Name, node, err)
		} else {
			c.add(OK, "node affinity", "PersistentVolume %s allows node %s", pv.Name, node)
		}
	}
	if driver == "" {
		return
	}
	if !n.CSINode.Found {
		c.add(Unknown, "limit", "the CSINode of node %s cannot be read: %v", node, n.CSINode.Err)
		return
	}
	for _, d := range n.CSINode.Value.Spec.Drivers {
		if d.Name != driver {
			continue
		}
		if !attaches || d.Allocatable == nil || d.Allocatable.Count == nil {
			c.add(OK, "limit", "driver %s has no limit on node %s", driver, node)
			return
		}
		c.limit(pv.Name, driver, node, int(*d.Allocatable.Count), others)
		return
	}
	c.add(Hangs, "driver", "driver %s is not registered on node %s", driver, node).Run =
		[]string{"kubectl get csinode " + node + " -o yaml"}
}

func (c *checker) limit(pv, driver, node string, limit, others int) {
	if c.r.Attachments.Err != nil {
		c.add(Unknown, "limit", "the VolumeAttachments cannot be read: %v", c.r.Attachments.Err)
		return
	}
	used := 0
	for _, a := range c.r.Attachments.Items {
		if a.Node != node || a.Driver != driver {
			continue
		}
		if a.Volume == pv {
			c.add(OK, "limit", "the volume is attached to node %s already", node)
			return
		}
		used++
	}
	verdict := OK
	if used+others >= limit {
		verdict = Hangs
	}
	c.add(verdict, "limit", "node %s has %d of %d volumes of driver %s before this one", node, used+others, limit, driver)
}

// source checks that a node can release the volume of an intent.
func (c *checker) source(intent *volumesv1alpha1.VolumeAttachmentIntent) {
	node := intent.Spec.NodeName
	about := "release by node " + node
	why := []string{"kubectl hawser why node " + node}
	if blocked := explain.CannotRelease(c.r.Facts, node); blocked != "" {
		c.add(Hangs, about, "%s", blocked).Run = why
		return
	}
	n, _ := c.r.NodeOf(node)
	if !n.State.Found {
		c.add(Unknown, about, "its node state cannot be read: %v", n.State.Err)
		return
	}
	if unread := unreadOf(&n); unread != "" {
		c.add(Unknown, about, "%s", unread)
	}
	if problem := problemOf(n.State.Value, intent.Status.UniqueVolumeName); problem != "" {
		c.add(Hangs, about, "%s", problem).Run = why
		return
	}
	c.pods(intent)
}

// problemOf is what a node state reports about a volume that would keep it there. That another operation fails, such as
// an expansion, keeps no node from releasing it.
func problemOf(state *volumesv1alpha1.NodeVolumeState, volume string) string {
	for i := range state.Spec.Attachments {
		if e := &state.Spec.Attachments[i]; e.VolumeName == volume && e.DetachError != "" {
			return "its detach fails: " + e.DetachError
		}
	}
	for i := range state.Status.Volumes {
		l := &state.Status.Volumes[i]
		if l.VolumeName != volume {
			continue
		}
		if l.Error != nil && (l.Error.Operation == "unpublish" || l.Error.Operation == "unstage") {
			return fmt.Sprintf("its %s fails: %s", l.Error.Operation, l.Error.Message)
		}
		if slices.ContainsFunc(l.Publications, func(p volumesv1alpha1.Publication) bool { return p.Orphan }) {
			return "it is published for an intent that does not exist"
		}
	}
	return ""
}

// pods checks that no pod uses the volume on the node of the intent. Pods elsewhere do not keep the node from it.
func (c *checker) pods(intent *volumesv1alpha1.VolumeAttachmentIntent) {
	node := intent.Spec.NodeName
	if c.r.Pods.Err != nil {
		c.add(Unknown, "pods", "the pods on node %s cannot be read: %v", node, c.r.Pods.Err)
		return
	}
	var users []string
	var run []string
	for i := range c.r.Pods.Items {
		pod := &c.r.Pods.Items[i]
		if pod.Spec.NodeName == node && facts.Uses(pod, intent) {
			users = append(users, facts.Key(pod))
			run = append(run, fmt.Sprintf("kubectl delete pod %s -n %s", pod.Name, pod.Namespace))
		}
	}
	if len(users) == 0 {
		c.add(OK, "pods", "no pod on node %s uses the volume of intent %s", node, facts.Key(intent))
		return
	}
	c.add(Hangs, "pods", "the volume stays on node %s while it is used by %s", node, strings.Join(users, ", ")).Run = run
}

// managed checks that a person may move the intent.
func (c *checker) managed(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	m := ManagerOf(intent)
	if m == nil {
		return false
	}
	c.add(Refused, "intent "+facts.Key(intent), "%s manages it: %s", m.Name, m.Instead).Run = m.Run
	return true
}
