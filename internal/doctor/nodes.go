/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package doctor

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/handshake"
)

func ready(node *corev1.Node) bool { return explain.NodeReady(node).Status == corev1.ConditionTrue }

// taintedNodes finds nodes that run and are declared to be off. The manager removes its own taint soon after the
// machine is back.
func taintedNodes(x *examination) {
	for _, node := range x.c.Nodes.Items {
		taint := handshake.OutOfService(node)
		if taint == nil || !ready(node) || x.once[volumesv1alpha1.ReasonTaintContradicted+" "+node.Name] {
			continue
		}
		since := explain.Written(node.ManagedFields, `"f:taints"`)
		if taint.TimeAdded != nil {
			since = taint.TimeAdded.Time
		}
		if back := explain.NodeReady(node).LastTransitionTime.Time; handshake.SetByHawser(taint) && back.After(since) {
			since = back
		}
		if !x.old(since, settles) {
			continue
		}
		namespaces, volumes := x.volumesOn(node.Name)
		severity := Danger
		if volumes == 0 {
			severity = Risk
		}
		x.find(about{severity: severity, reason: catalog.TaintOnReadyNode, object: refOf(facts.KindNode, node), since: since,
			namespaces: namespaces, detail: fmt.Sprintf("attached volumes: %d", volumes)})
	}
}

// deadNodes finds nodes that are not Ready and have volumes. One with the taint that releases them stays in the list
// until the last of them is detached.
func deadNodes(x *examination) {
	for _, node := range x.c.Nodes.Items {
		condition := explain.NodeReady(node)
		namespaces, volumes := x.volumesOn(node.Name)
		if ready(node) || volumes == 0 ||
			!x.old(condition.LastTransitionTime.Time, nodeDead) {
			continue
		}
		reason := catalog.NodeNotReady
		if condition.Status == corev1.ConditionUnknown {
			reason = catalog.KubeletSilent
		}
		x.once[dead+" "+node.Name] = true
		x.find(about{severity: Outage, reason: reason, object: refOf(facts.KindNode, node), namespaces: namespaces,
			since:  condition.LastTransitionTime.Time,
			detail: fmt.Sprintf("attached volumes: %d; %s", volumes, condition.Message)})
	}
}

// dead is what is remembered of a node that deadNodes has found.
const dead = "dead"

// volumesOn are how many volumes are attached to a node, and the namespaces of their claims.
func (x *examination) volumesOn(node string) (namespaces []string, volumes int) {
	for _, va := range x.attachmentsOn[node] {
		namespaces = append(namespaces, namespaceOf(x.attachment(va).pv))
	}
	return namespaces, len(x.attachmentsOn[node])
}

// ofStates are the severities of what package explain finds of a node, where it is another one than Outage. Those with
// an empty one are left out: they are symptoms, or found by another check.
var ofStates = map[string]Severity{
	catalog.Unprotected: Danger, volumesv1alpha1.ReasonAnotherMachine: Danger,
	volumesv1alpha1.ReasonTaintContradicted: Danger, volumesv1alpha1.ReasonReleaseFailing: Risk,
	volumesv1alpha1.ReasonMountsDiffer: Risk, catalog.Orphaned: Risk, catalog.DetachStuck: Risk,
	catalog.VolumeError: Risk, catalog.VolumeBusy: Risk, volumesv1alpha1.ReasonNodeRenamed: Risk,
	volumesv1alpha1.ReasonNodeDeleting: Notice, catalog.IntentKeepsNode: Risk, catalog.ForcedAwayKeepsNode: Risk,
	catalog.IntentOnNode: "", catalog.NotObserved: "", catalog.NotReported: "", catalog.Unreadable: "",
	catalog.Forbidden: "", volumesv1alpha1.ReasonVolumesFailing: "", volumesv1alpha1.ReasonDriversMissing: "",
	catalog.ManagerSilent: "", catalog.NodeNotReady: "", catalog.KubeletSilent: "",
	volumesv1alpha1.ReasonNodeNotFound: "", volumesv1alpha1.ReasonAgentUnreachable: "", catalog.UnknownReason: "",
	volumesv1alpha1.ReasonEvidenceMissing: "",
}

