/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package pod

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hawser-io/hawser/internal/controller/intentstatus"
)

// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// repeat is how long a problem that lasts stays untold: an event is kept for an hour.
const repeat = 30 * time.Minute

// told remembers what was reported on pods, so that no pass reports it again.
type told struct {
	mu   sync.Mutex
	pods map[types.NamespacedName]map[said]time.Time
}

// said is one thing that was reported on one pod.
type said struct {
	pod             types.UID
	volume, message string
}

// due returns which of the problems are to be reported now and when the next one is; it forgets those that are over.
func (t *told) due(
	key types.NamespacedName, pod types.UID, problems []problem, now time.Time,
) ([]problem, time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.pods[key]
	delete(t.pods, key)
	if len(problems) == 0 {
		return nil, 0
	}
	var due []problem
	next := repeat
	is := map[said]time.Time{}
	for _, p := range problems {
		s := said{pod, p.volume, p.message}
		at, known := was[s]
		if !known || now.Sub(at) >= repeat {
			due, at = append(due, p), now
		}
		is[s], next = at, min(next, at.Add(repeat).Sub(now))
	}
	if t.pods == nil {
		t.pods = map[types.NamespacedName]map[said]time.Time{}
	}
	t.pods[key] = is
	return due, next
}

// forget what was reported on the pod of this name.
func (t *told) forget(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pods, key)
}

// tell records an event on the pod for each problem that was not reported, or not for long, and returns when to
// report it again. A problem that only the cache has, because one kind's events came before the other's, is none.
func (c *Controller) tell(
	ctx context.Context, key types.NamespacedName, pod *corev1.Pod, problems []problem,
) (time.Duration, error) {
	var uid types.UID
	if pod != nil {
		uid = pod.UID
	}
	due, next := c.told.due(key, uid, problems, c.Clock.Now())
	for i := range due {
		p := &due[i]
		real, err := c.confirm(ctx, p)
		if err != nil {
			c.told.forget(key)
			return 0, err
		}
		if real {
			// The API server takes notes of up to 1024 bytes.
			c.Events.Eventf(regarding(pod, p.volume), nil, corev1.EventTypeWarning, intentstatus.EventFailedAttach, p.reason,
				"volume %s: %.900s", p.volume, p.message)
		}
	}
	return next, nil
}

// confirm reads a problem live, and takes over what it finds. What is well live will be in the cache in a moment,
// which is an event.
func (c *Controller) confirm(ctx context.Context, p *problem) (bool, error) {
	if p.again == nil {
		return true, nil
	}
	live := *p.again
	if err := live.gather(ctx, c.Reader); err != nil {
		return false, err
	}
	r := live.resolve()
	p.reason, p.message = r.Reason, r.Message
	return !r.OK, nil
}

// regarding is a reference to one volume of the pod: events of different volumes are not counted as one.
func regarding(pod *corev1.Pod, volume string) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		FieldPath: "spec.volumes{" + volume + "}",
	}
}
