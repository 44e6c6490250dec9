/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package condition decides the conditions of a VolumeManager. It reads and writes nothing.
package condition

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// mostNames of pods in a message.
const mostNames = 5

// Workload is what is known of the manager's Deployment or of the agents' DaemonSet.
type Workload struct {
	// Exists is false before the first apply. Observed is false while its controller has not seen the last change.
	Exists, Observed bool
	// Desired pods; Scheduled, Updated and Ready ones.
	Desired, Scheduled, Updated, Ready int32
	// Old pods that have an earlier template.
	Old int32
	// Budget is how many pods may be absent at once.
	Budget int32
	// Failure is why its controller creates no pods. Refusal is what the API server answered last when it tried, which
	// may be over.
	Failure, Refusal string
}

// Replaced reports whether no pod of an earlier template is left. A pod on a node that is not Ready may count.
func (w Workload) Replaced() bool {
	return w.Exists && w.Observed && w.Updated >= w.Desired && w.Old == 0
}

func (w Workload) done() bool { return w.Replaced() && w.Ready >= w.Desired }

// Pod is one that is not ready, or that is being deleted.
type Pod struct {
	Name, Node string
	// Intended is the node that a pod is for which is not scheduled yet, as one of a DaemonSet is; empty for any.
	Intended string
	// Since is when it ceased to be ready, or was created. If it is being deleted, it is the end of its grace period.
	Since time.Time
	// Agent is true for a pod of the DaemonSet. Terminating is true while the pod is being deleted.
	Agent, Terminating bool
	// Failure is why its container does not run: it crashes, or its image cannot be pulled.
	Failure string
	// NodeReady is false if its node is not Ready, and the pod cannot be.
	NodeReady bool
}

func (p Pod) String() string {
	switch {
	case p.Node == "" && p.Intended != "":
		return fmt.Sprintf("%s, which is not scheduled to node %s", p.Name, p.Intended)
	case p.Node == "":
		return p.Name + ", which is not scheduled"
	}
	return fmt.Sprintf("%s on node %s", p.Name, p.Node)
}

// Problem is something that does not end by waiting.
type Problem struct{ Reason, Message string }

// Facts are what the decision needs.
type Facts struct {
	Manager, Agents Workload
	// Pods of both workloads that are not ready, by name.
	Pods []Pod
	// Problems that were found before the workloads were observed, the worst first.
	Problems []Problem
	// WithoutAgent are the nodes for whose pods no volume is attached in attach mode Replace, by name.
	WithoutAgent []string
	// MonitorsWanted and MonitorsServed are about the kinds of the Prometheus operator.
	MonitorsWanted, MonitorsServed bool
	// Fences are about the fence sources; nil where there are none, or where that could not be found out.
	Fences *FenceSources
	// ProgressingSince is zero if nothing was progressing before.
	ProgressingSince time.Time
	Now              time.Time
	// Deadline is how long a pod may take to become ready.
	Deadline time.Duration
}

// Decision has the conditions, without generation and time, and when to decide again without an event; 0 is never.
type Decision struct {
	Conditions []metav1.Condition
	Again      time.Duration
}

// Decide decides the conditions.
func Decide(f Facts) Decision {
	degraded, again := f.degraded()
	conditions := []metav1.Condition{f.available(), f.progressing(), degraded}
	if f.MonitorsWanted {
		conditions = append(conditions, f.monitored())
	}
	if f.Agents.Exists {
		conditions = append(conditions, f.replaceCoversNodes())
	}
	if f.Fences != nil {
		conditions = append(conditions, f.Fences.ready())
		again = Sooner(again, f.Fences.Again)
	}
	return Decision{Conditions: append(conditions, summary(conditions[0], conditions[1], degraded)...), Again: again}
}

