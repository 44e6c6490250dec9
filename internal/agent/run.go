/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/inline"
	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/agent/report"
)

// +kubebuilder:rbac:groups=volumes.hawser.io,resources=volumeattachmentintents,verbs=get;list;watch
// +kubebuilder:rbac:groups=volumes.hawser.io,resources=nodevolumestates,verbs=get;list;watch
// +kubebuilder:rbac:groups=volumes.hawser.io,resources=volumeattachmentintents/status,verbs=update
// +kubebuilder:rbac:groups=volumes.hawser.io,resources=nodevolumestates/status,verbs=update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// CacheOptions restrict a cache to what the agent of that node may see; asking it for anything else is an error.
func CacheOptions(nodeName string) cache.Options {
	keepNoManagedFields := cache.TransformStripManagedFields()
	return cache.Options{
		ReaderFailOnMissingInformer: true,
		DefaultTransform:            keepNoManagedFields,
		ByObject: map[client.Object]cache.ByObject{
			&volumesv1alpha1.VolumeAttachmentIntent{}: {Field: fields.OneTermEqualSelector("spec.nodeName", nodeName)},
			&volumesv1alpha1.NodeVolumeState{}:        {Field: fields.OneTermEqualSelector("metadata.name", nodeName)},
		},
	}
}

// Start runs the agent until ctx ends. The cache has to be started by the caller.
func (a *Agent) Start(ctx context.Context) error {
	ctx, a.session.End = context.WithCancelCause(ctx)
	defer a.session.End(nil)
	defer a.queue.queue.ShutDown()
	err := a.acquire(ctx)
	if err != nil {
		return err
	}
	defer a.lock.Close() //nolint:errcheck // the lock goes with the process at the latest
	lifetime, kill := context.WithCancelCause(context.WithoutCancel(ctx))
	defer kill(operation.ErrStopped)
	a.liveFor(lifetime)
	if err := a.watch(ctx); err != nil {
		return fmt.Errorf("watching: %w", err)
	}
	// Everything that is wanted is known before anything is touched.
	if !a.Cache.WaitForCacheSync(ctx) {
		return ctx.Err()
	}
	if err := a.recoverRecords(ctx); err != nil {
		return fmt.Errorf("recovering: %w", err)
	}
	if a.observer.Watcher, err = a.Host.Watch(); err != nil {
		return fmt.Errorf("making a watcher of the kubelet's records: %w", err)
	}
	var background sync.WaitGroup
	for _, loop := range []func(context.Context){a.state.Run, a.observer.Run, a.watchMounts, a.watchDrivers,
		a.readStats, a.examineVolumes} {
		background.Go(func() { loop(ctx) })
	}
	if err := a.firstReport(ctx); err != nil {
		background.Wait()
		return ignoreEnd(ctx, err)
	}
	background.Go(func() { a.session.RenewLease(ctx) })
	if a.ServePods {
		background.Go(func() { a.servePods(ctx) })
	}
	close(a.started)
	a.Log.Info("agent at work", "node", a.NodeName, "root", a.RootDir)
	a.queue.run(ctx, func() { a.stopCalls(kill) })
	background.Wait()
	if errors.Is(context.Cause(ctx), report.ErrRestored) {
		return report.ErrRestored
	}
	if _, err := a.session.PersistLastReport(); err != nil {
		a.Log.Error(err, "the next agent may not notice that the API server was restored from a backup")
	}
	a.session.ReportStopped()
	return nil
}

// stopCalls lets driver calls end by themselves for a while; what is then still going on is in the records.
func (a *Agent) stopCalls(kill context.CancelCauseFunc) {
	t := a.Clock.NewTimer(stopGrace)
	defer t.Stop()
	select {
	case <-a.queue.idle():
	case <-t.C():
	}
	kill(operation.ErrStopped)
}

// ignoreEnd ignores what failed because the agent was to end.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, report.ErrRestored) {
		return nil
	}
	return err
}

// acquire waits until no other agent works under the same root, and keeps it so.
func (a *Agent) acquire(ctx context.Context) error {
	if err := os.MkdirAll(a.paths.Root, operation.PublishedDirMode); err != nil {
		return fmt.Errorf("making root directory: %w", err)
	}
	lock, err := a.Host.Lock(ctx, a.paths.Lock())
	if err != nil {
		return err
	}
	a.lock = lock
	store, err := record.OpenStore(a.paths.Records())
	if err != nil {
		return err
	}
	store.Replace = a.Host.ReplaceFile
	a.useStore(store)
	if a.session.Persisted, err = a.store.LoadLastReport(); err != nil {
		a.Log.Error(err, "not known which report was the last one")
	}
	return nil
}

// firstReport writes everything that was found. Until it is acknowledged nothing is done: it voids whatever an earlier
// process may still have on its way, and from then on the agent's own writes are all it has to know.
func (a *Agent) firstReport(ctx context.Context) error {
	select {
	case <-a.observer.First:
	case <-ctx.Done():
	}
	backoff := wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Steps: 10, Cap: 30 * time.Second, Jitter: 0.1}
	for ctx.Err() == nil {
		changed := a.queue.stateChanges()
		err := a.session.Begin(ctx)
		if err == nil {
			return nil
		}
		var retry <-chan time.Time
		if !errors.Is(err, report.ErrNoState) {
			retry = a.Clock.After(backoff.Step())
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-retry:
		}
	}
	return context.Cause(ctx)
}

// reconcileKey is the dispatcher's handler.
func (a *Agent) reconcileKey(ctx context.Context, k key) (time.Duration, error) {
	switch {
	case k.place != inline.Place{}:
		return a.plugin.ReconcilePlace(ctx, k.place)
	case k.volume == "":
		return 0, a.reconcileIntent(ctx, k.intent)
	}
	return a.reconcile(ctx, k.volume)
}
