/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/status"
)

// agent is a fake of a node's agent: it uses the volumes that its intents want, and releases them.
type agent struct {
	client client.WithWatch
	node   string
	t      *testing.T
	stop   func()

	mu sync.Mutex
	// hangs: the agent releases nothing, as if the driver hung.
	hangs bool
	// skipsChecks: the agent does not check its node when it is asked to.
	skipsChecks bool
	// mounted: the kubelet's mounts that the agent sees, by unique volume name.
	mounted map[string]bool
	poke    chan struct{}
}

// agent runs until the test ends or it is stopped. It first waits for its NodeVolumeState.
func (w *world) agent(t *testing.T, node string) *agent { return w.agentAhead(t, node, 0) }

// agentAhead is one whose clock is ahead of ours, or behind.
func (w *world) agentAhead(t *testing.T, node string, ahead time.Duration) *agent {
	a := &agent{client: w.client, node: node, t: t, poke: make(chan struct{}, 100)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	a.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(a.stop)
	states, err := w.client.Watch(ctx, &volumesv1alpha1.NodeVolumeStateList{},
		client.MatchingFields{"metadata.name": node})
	if err != nil {
		t.Fatalf("agent of node %s: watching node states: %v", node, err)
	}
	intents, err := w.client.Watch(ctx, &volumesv1alpha1.VolumeAttachmentIntentList{},
		client.MatchingFields{"spec.nodeName": node})
	if err != nil {
		t.Fatalf("agent of node %s: watching intents: %v", node, err)
	}
	go func() {
		defer close(done)
		defer states.Stop()
		defer intents.Stop()
		var renewing sync.WaitGroup
		defer renewing.Wait()
		renewing.Go(func() { renewLease(ctx, t, a.client, node, ahead, func() {}) })
		for a.reconcile(ctx) {
			select {
			case <-ctx.Done():
				return
			case <-states.ResultChan():
			case <-intents.ResultChan():
			case <-a.poke:
			}
		}
	}()
	return a
}

// keepRenewing renews the Lease of a node's agent until the test ends.
func (w *world) keepRenewing(t *testing.T, node string) { w.keepRenewingAnd(t, node, func() {}) }

// keepRenewingAnd does so and calls renewed after each time.
func (w *world) keepRenewingAnd(t *testing.T, node string, renewed func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var renewing sync.WaitGroup
	t.Cleanup(func() { cancel(); renewing.Wait() })
	renewing.Go(func() { renewLease(ctx, t, w.client, node, 0, renewed) })
}

// renewLease renews the Lease of a node's agent until ctx ends. It does so more often than an agent: a manager that
// starts counts what an agent has reported only once it has seen a renewal. A Lease that a test has written keeps its
// duration.
func renewLease(
	ctx context.Context, t *testing.T, c client.Client, node string, ahead time.Duration, renewed func(),
) {
	key := client.ObjectKey{Namespace: volumesv1alpha1.InstallNamespace, Name: volumesv1alpha1.AgentLeasePrefix + node}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		now := metav1.NewMicroTime(time.Now().Add(ahead))
		err := c.Get(ctx, key, lease)
		switch lease.Spec.RenewTime = &now; {
		case apierrors.IsNotFound(err):
			err = c.Create(ctx, lease)
		case err == nil:
			err = c.Update(ctx, lease)
		}
		if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			t.Logf("node %s: renewing the agent's Lease: %v", node, err)
		}
		renewed()
	}, 200*time.Millisecond)
}

// events can be waited for one by one. The zero value is ready to use.
type events struct {
	mu     sync.Mutex
	waited chan struct{}
}

// add reports an event.
func (e *events) add() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waited != nil {
		close(e.waited)
		e.waited = nil
	}
}

// next is closed with the next event.
func (e *events) next() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waited == nil {
		e.waited = make(chan struct{})
	}
	return e.waited
}

// set changes how the agent behaves.
func (a *agent) set(change func()) {
	a.mu.Lock()
	change()
	a.mu.Unlock()
	a.poke <- struct{}{}
}

// reconcile reports until the report is up to date; it returns false when the agent has been stopped.
func (a *agent) reconcile(ctx context.Context) bool {
	for ctx.Err() == nil {
		err := a.report(ctx)
		if apierrors.IsConflict(err) {
			continue
		}
		if err != nil && ctx.Err() == nil {
			a.t.Errorf("agent of node %s: reporting: error %v, want none or a conflict", a.node, err)
		}
		return ctx.Err() == nil
	}
	return false
}

func (a *agent) report(ctx context.Context) error {
	nvs := &volumesv1alpha1.NodeVolumeState{}
	if err := a.client.Get(ctx, client.ObjectKey{Name: a.node}, nvs); err != nil {
		return client.IgnoreNotFound(err)
	}
	intents := &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := a.client.List(ctx, intents, client.MatchingFields{"spec.nodeName": a.node}); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	before := nvs.DeepCopy()
	nvs.Status.Protocol.ObservedUID, nvs.Status.BootID = nvs.UID, "boot-1"
	meta.SetStatusCondition(&nvs.Status.Conditions, metav1.Condition{
		Type: volumesv1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: volumesv1alpha1.ReasonReady,
	})
	a.reportUse(nvs, intents.Items)
	a.reportKubelet(nvs)
	if same(before.Status, nvs.Status) {
		return a.reportIntents(ctx, nvs, intents.Items)
	}
	nvs.Status.Protocol.Reports++
	if err := a.client.Status().Update(ctx, nvs); err != nil {
		return err
	}
	return a.reportIntents(ctx, nvs, intents.Items)
}