// summary is Ready and Stalled, by which tools of GitOps judge any object. What waits for a person is Stalled.
func summary(available, progressing, degraded metav1.Condition) []metav1.Condition {
	ready := available
	switch {
	case degraded.Status == metav1.ConditionTrue:
		ready = degraded
	case available.Status != metav1.ConditionTrue:
	case progressing.Status == metav1.ConditionTrue:
		ready = progressing
	}
	stalled := degraded.Status == metav1.ConditionTrue
	isReady := !stalled && progressing.Status != metav1.ConditionTrue && available.Status == metav1.ConditionTrue
	return []metav1.Condition{
		newCondition(volumesv1alpha1.ConditionReady, isReady, ready.Reason, ready.Message),
		newCondition(volumesv1alpha1.ConditionStalled, stalled, degraded.Reason, degraded.Message),
	}
}

func newCondition(kind string, status bool, reason, message string) metav1.Condition {
	value := metav1.ConditionFalse
	if status {
		value = metav1.ConditionTrue
	}
	return metav1.Condition{Type: kind, Status: value, Reason: reason, Message: message}
}

func (f Facts) available() metav1.Condition {
	message := fmt.Sprintf("manager: %d of %d ready; agents: ready on %d of %d nodes",
		f.Manager.Ready, f.Manager.Desired, f.Agents.Ready, f.Agents.Desired)
	if away := f.podsOfNodesNotReady(); len(away) > 0 {
		message += "; nodes that are not Ready: " + names(away)
	}
	reason := volumesv1alpha1.ReasonAsExpected
	switch {
	case f.Manager.Ready == 0:
		reason = volumesv1alpha1.ReasonManagerNotReady
	case f.Agents.Desired == 0 && f.Agents.Observed:
		reason = volumesv1alpha1.ReasonNoNodes
	case f.Agents.Ready == 0, f.Agents.Desired-f.Agents.Ready > f.Agents.Budget:
		reason = volumesv1alpha1.ReasonAgentsNotReady
	}
	return newCondition(volumesv1alpha1.ConditionAvailable, reason == volumesv1alpha1.ReasonAsExpected, reason, message)
}

