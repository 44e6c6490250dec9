/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/handshake"
)

// managers finds that no manager leads, and what the operator reports of the installation.
func managers(x *examination) {
	if lease := x.lease(facts.ManagerLease); lease != nil && explain.Overdue(lease, x.now) > explain.Takeover {
		x.find(about{severity: Outage, reason: catalog.ManagerSilent, object: refOf(facts.KindLease, lease),
			since: explain.Renewal(lease)})
	}
	for _, m := range x.c.Managers.Items {
		for i := range m.Status.Conditions {
			c := &m.Status.Conditions[i]
			e := catalog.OfReason(c.Reason)
			degraded := c.Type == volumesv1alpha1.ConditionDegraded || c.Type == volumesv1alpha1.ConditionAvailable ||
				c.Type == volumesv1alpha1.ConditionReplaceCoversNodes && m.Spec.AttachMode == volumesv1alpha1.AttachReplace
			fencing := c.Type == volumesv1alpha1.ConditionFenceSourcesReady
			if !degraded && !fencing || explain.Healthy(c) || e.Level != catalog.Problem || e.Reason != c.Reason ||
				!x.old(c.LastTransitionTime.Time, settles) {
				continue
			}
			f := about{severity: Outage, reason: c.Reason, object: refOf(facts.KindManager, m), detail: c.Message,
				since: c.LastTransitionTime.Time}
			if fencing {
				f.severity = Risk // nothing waits before a machine dies
			}
			x.find(f)
		}
	}
}

// policies finds admission policies that are missing, or ask for less than the release ships.
func policies(x *examination) {
	for _, name := range slices.Sorted(maps.Keys(x.c.Policies)) {
		x.find(about{severity: Danger, reason: volumesv1alpha1.ReasonAdmissionPolicyMissing,
			object: facts.Ref{Kind: KindPolicy, Name: name}, detail: x.c.Policies[name], group: "policies"})
	}
}

// forcedDetaches finds those that no agent has confirmed.
func forcedDetaches(x *examination) {
	for _, state := range x.c.States.Items {
		for i := range state.Spec.Attachments {
			e := &state.Spec.Attachments[i]
			if e.DetachedTime == nil || !handshake.NodeOf(state, e.VolumeName).Entry.Forced ||
				!x.old(e.DetachedTime.Time, settles) {
				continue
			}
			pv := of(x.volumes, e.PersistentVolumeName)
			f := about{severity: Risk, reason: volumesv1alpha1.ReasonForcedAway, since: e.DetachedTime.Time,
				object: facts.Ref{Kind: facts.KindAttachment, Name: e.AttachmentName}, group: state.Name,
				claim: x.claimOf(pv), namespaces: []string{namespaceOf(pv)},
				places: map[string]string{"node": state.Name, "uid": string(e.AttachmentUID), "volume": e.PersistentVolumeName},
				states: map[string]catalog.State{},
				detail: fmt.Sprintf("volume %s on node %s, evidence %s", e.PersistentVolumeName, state.Name, e.Evidence.Type)}
			if _, declared := state.Annotations[volumesv1alpha1.DeclaredReleasedPrefix+string(e.AttachmentUID)]; declared {
				f.states[catalog.OneAttachment] = catalog.Done
			}
			x.find(f)
		}
	}
}

// restores finds silent agents for which all others wait after a restore from a backup.
func restores(x *examination) {
	ids, reported := map[string]bool{}, false
	for _, lease := range x.c.Leases.Items {
		if lease.Annotations[volumesv1alpha1.LeaseRestoredAnnotation] == "true" {
			reported = true
			ids[lease.Annotations[volumesv1alpha1.LeaseRestoreIDAnnotation]] = true
		}
	}
	if !reported || !slices.ContainsFunc(x.c.States.Items, unconfirmed) {
		return
	}
	var silent []*volumesv1alpha1.NodeVolumeState
	for _, state := range x.c.States.Items {
		node := of(x.nodes, state.Name)
		lease := x.lease(volumesv1alpha1.AgentLeasePrefix + state.Name)
		excuse := state.Annotations[volumesv1alpha1.ExcusedFromRestoreAnnotation]
		if node == nil || excuse != "" && ids[excuse] ||
			state.Status.Protocol.Reports == 0 || lease != nil && explain.Overdue(lease, x.now) <= 0 {
			continue
		}
		silent = append(silent, state)
		x.once[catalog.LeaseExpired+" "+state.Name] = true
	}
	if len(silent) == 0 {
		return
	}
	slices.SortFunc(silent, func(a, b *volumesv1alpha1.NodeVolumeState) int { return cmp.Compare(a.Name, b.Name) })
	x.find(about{severity: Outage, reason: catalog.RestoreWaits, object: refOf(facts.KindState, silent[0]),
		detail: fmt.Sprintf("%d silent agents: nodes %s; IDs of the restore: %s", len(silent), namesOf(silent),
			strings.Join(slices.Sorted(maps.Keys(ids)), ", "))})
}

// lease is one in Hawser's namespace; nil if there is none.
func (x *examination) lease(name string) *coordinationv1.Lease {
	return x.leases[client.ObjectKey{Namespace: x.c.System, Name: name}]
}

func unconfirmed(state *volumesv1alpha1.NodeVolumeState) bool {
	return handshake.NodeOf(state, "").Unconfirmed
}
