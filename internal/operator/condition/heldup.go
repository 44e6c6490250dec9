/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package condition

import (
	"fmt"
	"time"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// heldUp is about a rollout of agents that pods hold up which neither end nor become ready, such as on a dead node.
// They use up the node budget:
//
//	node-a  new, ready
//	node-b  old, ready        not replaced while node-c uses up a budget of 1
//	node-c  old, terminating  the kubelet is gone, so it never ends
//
// A rollout of many nodes may take longer than the deadline, and goes on as long as the budget is not used up.
func (f Facts) heldUp() ([]Problem, time.Duration) {
	a := f.Agents
	if !a.Exists || !a.Observed || a.Updated >= a.Desired || f.ProgressingSince.IsZero() {
		return nil, 0
	}
	var blockers []string
	var again time.Duration
	for _, p := range f.Pods {
		if !p.blocks() {
			continue
		}
		since := p.Since
		if since.Before(f.ProgressingSince) {
			since = f.ProgressingSince
		}
		if age := f.Now.Sub(since); age < f.Deadline {
			again = Sooner(again, f.Deadline-age)
			continue
		}
		blockers = append(blockers, p.blocker())
	}
	count := int32(len(blockers)) //nolint:gosec // fewer than there are nodes
	if count == 0 || count < a.Budget && count < a.Desired-a.Updated {
		return nil, again
	}
	return []Problem{{volumesv1alpha1.ReasonRolloutStuck, fmt.Sprintf(
		"agents: %d of %d updated, and for more than %s %d pod(s) hold up the rest: %s. Let the node return, delete its "+
			"Node, or raise spec.agent.maxUnavailable", a.Updated, a.Desired, f.Deadline, count, names(blockers))}}, again
}

// blocks reports whether the pod of an agent ends or becomes ready only with its node.
func (p Pod) blocks() bool {
	return p.Agent && p.Node != "" && (p.Terminating || !p.NodeReady)
}

func (p Pod) blocker() string {
	text := p.String()
	if !p.NodeReady {
		text += ", which is not Ready"
	}
	if p.Terminating {
		text += " (terminating)"
	}
	return text
}
