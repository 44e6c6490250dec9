/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package intentstatus is the manager's only writer of an intent's status. It writes one update at a time under the
// resourceVersion that was decided on, and events.
package intentstatus

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/resolve"
	"github.com/hawser-io/hawser/internal/metrics"
)

// +kubebuilder:rbac:groups=volumes.hawser.io,resources=volumeattachmentintents/status,verbs=update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reporter writes intents' status and events.
type Reporter struct {
	Client client.Client
	Events events.EventRecorder
	Clock  clock.PassiveClock

	seen    sync.Map // namespace and name of an intent -> time.Time
	written sync.Map // namespace and name of an intent -> resourceVersion that was last written upon
	told    sync.Map // namespace and name of an intent that waits -> told
}

// Saw remembers when an intent was first seen, for its timeline, until something is written of it.
func (r *Reporter) Saw(intent *volumesv1alpha1.VolumeAttachmentIntent) {
	if intent.Status.Timeline == nil {
		r.seen.LoadOrStore(client.ObjectKeyFromObject(intent), r.Clock.Now())
	}
}

// Forget drops an intent that is gone.
func (r *Reporter) Forget(key client.ObjectKey) {
	r.seen.Delete(key)
	r.written.Delete(key)
	r.told.Delete(key)
}

// timeline of the intent, which is made where there is none.
func timeline(intent *volumesv1alpha1.VolumeAttachmentIntent) *volumesv1alpha1.Timeline {
	if intent.Status.Timeline == nil {
		intent.Status.Timeline = &volumesv1alpha1.Timeline{}
	}
	return intent.Status.Timeline
}

// update applies change to a copy of the cached intent and writes its status if anything differs. A conflict
// is no error: it means that a newer intent is on its way to the cache and will be reconciled.
func (r *Reporter) update(
	ctx context.Context, cached *volumesv1alpha1.VolumeAttachmentIntent,
	change func(*volumesv1alpha1.VolumeAttachmentIntent),
) error {
	key := client.ObjectKeyFromObject(cached)
	if version, ok := r.written.Load(key); ok && version == cached.ResourceVersion {
		return nil
	}
	intent := cached.DeepCopy()
	change(intent)
	if equality.Semantic.DeepEqual(cached.Status, intent.Status) {
		return nil
	}
	if at, ok := r.seen.Load(key); ok && timeline(intent).Requested == nil {
		requested := metav1.NewMicroTime(at.(time.Time))
		intent.Status.Timeline.Requested = &requested
	}
	err := r.Client.Status().Update(ctx, intent)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("updating the status of intent %s/%s: %w", intent.Namespace, intent.Name, err)
	}
	r.seen.Delete(key)
	r.written.Store(key, cached.ResourceVersion)
	r.measure(ctx, cached, intent)
	r.tell(cached, intent)
	return nil
}

// measure counts how long it took until the volume was attached for the first time.
func (r *Reporter) measure(ctx context.Context, before, after *volumesv1alpha1.VolumeAttachmentIntent) {
	was, is := before.Status.Timeline, after.Status.Timeline
	if is == nil || is.Requested == nil || is.Attached == nil || was != nil && was.Attached != nil {
		return
	}
	sources, err := resolve.Sources(ctx, r.Client, after.Status.UniqueVolumeName)
	if err == nil && len(sources) > 0 {
		metrics.ObservePhase(sources[0].Driver, metrics.Attach, is.Attached.Sub(is.Requested.Time))
	}
}