func (f Facts) podsOfNodesNotReady() []string {
	var nodes []string
	for _, p := range f.Pods {
		if !p.NodeReady && p.Node != "" {
			nodes = append(nodes, p.Node)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

func (f Facts) progressing() metav1.Condition {
	var waits []string
	for _, w := range []struct {
		name, unit string
		Workload
	}{{"manager", "replica", f.Manager}, {"agents", "node", f.Agents}} {
		if wait := w.waitsFor(w.unit); wait != "" {
			waits = append(waits, w.name+": "+wait)
		}
	}
	if len(waits) == 0 {
		return newCondition(volumesv1alpha1.ConditionProgressing, false, volumesv1alpha1.ReasonAsExpected,
			"manager and agents are as the spec asks for")
	}
	return newCondition(volumesv1alpha1.ConditionProgressing, true, volumesv1alpha1.ReasonRollingOut,
		strings.Join(waits, "; "))
}

// waitsFor is empty if the workload is done.
func (w Workload) waitsFor(unit string) string {
	switch {
	case w.done():
		return ""
	case !w.Exists:
		return "not created yet"
	case !w.Observed:
		return "the last change is not observed yet"
	case w.Updated < w.Desired:
		return fmt.Sprintf("%d of %d updated, awaiting %d %s(s)", w.Updated, w.Desired, w.Desired-w.Updated, unit)
	}
	if w.Ready >= w.Desired {
		return fmt.Sprintf("%d old %s(s) still run", w.Old, unit)
	}
	return fmt.Sprintf("%d of %d ready, awaiting %d %s(s)", w.Ready, w.Desired, w.Desired-w.Ready, unit)
}

// degraded also returns when the next pod exceeds its deadline.
func (f Facts) degraded() (metav1.Condition, time.Duration) {
	problems := slices.Clone(f.Problems)
	for _, w := range []struct {
		name string
		Workload
	}{{"manager", f.Manager}, {"agents", f.Agents}} {
		if w.Failure != "" {
			problems = append(problems, Problem{volumesv1alpha1.ReasonRolloutStuck, w.name + ": " + w.Failure})
		}
	}
	var failing, late []string
	unscheduled := ""
	var again time.Duration
	for _, p := range f.Pods {
		age := f.Now.Sub(p.Since)
		switch {
		case !p.NodeReady && p.Node != "", p.Terminating:
		case p.Failure != "":
			failing = append(failing, p.String()+": "+p.Failure)
		case age >= f.Deadline:
			late = append(late, p.String())
			if p.Node == "" && p.Intended != "" {
				unscheduled = ". If a node can run no agent, leave it out by spec.nodeAffinity"
			}
		default:
			again = Sooner(again, f.Deadline-age)
		}
	}
	if len(failing) > 0 {
		problems = append(problems, Problem{volumesv1alpha1.ReasonPodsFailing, fmt.Sprintf(
			"%d pod(s) fail: %s", len(failing), names(failing))})
	}
	if len(late) > 0 {
		problems = append(problems, Problem{volumesv1alpha1.ReasonRolloutStuck, fmt.Sprintf(
			"%d pod(s) have not become ready within %s: %s%s", len(late), f.Deadline, names(late), unscheduled)})
	}
	for _, find := range []func() ([]Problem, time.Duration){f.absent, f.heldUp} {
		more, wait := find()
		problems, again = append(problems, more...), Sooner(again, wait)
	}
	return degradedBy(problems), again
}

// absent is about pods that do not exist: a quota or a policy may refuse them.
func (f Facts) absent() ([]Problem, time.Duration) {
	missing := f.Agents.Desired - f.Agents.Scheduled
	if missing <= 0 || !f.Agents.Observed || f.ProgressingSince.IsZero() {
		return nil, 0
	}
	if age := f.Now.Sub(f.ProgressingSince); age < f.Deadline {
		return nil, f.Deadline - age
	}
	why := f.Agents.Refusal
	if why == "" {
		why = "kubectl describe the DaemonSet"
	}
	return []Problem{{volumesv1alpha1.ReasonRolloutStuck, fmt.Sprintf(
		"agents: %d of %d nodes have no pod: %s", missing, f.Agents.Desired, why)}}, 0
}

func degradedBy(problems []Problem) metav1.Condition {
	if len(problems) == 0 {
		return newCondition(volumesv1alpha1.ConditionDegraded, false, volumesv1alpha1.ReasonAsExpected, "")
	}
	messages := make([]string, 0, len(problems))
	for _, p := range problems {
		messages = append(messages, p.Message)
	}
	return newCondition(volumesv1alpha1.ConditionDegraded, true, problems[0].Reason, strings.Join(messages, "; "))
}

func (f Facts) monitored() metav1.Condition {
	if f.MonitorsServed {
		return newCondition(volumesv1alpha1.ConditionMonitored, true, volumesv1alpha1.ReasonAsExpected, "")
	}
	return newCondition(volumesv1alpha1.ConditionMonitored, false, volumesv1alpha1.ReasonKindsMissing,
		"the monitors are left out until the kinds ServiceMonitor and PodMonitor of monitoring.coreos.com are installed; "+
			"spec.monitoring: None does without them")
}

func (f Facts) replaceCoversNodes() metav1.Condition {
	if len(f.WithoutAgent) == 0 {
		return newCondition(volumesv1alpha1.ConditionReplaceCoversNodes, true, volumesv1alpha1.ReasonAsExpected, "")
	}
	return newCondition(volumesv1alpha1.ConditionReplaceCoversNodes, false, volumesv1alpha1.ReasonNodesWithoutAgent,
		fmt.Sprintf("in attach mode Replace no volume is attached for the pods of %d node(s), where no agent runs: %s",
			len(f.WithoutAgent), names(f.WithoutAgent)))
}

func names(all []string) string {
	shown := all[:min(len(all), mostNames)]
	text := strings.Join(shown, ", ")
	if more := len(all) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Sooner is the shorter of two waits, where 0 is none.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
