/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inline

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hawser-io/hawser/internal/metrics"
)

// measure counts how long the pod waited for its volume, and for what. The phases before the publication belong to the
// pod only if the intent was made for it, and are counted for the first of its volumes of that claim. After a reboot
// they would contain the life of the pod.
func (p *Plugin) measure(r request, f found, called time.Time) {
	now := p.Clock.Now()
	t := f.intent.Status.Timeline
	if r.claim == "" || t == nil || t.Published == nil {
		metrics.ObservePodPhase(metrics.PodBound, now.Sub(called))
		return
	}
	if t.Requested == nil || t.Requested.Time.Before(p.Booted()) || p.hasAnother(r, f.VolumeName) {
		return
	}
	last := t.Requested
	for _, phase := range []struct {
		name metrics.PodPhase
		end  *metav1.MicroTime
	}{{metrics.PodAttached, t.Attached}, {metrics.PodStaged, t.Staged}, {metrics.PodPublished, t.Published}} {
		if phase.end != nil {
			metrics.ObservePodPhase(phase.name, phase.end.Sub(last.Time))
			last = phase.end
		}
	}
	metrics.ObservePodPhase(metrics.PodBound, now.Sub(last.Time))
}

// hasAnother reports whether the pod has another volume of the same claim.
func (p *Plugin) hasAnother(r request, volumeName string) bool {
	for _, b := range p.Pods.OfVolume(volumeName) {
		if b.Pod.UID == r.pod.UID && b.Target != r.target {
			return true
		}
	}
	return false
}
