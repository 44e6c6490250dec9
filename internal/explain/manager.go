/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// managerSubject explains the VolumeManager: its conditions, and the operator, manager and agents that it counts on.
func (w *walk) managerSubject() {
	w.manager()
	w.under(func() {
		w.operator()
		if !pastDraining(w.f.Manager.Value) { // after that manager and agents end as they should
			w.managerLease()
			w.agents()
		}
		w.programs()
	})
}

// pastDraining reports whether Hawser is being removed, and nothing is in use any more.
func pastDraining(m *volumesv1alpha1.VolumeManager) bool {
	c := meta.FindStatusCondition(m.Status.Conditions, volumesv1alpha1.ConditionRemoved)
	return m.DeletionTimestamp != nil && c != nil &&
		(c.Reason == volumesv1alpha1.ReasonStoppingPrograms || c.Reason == volumesv1alpha1.ReasonCleaningUp)
}

// manager explains the VolumeManager itself.
func (w *walk) manager() {
	m, ref := w.f.Manager.Value, w.f.Manager.Ref
	ready := meta.FindStatusCondition(m.Status.Conditions, volumesv1alpha1.ConditionReady)
	state, text, since := Waits, "not reconciled yet", m.CreationTimestamp.Time
	if ready != nil {
		state, text, since = stateOf(ready), workloads(m), ready.LastTransitionTime.Time
	}
	if ready == nil || m.Status.ObservedGeneration < m.Generation {
		w.find(w.recent(about{object: ref, reason: catalog.ManagerNotObserved, since: asked(m),
			detail: generations(m.Status.ObservedGeneration, m)}))
	}
	if m.DeletionTimestamp != nil {
		state, text, since = Waits, "being deleted", m.DeletionTimestamp.Time
	}
	w.link(ref, state, text, since)
	reported := false
	for i := range m.Status.Conditions {
		if c := &m.Status.Conditions[i]; !Healthy(c) && c != ready && c.Type != volumesv1alpha1.ConditionStalled {
			a := about{object: ref, reason: c.Reason, detail: c.Message, since: c.LastTransitionTime.Time}
			switch {
			case c.Type == volumesv1alpha1.ConditionReplaceCoversNodes && m.Spec.AttachMode != volumesv1alpha1.AttachReplace:
				a.level = catalog.Note // it warns of a mode that is not set
			case c.Type == volumesv1alpha1.ConditionProgressing:
				a.level = catalog.Waiting
			}
			reported = reported || a.level != catalog.Note
			w.find(a)
		}
	}
	if ready != nil && !Healthy(ready) && !reported {
		w.find(about{object: ref, reason: ready.Reason, detail: ready.Message, since: ready.LastTransitionTime.Time})
	}
}

// workloads counts the pods of manager and agents.
func workloads(m *volumesv1alpha1.VolumeManager) string {
	text := fmt.Sprintf("attach mode %s", m.Spec.AttachMode)
	if s := m.Status.Manager; s != nil {
		text += fmt.Sprintf(", %d of %d managers", s.Ready, s.Desired)
	}
	if s := m.Status.Agents; s != nil {
		text += fmt.Sprintf(", %d of %d agents", s.Ready, s.Desired)
	}
	return text
}

// operator shows whether an operator leads, without which no change is carried out.
func (w *walk) operator() {
	lease := w.f.OperatorLease
	switch {
	case facts.Absent(lease.Err): // one that does not elect a leader has none
	case lease.Err != nil:
		w.unreadable(lease.Ref, lease.Err)
	case w.overdue(lease) > Takeover:
		w.link(lease.Ref, Bad, "not renewed by an operator", Renewal(lease.Value))
		w.find(about{object: lease.Ref, reason: catalog.OperatorSilent, since: Renewal(lease.Value)})
	default:
		w.link(lease.Ref, Good, "renewed by "+holder(lease.Value), time.Time{})
	}
}

func holder(lease *coordinationv1.Lease) string {
	return ptr.Deref(lease.Spec.HolderIdentity, "nothing")
}

// agents counts the agents that are heard, and explains the nodes of some that are not.
func (w *walk) agents() {
	ref := facts.Ref{Kind: facts.KindLease, Namespace: w.f.System, Name: volumesv1alpha1.AgentLeasePrefix + "*"}
	if w.f.AgentLeases.Err != nil {
		w.unreadable(ref, w.f.AgentLeases.Err)
		return
	}
	var silent []string
	for i := range w.f.AgentLeases.Items {
		lease := &w.f.AgentLeases.Items[i]
		node := strings.TrimPrefix(lease.Name, volumesv1alpha1.AgentLeasePrefix)
		if n, known := w.f.NodeOf(node); Overdue(lease, w.f.Now) > 0 && !(known && facts.Absent(n.Node.Err)) {
			silent = append(silent, node)
		}
	}
	state := Good
	text := fmt.Sprintf("%d agents, all renew their Leases", len(w.f.AgentLeases.Items))
	if len(silent) > 0 {
		state = Bad
		text = fmt.Sprintf("%d agents, %d silent: %s", len(w.f.AgentLeases.Items), len(silent), shortList(silent))
	}
	w.link(ref, state, text, time.Time{})
	w.under(func() {
		for _, node := range silent {
			w.node(node)
		}
	})
}

// shortList has the first of some names, and how many more there are.
func shortList(names []string) string {
	if more := len(names) - mostNamed; more > 0 {
		return fmt.Sprintf("%s, %d more", strings.Join(names[:mostNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}

// programs adds the pods of Hawser that are not ready, with what keeps them.
func (w *walk) programs() {
	if err := w.f.SystemPods.Err; err != nil {
		w.unreadable(facts.Ref{Kind: facts.KindPod, Namespace: w.f.System, Name: "(of Hawser)"}, err)
	}
	shown := 0
	for i := range w.f.SystemPods.Items {
		pod := &w.f.SystemPods.Items[i]
		if PodSettled(pod) || shown == mostNamed {
			continue
		}
		shown++
		where := "on no node"
		if pod.Spec.NodeName != "" {
			where = "on node " + pod.Spec.NodeName
		}
		text, since := unready(pod), pod.CreationTimestamp.Time
		if pod.DeletionTimestamp != nil {
			text, since = "being deleted", pod.DeletionTimestamp.Time
		}
		w.link(facts.Ref{Kind: facts.KindPod, Namespace: pod.Namespace, Name: pod.Name}, Bad, join(where, text), since)
		if n, known := w.f.NodeOf(pod.Spec.NodeName); known && pastDraining(w.f.Manager.Value) {
			w.under(func() { w.nodeLink(&n) }) // its kubelet ends the pod
		}
	}
}

// unready is what keeps a pod from being ready.
func unready(pod *corev1.Pod) string {
	for _, c := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		if c.State.Waiting != nil {
			return join(c.State.Waiting.Reason, c.State.Waiting.Message)
		}
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.ContainersReady} {
		if c := podCondition(pod, kind); c.Status == corev1.ConditionFalse {
			return join(c.Reason, c.Message)
		}
	}
	return string(pod.Status.Phase)
}