// reportKubelet adds what the kubelet has mounted, and acknowledges the check where a detach waits for it.
func (a *agent) reportKubelet(nvs *volumesv1alpha1.NodeVolumeState) {
	for name := range a.mounted {
		if v := handshake.VolumeOf(nvs, name); v != nil {
			continue
		}
		line := volumesv1alpha1.NodeVolume{VolumeName: name, InUse: true, PublishedBy: volumesv1alpha1.PublisherKubelet}
		if e := handshake.AttachmentOf(nvs, name); e != nil {
			line.AttachmentUID = e.AttachmentUID
		}
		nvs.Status.Volumes = append(nvs.Status.Volumes, line)
	}
	for _, e := range nvs.Spec.Attachments {
		if e.Protocol.UnlistedGeneration > nvs.Status.ObservedGeneration && !a.skipsChecks {
			nvs.Status.ObservedGeneration = nvs.Generation
		}
	}
}

func same(x, y volumesv1alpha1.NodeVolumeStateStatus) bool {
	b, _ := json.Marshal(x) // cannot fail: these are plain fields
	c, _ := json.Marshal(y)
	return string(b) == string(c)
}

// reportUse decides which volumes are in use: those that an intent wants mounted, and
// all of before if the driver hangs.
func (a *agent) reportUse(nvs *volumesv1alpha1.NodeVolumeState, intents []volumesv1alpha1.VolumeAttachmentIntent) {
	if a.hangs {
		return
	}
	wanted := map[string]bool{}
	for i := range intents {
		if in := &intents[i]; in.DeletionTimestamp.IsZero() && status.Finalized(in) && in.Status.UniqueVolumeName != "" &&
			in.Spec.DesiredState != volumesv1alpha1.DesiredAttached {
			wanted[in.Status.UniqueVolumeName] = true
		}
	}
	var volumes []volumesv1alpha1.NodeVolume
	for _, e := range nvs.Spec.Attachments {
		v := handshake.VolumeOf(nvs, e.VolumeName)
		switch {
		case e.State != volumesv1alpha1.AttachmentAttached || !wanted[e.VolumeName]:
		case v != nil && v.AttachmentUID != e.AttachmentUID:
			// The old one is released first.
		default:
			volumes = append(volumes, volumesv1alpha1.NodeVolume{
				VolumeName: e.VolumeName, AttachmentUID: e.AttachmentUID, InUse: true, Capacity: e.Capacity,
			})
		}
	}
	nvs.Status.Volumes = volumes
}

// reportIntents acknowledges deleted intents of volumes that stay, and sets Ready where everything is done.
func (a *agent) reportIntents(
	ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState, intents []volumesv1alpha1.VolumeAttachmentIntent,
) error {
	for i := range intents {
		in := intents[i].DeepCopy()
		entry := handshake.AttachmentOf(nvs, in.Status.UniqueVolumeName)
		switch {
		case a.hangs || entry == nil || entry.State != volumesv1alpha1.AttachmentAttached:
			continue
		case !in.DeletionTimestamp.IsZero():
			if handshake.VolumeOf(nvs, in.Status.UniqueVolumeName) == nil {
				continue
			}
			status.Set(in, volumesv1alpha1.ConditionPublished, metav1.ConditionFalse, volumesv1alpha1.ReasonReleased, "released")
		case in.Spec.DesiredState == volumesv1alpha1.DesiredPublished && status.Finalized(in):
			status.Set(in, volumesv1alpha1.ConditionStaged, metav1.ConditionTrue, volumesv1alpha1.ReasonStaged, "staged")
			status.Set(in, volumesv1alpha1.ConditionPublished, metav1.ConditionTrue,
				volumesv1alpha1.ReasonPublished, "published")
			status.SetReady(in)
		}
		if sameIntent(in, &intents[i]) {
			continue
		}
		if err := a.client.Status().Update(ctx, in); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

func sameIntent(x, y *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return dump(x) == dump(y)
}

// renew writes an agent's Lease.
func (w *world) renew(t *testing.T, node string, seconds int32) {
	t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: volumesv1alpha1.InstallNamespace, Name: volumesv1alpha1.AgentLeasePrefix + node,
	}}
	set := func() {
		now := metav1.NowMicro()
		lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &node, LeaseDurationSeconds: ptr.To(seconds), RenewTime: &now}
	}
	set()
	if err := w.client.Create(t.Context(), lease); err == nil {
		return
	}
	w.change(t, lease, set)
}

// powersOff stops the agent, which renews its Lease no more, and lets that expire within a second.
func (w *world) powersOff(t *testing.T, a *agent) {
	t.Helper()
	a.stop()
	w.renew(t, a.node, 1)
}

// fallsSilent stops the agent and lets time pass: hours, for its last renewal may reach the manager after the first
// one.
func (w *world) fallsSilent(t *testing.T, c *stepClock, a *agent) {
	t.Helper()
	a.stop()
	for range 3 {
		c.advance(time.Hour)
		w.reconcileNode(t, a.node)
	}
	until(t, w, stateOf(a.node), "the agent, which is silent, counts as silent", unreachable)
}
