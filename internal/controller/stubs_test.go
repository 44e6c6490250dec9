/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package controller_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/status"
)

const attacherFinalizer = "external-attacher/stub"

// attacher plays the driver's external-attacher.
type attacher struct {
	client client.WithWatch
	poke   chan string

	mu      sync.Mutex
	failing map[string]string // persistent volume -> message
	stuck   map[string]bool   // persistent volume whose attachments stay pending
	// driver, if any, receives each attachment just before it says that it is attached, or is not any more.
	driver func(va *storagev1.VolumeAttachment, publish bool)
}

func startAttacher(t *testing.T, c client.WithWatch) *attacher {
	a := &attacher{client: c, poke: make(chan string, 100), failing: map[string]string{}, stuck: map[string]bool{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	watching := make(chan struct{})
	go func() {
		defer close(done)
		a.run(ctx, t, watching)
	}()
	<-watching
	t.Cleanup(func() { cancel(); <-done })
	return a
}

// set changes how the attacher treats a volume, and makes it check its attachments again.
func (a *attacher) set(pv, failure string, stuck bool) {
	a.mu.Lock()
	a.failing[pv], a.stuck[pv] = failure, stuck
	a.mu.Unlock()
	a.poke <- pv
}

func (a *attacher) run(ctx context.Context, t *testing.T, watching chan struct{}) {
	w, err := a.client.Watch(ctx, &storagev1.VolumeAttachmentList{})
	if err != nil {
		t.Errorf("attacher: %v", err)
		close(watching)
		return
	}
	defer w.Stop()
	close(watching)
	for {
		select {
		case <-ctx.Done():
			return
		case pv := <-a.poke:
			list := &storagev1.VolumeAttachmentList{}
			if err := a.client.List(ctx, list); err != nil {
				continue
			}
			for i := range list.Items {
				if va := &list.Items[i]; va.Spec.Attacher == driverName && *va.Spec.Source.PersistentVolumeName == pv {
					a.handle(ctx, t, &list.Items[i])
				}
			}
		case e, open := <-w.ResultChan():
			if !open {
				return
			}
			if va, ok := e.Object.(*storagev1.VolumeAttachment); ok && e.Type != watch.Deleted {
				a.handle(ctx, t, va)
			}
		}
	}
}

func (a *attacher) handle(ctx context.Context, t *testing.T, va *storagev1.VolumeAttachment) {
	if va.Spec.Attacher != driverName {
		return
	}
	pv := *va.Spec.Source.PersistentVolumeName
	a.mu.Lock()
	failure, stuck, driver := a.failing[pv], a.stuck[pv], a.driver
	a.mu.Unlock()
	if driver == nil {
		driver = func(*storagev1.VolumeAttachment, bool) {}
	}
	var err error
	switch {
	case stuck:
	case va.DeletionTimestamp != nil:
		if slices.Contains(va.Finalizers, attacherFinalizer) {
			driver(va, false)
			left := slices.DeleteFunc(slices.Clone(va.Finalizers), func(f string) bool { return f == attacherFinalizer })
			err = a.patch(ctx, va, map[string]any{"metadata": map[string]any{"finalizers": left, "resourceVersion": va.ResourceVersion}}, false)
		}
	case !slices.Contains(va.Finalizers, attacherFinalizer):
		err = a.patch(ctx, va, map[string]any{"metadata": map[string]any{
			"finalizers": append(slices.Clone(va.Finalizers), attacherFinalizer), "resourceVersion": va.ResourceVersion,
		}}, false)
	case failure != "" && va.Status.AttachError == nil:
		err = a.patch(ctx, va, map[string]any{"status": map[string]any{
			"attached": false, "attachError": map[string]any{"time": metav1.Now(), "message": failure, "errorCode": 13},
		}}, true)
	case failure == "" && !va.Status.Attached:
		driver(va, true)
		err = a.patch(ctx, va, map[string]any{"status": map[string]any{
			"attached": true, "attachError": nil, "attachmentMetadata": map[string]string{"device": "/dev/" + pv},
		}}, true)
	}
	if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		t.Errorf("attacher: %v", err)
	}
}

func (a *attacher) patch(ctx context.Context, va *storagev1.VolumeAttachment, body map[string]any, statusToo bool) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	va = va.DeepCopy()
	p := client.RawPatch("application/merge-patch+json", b)
	if statusToo {
		return a.client.Status().Patch(ctx, va, p)
	}
	return a.client.Patch(ctx, va, p)
}

