/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package liveness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/install"
)

// The API server may have been restored from a backup: then all that it holds is of the past, Leases included. So
// what an agent has reported counts only once its Lease was seen being renewed, by a watch that has not ended since.
// All API servers are stopped for a restore, so no watch outlives one; and an agent renews its Lease only after it
// has reported anew.

// ErrHistory ends the manager: its caches hold objects of a history that the API server has forgotten.
var ErrHistory = errors.New("the API server was restored from a backup: it has forgotten what this process has seen")

// watchFor is how long the API server is asked to keep one watch open. What was heard is forgotten with it.
const watchFor = 24 * time.Hour

// retryAfter a watch that has ended, or could not be begun.
const retryAfter = 200 * time.Millisecond

// voice is what the Lease of an agent said when it was last renewed.
type voice struct {
	state     types.UID
	reports   int64
	restored  bool
	restoreID types.UID
}

func voiceOf(lease *coordinationv1.Lease) voice {
	v := voice{state: types.UID(lease.Annotations[volumesv1alpha1.LeaseStateAnnotation])}
	v.reports, _ = strconv.ParseInt(lease.Annotations[volumesv1alpha1.LeaseReportsAnnotation], 10, 64) // none is 0
	v.restored = lease.Annotations[volumesv1alpha1.LeaseRestoredAnnotation] == "true"
	v.restoreID = types.UID(lease.Annotations[volumesv1alpha1.LeaseRestoreIDAnnotation])
	return v
}

// ears are what the present watch has heard.
type ears struct {
	since time.Time
	// standing are the renewals that the API server held when the watch began.
	standing map[string]string
	voices   map[string]voice
	// behind is since when a state is waited for that is older than what was heard of it.
	behind map[string]time.Time
	// withdrawn is when a Lease was deleted whose agent reported a restore.
	withdrawn time.Time
}

// IsCurrent reports whether the agent of nvs was heard, and nvs is not older than what it has reported.
func (t *Tracker) IsCurrent(nvs *volumesv1alpha1.NodeVolumeState) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isCurrent(nvs)
}

func (t *Tracker) isCurrent(nvs *volumesv1alpha1.NodeVolumeState) bool {
	v, heard := t.ears.voices[nvs.Name]
	current := heard && (v.state == "" || v.state == nvs.UID) && v.reports <= nvs.Status.Protocol.Reports
	if current {
		delete(t.ears.behind, nvs.Name)
	}
	return current
}

// Unheard are those of the nodes whose agents were not heard yet and may still be, or whose states are older than
// what was heard of, and how long to wait for them at most. Where an agent has reported a restore no agent is waited
// for in vain: then only those are left out that excused names.
func (t *Tracker) Unheard(
	states []volumesv1alpha1.NodeVolumeState, excused func(node string) bool,
) ([]string, time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	left, again := DefaultDuration-t.clock.Since(t.ears.since), DefaultDuration-t.clock.Since(t.ears.withdrawn)
	if t.ears.voices == nil {
		left = DefaultDuration
	}
	wait, restored := max(left, again, 0), t.ears.restored() || again > 0
	if t.ears.restored() {
		wait = 0 // only an event ends it
	}
	var unheard []string
	for i := range states {
		node := states[i].Name
		_, heard := t.ears.voices[node]
		switch {
		case t.isCurrent(&states[i]):
		case heard && t.silence(node) < 0:
			unheard = append(unheard, node) // its report is on its way here, however long that takes
			if _, known := t.ears.behind[node]; !known {
				t.ears.behind[node] = t.clock.Now()
			}
			wait = max(wait, -t.silence(node))
		case left > 0 || restored && !excused(node):
			unheard = append(unheard, node)
		}
	}
	return unheard, wait
}

// Behind are those of the unheard nodes whose agents are heard, and whose states have been older than that for longer
// than it takes a report to come here: the watch of the states hangs, or what the Lease has was never reported.
func (t *Tracker) Behind(unheard []string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(unheard), func(node string) bool {
		since, known := t.ears.behind[node]
		return !known || t.silence(node) >= 0 || t.clock.Since(since) < DefaultDuration
	})
}

// Restored reports whether an agent has reported a restore that no manager has confirmed since.
func (t *Tracker) Restored() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.restored()
}

// restored: those that reported a restore to the last watch, or whose Lease was deleted, have had no time yet to do so
// again.
func (t *Tracker) restored() bool {
	again := t.ears.voices == nil || t.clock.Since(t.ears.since) < DefaultDuration
	return t.ears.restored() || t.wasRestored && again || t.clock.Since(t.ears.withdrawn) < DefaultDuration
}

// MayBePast reports whether what the API shows of the node of nvs may be of before a restore: an agent reports one, and
// no administrator has excused the node from that. nvs may be nil.
func (t *Tracker) MayBePast(nvs *volumesv1alpha1.NodeVolumeState) bool {
	return t.Restored() && (nvs == nil || !slices.Contains(t.Restores(), Excuse(nvs)))
}