// nodeStates finds what the agents report, and agents that do not.
func nodeStates(x *examination) {
	for _, state := range x.c.States.Items {
		x.explained(state.Name, state)
	}
	for _, node := range x.c.Nodes.Items {
		if of(x.states, node.Name) == nil {
			x.explained(node.Name, nil)
		}
	}
}

// elsewhere are reasons that another check may have found of a node before.
var elsewhere = map[string]bool{catalog.LeaseExpired: true, volumesv1alpha1.ReasonNodeIDChanged: true}

// explained adds the problems of a node. state is nil where it has none.
func (x *examination) explained(node string, state *volumesv1alpha1.NodeVolumeState) {
	f, report := x.report(facts.Ref{Kind: facts.KindNode, Name: node})
	if report == nil {
		return
	}
	for i := range report.Findings {
		found := report.Findings[i]
		severity, listed := ofStates[found.Reason]
		if !listed {
			severity = Outage
		}
		lacks := found.Reason == catalog.LeaseMissing || found.Reason == catalog.StateMissing
		if severity == "" || found.Level != catalog.Problem || x.young(found) || lacks && !x.needsAgent(node, state) ||
			found.Reason == catalog.LeaseExpired && (x.once[dead+" "+node] || !f.Nodes[0].Node.Found) ||
			elsewhere[found.Reason] && x.once[found.Reason+" "+node] {
			continue
		}
		x.once[found.Reason+" "+node] = true
		x.take(found, severity, node, state)
	}
}

// young reports whether a finding is younger than what may be a transient. What has no age is a state.
func (x *examination) young(found explain.Finding) bool {
	return found.Since != nil && !x.old(*found.Since, settles) && found.Reason != catalog.LeaseExpired
}

// take adds a finding of a node. Missing agents are one finding, and so is each full or sick volume on all its nodes.
func (x *examination) take(found explain.Finding, severity Severity, node string,
	state *volumesv1alpha1.NodeVolumeState) {
	f := Finding{Severity: severity, Finding: found, Count: 1, group: node + found.Object.String() + found.Detail,
		namespaces: map[string]bool{}}
	var pv *corev1.PersistentVolume
	switch found.Object.Kind {
	case facts.KindVolume:
		pv, f.group = of(x.volumes, found.Object.Name), found.Object.String()
	case facts.KindAttachment:
		if va := of(x.byName, found.Object.Name); va != nil {
			pv = x.attachment(va).pv
		}
	case facts.KindLease:
		f.group = ""
	}
	f.Claim = x.claimOf(pv)
	if found.Reason == catalog.VolumeUnhealthy &&
		strings.Contains(found.Detail, string(volumesv1alpha1.HealthDataLoss)) {
		f.Severity = Danger
	}
	switch {
	case namespaceOf(pv) != "":
		f.namespaces[namespaceOf(pv)] = true
	case found.Object.Kind == facts.KindIntent:
		f.namespaces[found.Object.Namespace] = true
	case state != nil:
		namespaces, _ := x.volumesOn(node)
		for _, namespace := range namespaces {
			f.namespaces[namespace] = true
		}
	}
	x.found = append(x.found, f)
}

// needsAgent reports whether an agent is expected on a node: an intent names the node, or it has volumes of Hawser.
func (x *examination) needsAgent(name string, state *volumesv1alpha1.NodeVolumeState) bool {
	node := of(x.nodes, name)
	if node == nil || !x.old(node.CreationTimestamp.Time, stepTakes) {
		return false
	}
	return state != nil && len(state.Spec.Attachments) > 0 ||
		slices.ContainsFunc(x.intentsOn[name], func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
			return i.Spec.Publisher != volumesv1alpha1.PublisherKubelet && x.old(i.CreationTimestamp.Time, settles)
		})
}
