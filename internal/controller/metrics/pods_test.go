/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package metrics

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/metrics/metricstest"
)

// podAt is a pod with an inline volume: gated, without a node, or on a node.
func podAt(uid types.UID, attribute, node string, gates ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Name: "web"}, Spec: corev1.PodSpec{NodeName: node,
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
			Driver: volumesv1alpha1.InlineDriver, VolumeAttributes: map[string]string{attribute: "data"}}}}}}}
	for _, gate := range gates {
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: gate})
	}
	return pod
}

func intentFor(uid types.UID) *volumesv1alpha1.VolumeAttachmentIntent {
	owner := *metav1.NewControllerRef(podAt(uid, "", ""), corev1.SchemeGroupVersion.WithKind("Pod"))
	return &volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{
		Labels:          map[string]string{volumesv1alpha1.PodUIDLabel: string(uid)},
		OwnerReferences: []metav1.OwnerReference{owner}}}
}

// secondsOf each phase since the beginning of the process.
func secondsOf(t *testing.T) map[string]float64 {
	t.Helper()
	seconds := map[string]float64{}
	for _, phase := range []string{"gate", "scheduled", "intent"} {
		for _, s := range metricstest.Observed(t, "hawser_pod_volume_seconds", "phase", phase) {
			seconds[phase] += s.Sum
		}
	}
	return seconds
}

func TestThePhasesOfAPodAreTimedUntilItsIntentExists(t *testing.T) {
	const gate = volumesv1alpha1.PlacementGate
	const claim, intent = volumesv1alpha1.AttributeClaim, volumesv1alpha1.AttributeIntent
	for name, c := range map[string]struct {
		// life is called with a pod that was not there before.
		life  func(p *podTimes, uid types.UID)
		waits bool // the manager does not lead
		want  map[string]float64
		kept  int
	}{
		"a pod of a claim": {life: func(p *podTimes, uid types.UID) {
			p.added(podAt(uid, claim, "", gate))
			p.changed(podAt(uid, claim, "", gate), podAt(uid, claim, ""))
			p.changed(podAt(uid, claim, ""), podAt(uid, claim, "node-a"))
			p.added(intentFor(uid))
		}, want: map[string]float64{"gate": 1, "scheduled": 1, "intent": 1}},
		"a pod of an intent": {life: func(p *podTimes, uid types.UID) {
			p.added(podAt(uid, intent, "", gate))
			p.changed(podAt(uid, intent, "", gate), podAt(uid, intent, ""))
			p.changed(podAt(uid, intent, ""), podAt(uid, intent, "node-a"))
		}, want: map[string]float64{"gate": 1, "scheduled": 1}},
		"a pod that is deleted while it is gated": {life: func(p *podTimes, uid types.UID) {
			p.added(podAt(uid, claim, "", gate))
			p.deleted(podAt(uid, claim, "", gate))
			p.added(intentFor(uid))
		}},
		"a pod that existed before the manager": {life: func(p *podTimes, uid types.UID) {
			p.changed(podAt(uid, claim, "", gate), podAt(uid, claim, ""))
			p.added(intentFor(uid))
		}},
		"a pod that waits": {life: func(p *podTimes, uid types.UID) {
			p.added(podAt(uid, claim, "", gate))
		}, kept: 1},
		"a manager that does not lead": {waits: true, life: func(p *podTimes, uid types.UID) {
			p.added(podAt(uid, claim, "", gate))
			p.changed(podAt(uid, claim, "", gate), podAt(uid, claim, ""))
		}, kept: 1},
	} {
		t.Run(name, func(t *testing.T) {
			leading := make(chan struct{})
			if !c.waits {
				close(leading)
			}
			p := &podTimes{leading: leading, clock: &second{}}
			before := secondsOf(t)
			c.life(p, types.UID(name))
			after := secondsOf(t)
			for _, phase := range []string{"gate", "scheduled", "intent"} {
				if got := after[phase] - before[phase]; got != c.want[phase] {
					t.Errorf("phase %s took %v s, want %v s", phase, got, c.want[phase])
				}
			}
			if len(p.last) != c.kept {
				t.Errorf("%d pods are kept, want %d", len(p.last), c.kept)
			}
		})
	}
}