// Excuse is the ID of the restore that an administrator has excused the node of nvs from; empty for none.
func Excuse(nvs *volumesv1alpha1.NodeVolumeState) types.UID {
	return types.UID(nvs.Annotations[volumesv1alpha1.ExcusedFromRestoreAnnotation])
}

// Restores returns, in order, the IDs of the restores that agents report.
func (t *Tracker) Restores() []types.UID {
	t.mu.Lock()
	defer t.mu.Unlock()
	ids := sets.New[types.UID]()
	for _, v := range t.ears.voices {
		if v.restored && v.restoreID != "" { // an agent of an earlier version gives none
			ids.Insert(v.restoreID)
		}
	}
	return sets.List(ids)
}

// MayBeRestored reports whether an agent has reported a restore, or could have without being heard.
func (t *Tracker) MayBeRestored() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ears.voices == nil || t.restored()
}

func (e *ears) restored() bool {
	for _, v := range e.voices {
		if v.restored {
			return true
		}
	}
	return false
}

// Listen has wake called for each node whose agent is heard for the first time, by a watch or after a silence. It is
// called beside the watch: the API server ends one that is not read in time, and then no agent counts as heard.
func (t *Tracker) Listen(
	wake func(ctx context.Context, node string, q workqueue.TypedRateLimitingInterface[reconcile.Request]),
) source.Source {
	return source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		heard := workqueue.NewTyped[string]()
		context.AfterFunc(ctx, heard.ShutDown)
		go func() {
			for node, ended := heard.Get(); !ended; node, ended = heard.Get() {
				wake(ctx, node, q)
				heard.Done(node)
			}
		}()
		t.mu.Lock()
		defer t.mu.Unlock()
		t.listeners = append(t.listeners, heard.Add)
		return nil
	})
}

// Listener watches the agents' Leases.
type Listener struct {
	Tracker *Tracker
	Client  client.WithWatch
	// newest resourceVersion that was seen, and that of each Lease.
	newest   string
	versions map[string]string
}

// NeedLeaderElection is false: a process that becomes the leader has listened before.
func (l *Listener) NeedLeaderElection() bool { return false }

// Start listens until ctx ends, or until the API server is seen to have been restored.
func (l *Listener) Start(ctx context.Context) error {
	for first := true; ctx.Err() == nil; first = false {
		err := l.listen(ctx, first)
		if errors.Is(err, ErrHistory) {
			return err
		}
		l.Tracker.deaf()
		if err != nil && ctx.Err() == nil {
			ctrl.Log.WithName("liveness").Info("the agents' Leases are not watched, trying again", "error", err.Error())
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait.Jitter(retryAfter, 1)):
		}
	}
	return nil
}

// listen to one watch until it ends.
func (l *Listener) listen(ctx context.Context, first bool) error {
	list := &coordinationv1.LeaseList{}
	if err := l.Client.List(ctx, list, client.InNamespace(install.Namespace())); err != nil {
		return fmt.Errorf("listing Leases: %w", err)
	}
	if l.wentBack(list) {
		return ErrHistory
	}
	l.Tracker.begin(list.Items)
	seconds := int64(watchFor / time.Second)
	watcher, err := l.Client.Watch(ctx, list, client.InNamespace(install.Namespace()), &client.ListOptions{
		Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion, TimeoutSeconds: &seconds},
	})
	if err != nil {
		return fmt.Errorf("watching Leases: %w", err)
	}
	defer watcher.Stop()
	for e := range watcher.ResultChan() {
		lease, ok := e.Object.(*coordinationv1.Lease)
		if !ok {
			return fmt.Errorf("watching Leases: %s %v", e.Type, e.Object)
		}
		l.newest, l.versions[lease.Name] = lease.ResourceVersion, lease.ResourceVersion
		switch {
		case e.Type == watch.Deleted:
			l.Tracker.withdraw(lease)
		case voiceOf(lease).restored && !first:
			return ErrHistory
		default:
			l.Tracker.hear(lease)
		}
	}
	return nil
}

// wentBack reports whether the list is older than what was seen before. Objects keep their versions in a restore that
// bumps the revision.
func (l *Listener) wentBack(list *coordinationv1.LeaseList) bool {
	back := older(list.ResourceVersion, l.newest)
	versions := make(map[string]string, len(list.Items))
	for i := range list.Items {
		lease := &list.Items[i]
		back = back || older(lease.ResourceVersion, l.versions[lease.Name])
		versions[lease.Name] = lease.ResourceVersion
	}
	l.newest, l.versions = list.ResourceVersion, versions
	return back
}

func older(version, than string) bool {
	if than == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}
