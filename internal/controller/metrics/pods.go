/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package metrics

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/metrics"
)

// podTimes measures the first phases of pods with inline volumes: gate, scheduled and intent. It watches the pods and
// the intents for them. The times of the API server have seconds only, so it takes its own. A pod that existed when
// this process started is not counted.
type podTimes struct {
	leading <-chan struct{}
	clock   clock.PassiveClock

	mu sync.Mutex
	// last is when the last phase of each pod ended, until its intent exists.
	last map[types.UID]time.Time
}

// follow the pods and intents in the cache.
func (p *podTimes) follow(ctx context.Context, c cache.Cache) error {
	for _, kind := range []client.Object{&corev1.Pod{}, &volumesv1alpha1.VolumeAttachmentIntent{}} {
		informer, err := c.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watching %T for metrics: %w", kind, err)
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(o any, initial bool) {
				if !initial {
					p.added(o)
				}
			},
			UpdateFunc: func(before, after any) { p.changed(before, after) },
			DeleteFunc: func(o any) { p.deleted(o) },
		})
		if err != nil {
			return fmt.Errorf("watching %T for metrics: %w", kind, err)
		}
	}
	return nil
}

func (p *podTimes) added(o any) {
	switch o := o.(type) {
	case *corev1.Pod:
		if hasInline(o) {
			p.begin(o.UID)
		}
	case *volumesv1alpha1.VolumeAttachmentIntent:
		if _, uid, ok := index.PodOf(o); ok && o.Spec.Publisher != volumesv1alpha1.PublisherKubelet {
			p.end(uid, metrics.PodIntent, true)
		}
	}
}

func (p *podTimes) changed(before, after any) {
	was, ok := before.(*corev1.Pod)
	is, also := after.(*corev1.Pod)
	if !ok || !also || !hasInline(is) {
		return
	}
	if was.UID != is.UID {
		p.deleted(was)
		p.begin(is.UID)
		return
	}
	if !index.Ungated(was) && index.Ungated(is) {
		p.end(is.UID, metrics.PodGate, false)
	}
	if was.Spec.NodeName == "" && is.Spec.NodeName != "" {
		p.end(is.UID, metrics.PodScheduled, !hasInlineClaim(is))
	}
}

func (p *podTimes) deleted(o any) {
	if unknown, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = unknown.Obj
	}
	if pod, ok := o.(*corev1.Pod); ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.last, pod.UID)
	}
}

func (p *podTimes) begin(pod types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		p.last = map[types.UID]time.Time{}
	}
	p.last[pod] = p.clock.Now()
}

// end counts a phase of a pod whose beginning is known. After the last phase the pod is dropped.
func (p *podTimes) end(pod types.UID, phase metrics.PodPhase, last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	since, known := p.last[pod]
	if !known {
		return
	}
	now := p.clock.Now()
	if isClosed(p.leading) {
		metrics.ObservePodPhase(phase, now.Sub(since))
	}
	p.last[pod] = now
	if last {
		delete(p.last, pod)
	}
}

func hasInline(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if _, _, ok := index.Inline(&pod.Spec.Volumes[i]); ok {
			return true
		}
	}
	return false
}

func hasInlineClaim(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if claim, _, _ := index.Inline(&pod.Spec.Volumes[i]); claim != "" {
			return true
		}
	}
	return false
}
