/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/status"
)

// capabilityStorageHealth is that of a driver that reports the health of what stores its volumes.
const capabilityStorageHealth = "GET_STORAGE_HEALTH"

// worst are the kinds of problems, the worst first. They are listed in this order, so that those are kept if there are
// too many.
var worst = []volumesv1alpha1.HealthStatus{volumesv1alpha1.HealthDataLoss, volumesv1alpha1.HealthInaccessible,
	volumesv1alpha1.HealthStorageUnreachable, volumesv1alpha1.HealthAbnormal, volumesv1alpha1.HealthStorageDegraded,
	volumesv1alpha1.HealthDegraded}

// NextHealth returns the health of which the driver has reported these problems, nil if there are none, and whether it
// is another one than before. Drivers put figures into messages that change all the time, so the messages stay those of
// the first report until other problems are reported.
func NextHealth(before *volumesv1alpha1.Health, problems []volumesv1alpha1.HealthProblem, now time.Time,
) (next *volumesv1alpha1.Health, changed bool) {
	problems = bounded(problems)
	if len(problems) == 0 {
		return nil, before != nil
	}
	if before != nil && slices.EqualFunc(before.Problems, problems, sameProblem) {
		return before, false
	}
	// The API has seconds. A fraction would make each report differ from what was written.
	return &volumesv1alpha1.Health{Problems: problems, Since: metav1.NewTime(now).Rfc3339Copy()}, true
}

// bounded sorts the problems and cuts what the API does not take.
func bounded(problems []volumesv1alpha1.HealthProblem) []volumesv1alpha1.HealthProblem {
	problems = slices.Clone(problems)
	for i := range problems {
		p := &problems[i]
		p.Reason = status.Shorten(p.Reason, volumesv1alpha1.MaxHealthReasonLength)
		p.Message = status.Shorten(p.Message, volumesv1alpha1.MaxHealthMessageLength)
	}
	slices.SortStableFunc(problems, func(x, y volumesv1alpha1.HealthProblem) int {
		return cmp.Or(cmp.Compare(slices.Index(worst, x.Status), slices.Index(worst, y.Status)),
			cmp.Compare(x.Reason, y.Reason), cmp.Compare(x.VolumeMode, y.VolumeMode),
			cmp.Compare(x.AccessMode, y.AccessMode))
	})
	problems = slices.CompactFunc(problems, sameProblem)
	return problems[:min(len(problems), volumesv1alpha1.MaxHealthProblems)]
}

// sameProblem compares all but the messages.
func sameProblem(x, y volumesv1alpha1.HealthProblem) bool {
	x.Message, y.Message = "", ""
	return x == y
}

// DescribeHealth names the worst problems and since when they are there.
func DescribeHealth(h *volumesv1alpha1.Health) string {
	var problems []string
	for _, p := range h.Problems {
		problems = append(problems, p.String())
	}
	return fmt.Sprintf("%s, since %s", Enumerate(problems), h.Since.UTC().Format(time.RFC3339))
}

// RecoverStorageHealth takes over what an earlier agent has reported in this boot, so that it is no news.
func (n *Node) RecoverStorageHealth(nvs *volumesv1alpha1.NodeVolumeState) {
	if nvs.Status.BootID != n.BootID {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, d := range nvs.Status.Drivers {
		if d.StorageHealth != nil {
			n.storage[d.Name] = d.StorageHealth
		}
	}
}

// NoteStorageHealth notes the problems that the driver reports of its storage, and reports whether they are news. So is
// the driver's first answer.
func (n *Node) NoteStorageHealth(driver string, problems []volumesv1alpha1.HealthProblem, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	before, answered := n.storage[driver]
	next, changed := NextHealth(before, problems, now)
	n.storage[driver] = next
	return changed || !answered
}

// registered are the drivers of the node with the health that they report.
func (n *Node) registered() []volumesv1alpha1.NodeDriver {
	drivers := n.Drivers()
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range drivers {
		if d := &drivers[i]; slices.Contains(d.Capabilities, capabilityStorageHealth) {
			d.StorageHealth = n.storage[d.Name].DeepCopy()
		}
	}
	return drivers
}

// storageHealthy has no value as long as no driver has reported. asked: one of the drivers can report.
func (n *Node) storageHealthy(drivers []volumesv1alpha1.NodeDriver) (value *ConditionValue, asked bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var unhealthy []string
	for _, d := range drivers {
		if !slices.Contains(d.Capabilities, capabilityStorageHealth) {
			continue
		}
		asked = true
		if _, answered := n.storage[d.Name]; answered {
			value = &ConditionValue{OK: true, reason: volumesv1alpha1.ReasonAsExpected,
				Message: "no driver reports a problem of its storage"}
		}
		if d.StorageHealth != nil {
			unhealthy = append(unhealthy, fmt.Sprintf("%s: %s", d.Name, DescribeHealth(d.StorageHealth)))
		}
	}
	if len(unhealthy) > 0 {
		value = &ConditionValue{reason: volumesv1alpha1.ReasonStorageUnhealthy, Message: Enumerate(unhealthy)}
	}
	return value, asked
}