// agent plays a node's agent: it takes volumes into use that its intents want, and lets them go.
type agent struct {
	client client.WithWatch
	node   string
	t      *testing.T
	stop   func()

	mu sync.Mutex
	// keeps: the volumes are not let go of, as if the driver hung.
	keeps bool
	// blind: the agent does not check its node when it is asked to.
	blind bool
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
	states, err := w.client.Watch(ctx, &volumesv1alpha1.NodeVolumeStateList{}, client.MatchingFields{"metadata.name": node})
	if err != nil {
		t.Fatalf("agent of %s: %v", node, err)
	}
	intents, err := w.client.Watch(ctx, &volumesv1alpha1.VolumeAttachmentIntentList{}, client.MatchingFields{"spec.nodeName": node})
	if err != nil {
		t.Fatalf("agent of %s: %v", node, err)
	}
	go func() {
		defer close(done)
		defer states.Stop()
		defer intents.Stop()
		var renewing sync.WaitGroup
		defer renewing.Wait()
		renewing.Go(func() { renewLease(ctx, t, a.client, node, ahead) })
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
func (w *world) keepRenewing(t *testing.T, node string) {
	ctx, cancel := context.WithCancel(t.Context())
	var renewing sync.WaitGroup
	t.Cleanup(func() { cancel(); renewing.Wait() })
	renewing.Go(func() { renewLease(ctx, t, w.client, node, 0) })
}

// renewLease renews the Lease of a node's agent until ctx ends. It does so more often than an agent: a manager that
// starts counts what an agent has reported only once it has seen a renewal. A Lease that a test has written keeps its
// duration.
func renewLease(ctx context.Context, t *testing.T, c client.Client, node string, ahead time.Duration) {
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
	}, 200*time.Millisecond)
}

// set changes how the agent behaves.
func (a *agent) set(change func()) {
	a.mu.Lock()
	change()
	a.mu.Unlock()
	a.poke <- struct{}{}
}

// reconcile brings what the agent says up to date; false when the agent has been stopped.
func (a *agent) reconcile(ctx context.Context) bool {
	for ctx.Err() == nil {
		err := a.report(ctx)
		if apierrors.IsConflict(err) {
			continue
		}
		if err != nil && ctx.Err() == nil {
			a.t.Errorf("agent of %s: %v", a.node, err)
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
	nvs.Status.ObservedUID, nvs.Status.BootID = nvs.UID, "boot-1"
	meta.SetStatusCondition(&nvs.Status.Conditions, metav1.Condition{Type: volumesv1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: volumesv1alpha1.ReasonReady})
	a.use(nvs, intents.Items)
	a.look(nvs)
	if same(before.Status, nvs.Status) {
		return a.speak(ctx, nvs, intents.Items)
	}
	nvs.Status.Reports++
	if err := a.client.Status().Update(ctx, nvs); err != nil {
		return err
	}
	return a.speak(ctx, nvs, intents.Items)
}

// look adds what the kubelet has mounted, and acknowledges the check where a detach waits for it.
func (a *agent) look(nvs *volumesv1alpha1.NodeVolumeState) {
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
		if e.UnlistedGeneration > nvs.Status.ObservedGeneration && !a.blind {
			nvs.Status.ObservedGeneration = nvs.Generation
		}
	}
}

func same(x, y volumesv1alpha1.NodeVolumeStateStatus) bool {
	b, _ := json.Marshal(x) // cannot fail: these are plain fields
	c, _ := json.Marshal(y)
	return string(b) == string(c)
}

// use decides which volumes are in use: those that an intent wants mounted, and those that cannot be let go of.
func (a *agent) use(nvs *volumesv1alpha1.NodeVolumeState, intents []volumesv1alpha1.VolumeAttachmentIntent) {
	if a.keeps {
		return
	}
	wanted := map[string]bool{}
	for i := range intents {
		if in := &intents[i]; in.DeletionTimestamp.IsZero() && status.Finalized(in) && in.Status.UniqueVolumeName != "" && in.Spec.DesiredState != volumesv1alpha1.DesiredAttached {
			wanted[in.Status.UniqueVolumeName] = true
		}
	}
	var volumes []volumesv1alpha1.NodeVolume
	for _, e := range nvs.Spec.Attachments {
		v := handshake.VolumeOf(nvs, e.VolumeName)
		switch {
		case e.State != volumesv1alpha1.AttachmentAttached || !wanted[e.VolumeName]:
		case v != nil && v.AttachmentUID != e.AttachmentUID:
			// The old one is let go of first.
		default:
			volumes = append(volumes, volumesv1alpha1.NodeVolume{VolumeName: e.VolumeName, AttachmentUID: e.AttachmentUID, InUse: true, Capacity: e.Capacity})
		}
	}
	nvs.Status.Volumes = volumes
}

// speak acknowledges deleted intents of volumes that stay, and says Ready where all is well.
func (a *agent) speak(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState, intents []volumesv1alpha1.VolumeAttachmentIntent) error {
	for i := range intents {
		in := intents[i].DeepCopy()
		entry := handshake.AttachmentOf(nvs, in.Status.UniqueVolumeName)
		switch {
		case a.keeps || entry == nil || entry.State != volumesv1alpha1.AttachmentAttached:
			continue
		case !in.DeletionTimestamp.IsZero():
			if handshake.VolumeOf(nvs, in.Status.UniqueVolumeName) == nil {
				continue
			}
			status.Set(in, volumesv1alpha1.ConditionPublished, metav1.ConditionFalse, volumesv1alpha1.ReasonReleased, "released")
		case in.Spec.DesiredState == volumesv1alpha1.DesiredPublished && status.Finalized(in):
			status.Set(in, volumesv1alpha1.ConditionStaged, metav1.ConditionTrue, volumesv1alpha1.ReasonStaged, "staged")
			status.Set(in, volumesv1alpha1.ConditionPublished, metav1.ConditionTrue, volumesv1alpha1.ReasonPublished, "published")
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

func dump(o any) string {
	b, err := json.MarshalIndent(o, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(b)
}
