/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/batch"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/fences"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

// over makes a controller whose cache and live reads find these objects, whatever the facts of a pass say. What is
// written afterwards is in the API server alone: a test in which the cache follows asks for that with overAPI.
func over(t *testing.T, objects ...client.Object) (*Controller, *testingclock.FakePassiveClock) {
	t.Helper()
	controller, now, _ := overAPI(t, objects...)
	return controller, now
}

// overAPI is over, with the API server of which the controller has a cache.
func overAPI(
	t *testing.T, objects ...client.Object,
) (*Controller, *testingclock.FakePassiveClock, *controllertest.API) {
	t.Helper()
	api := controllertest.New(t, fake.NewClientBuilder().WithScheme(controllertest.Scheme()).WithStatusSubresource(
		&volumesv1alpha1.VolumeAttachmentIntent{}, &volumesv1alpha1.NodeVolumeState{},
	), objects...)
	now := testingclock.NewFakePassiveClock(metav1.Now().Time)
	controller := &Controller{Tracker: liveness.NewTracker(now), Clock: now, ownWrites: ownWrites{clock: now},
		Policies: inForce{}, Fences: &fences.Watcher{}, Lifts: &fences.Lifts{}}
	controller.users = batch.NewReads(nil, controller.readUsers)
	connect(controller, api.Client, named(t, api.Live))
	return controller, now, api
}

// connect has the controller read its cache and write with one client, and read live with another.
func connect(c *Controller, cl client.Client, reader client.Reader) {
	c.Client, c.Reader, c.Writer = cl, reader, &nodestate.Writer{Client: cl, Reader: reader}
	c.Observations = &nodestate.Writer{Client: cl, Reader: reader, OfStatus: true}
	c.Locks = exclusive.New(cl, reader, c.Clock, nil)
}

// named is a client that refuses to read an object without a name, as a real one does.
func named(t *testing.T, inner client.WithWatch) client.WithWatch {
	return interceptor.NewClient(inner, interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if key.Name == "" {
				t.Errorf("a %T without a name was read, want each read to have one", o)
			}
			return w.Get(ctx, key, o, opts...)
		},
	})
}

// inForce is admission policies that are in force.
type inForce struct{}

func (inForce) Missing() string { return "" }

func (inForce) Changed() <-chan event.GenericEvent { return nil }

// reported is the state of a node whose agent has reported.
func reported(name string) *volumesv1alpha1.NodeVolumeState {
	return &volumesv1alpha1.NodeVolumeState{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "state"},
		Status: volumesv1alpha1.NodeVolumeStateStatus{
			Protocol: volumesv1alpha1.AgentProtocol{ObservedUID: "state"},
		},
	}
}

// silenced is nvs after the manager has marked its agent as unreachable, and recorded the taint of outOfService.
func silenced(nvs *volumesv1alpha1.NodeVolumeState) *volumesv1alpha1.NodeVolumeState {
	nvs.Status.Conditions = []metav1.Condition{{
		Type: volumesv1alpha1.ConditionReady, Status: metav1.ConditionUnknown,
		Reason: volumesv1alpha1.ReasonAgentUnreachable,
	}}
	nvs.Status.Node.OutOfService = &volumesv1alpha1.OutOfServiceObservation{Effect: corev1.TaintEffectNoExecute}
	return nvs
}

// notHeard has the controller itself not hear the node's agent for as long as it takes.
func notHeard(c *Controller, now *testingclock.FakePassiveClock, node string) {
	c.Tracker.Silence(node)
	now.SetTime(now.Now().Add(liveness.DefaultDuration))
}

// lockObject is the ConfigMap that has the volume's lock.
func lockObject(volumeName string, lock exclusive.Lock) *corev1.ConfigMap {
	key := exclusive.Key(volumeName)
	locks := fmt.Sprintf(`{"writes": 1, "locks": {%q: {"node": %q, "movedFrom": %q, "write": 1}}}`, volumeName,
		lock.Holder, lock.MovedFrom)
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "locks",
		Labels: map[string]string{volumesv1alpha1.ExclusiveLocksLabel: "true"}},
		Data: map[string]string{"locks.json": locks}}
}

func TestAnAttachmentCreatedAgainWithoutAHoldIsNotUsed(t *testing.T) {
	for _, held := range []bool{true, false} {
		live := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va-1", UID: "2"},
			Status: storagev1.VolumeAttachmentStatus{Attached: true}}
		if held {
			live.Annotations = map[string]string{volumesv1alpha1.HoldAnnotation: "now"}
		}
		n := on("a", wanted("i"), va("1", "held", "attached"))
		shared := persistentVolume()
		shared.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		n.Wanted[0].Result.Source = volume.SourceOf(shared)
		c, _ := over(t, reported("a"), live, shared)
		if err := c.confirmAttached(t.Context(),
			&decision.Facts{Volume: "v", AttachRequired: true, Nodes: []*decision.Node{n}}, n, &n.Attachments[0]); err != nil {
			t.Fatal(err)
		}
		if attached := n.State.Entry.State == handshake.Attached; attached != held {
			t.Errorf("attachment va-1, created again with a hold %t: volume v on node a is Attached %t, want %t", held, attached,
				held)
		}
	}
}

func TestAnAgentWhoseLeaseIsRenewedIsNotGoneBecauseAWatchLags(t *testing.T) {
	renewed := metav1.NewMicroTime(time.Now().Truncate(time.Microsecond))
	c, now := over(t, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: volumesv1alpha1.InstallNamespace, Name: volumesv1alpha1.AgentLeasePrefix + "a",
		},
		Spec: coordinationv1.LeaseSpec{RenewTime: &renewed},
	})
	n := on("a")
	n.Missing = true
	c.Tracker.Silence("a")
	now.SetTime(now.Now().Add(time.Hour))
	nvs := departed(silenced(reported("a")), metav1.Time(renewed))
	if evidence, err := c.confirmEvidence(t.Context(), n, nvs); evidence != nil ||
		err != nil {
		t.Errorf("node a, whose agent's Lease was renewed: evidence %v, error %v; want none", evidence, err)
	}
	if n.EvidenceDue <= decision.GoneAfter {
		t.Errorf("evidence against node a is due in %s, want above %s", n.EvidenceDue, decision.GoneAfter)
	}
	// A Lease that stays as it is ends in evidence all the same.
	now.SetTime(now.Now().Add(n.EvidenceDue))
	if evidence, err := c.confirmEvidence(t.Context(), n, nvs); evidence == nil ||
		evidence.Type != volumesv1alpha1.EvidenceNodeGone || err != nil {
		t.Errorf("node a, whose agent's Lease stays as it is: evidence %v, error %v; want NodeGone", evidence, err)
	}
}

func TestAnOutageIsNoEvidenceAgainstANode(t *testing.T) {
	c, now := over(t, reported("a"), unreadyNode("a", noon))
	down := true
	c.Reader = interceptor.NewClient(c.Reader.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if down {
				return errors.New("the API server is down")
			}
			return w.Get(ctx, key, o, opts...)
		},
	})
	c.Writer.Reader, c.Observations.Reader = c.Reader, c.Reader
	c.Writer.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		Update: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if down {
				return errors.New("the API server is down")
			}
			return w.Update(ctx, o, opts...)
		},
	})
	n := on("a", leaving("i*"), va("1", "held", "attached"), entry(handshake.Attached, "1"), inUse("1"), tainted)
	n.Leaving[0].Object.Spec.DetachPolicy = &volumesv1alpha1.DetachPolicy{
		ForceAfter: metav1.Duration{Duration: 6 * time.Minute},
	}
	c.unready.Observe("a", since(noon), 5*time.Minute, time.Minute, now.Now())
	now.SetTime(now.Now().Add(time.Hour))
	step := decision.Step{Act: decision.MarkDetaching, Node: n, Attachment: &n.Attachments[0], Evidence: true}
	if err := c.markDetaching(t.Context(), &decision.Facts{Volume: "v", Nodes: []*decision.Node{n}},
		step); err == nil {
		t.Fatal("marking volume v on node a as detaching during an outage: no error, want one")
	}
	down = false
	if evidence, err := c.confirmEvidence(t.Context(), n, silenced(reported("a"))); evidence != nil ||
		err != nil {
		t.Errorf("node a after an outage of the API server: evidence %v, error %v; want none", evidence, err)
	}
	if n.EvidenceDue != time.Minute {
		t.Errorf("evidence against node a after the outage is due in %s, want 1m", n.EvidenceDue)
	}
}

func TestTheEvidenceReportsWhatTheReleaseRestsOn(t *testing.T) {
	for _, test := range []struct {
		name    string
		mode    corev1.PersistentVolumeMode
		release types.UID
		table   bool
		search  bool
	}{
		{name: "the mount table alone", release: "1", table: true},
		{name: "the kernel, of this attachment", release: "another"},
		{name: "a search of all processes", mode: corev1.PersistentVolumeBlock, search: true},
	} {
		state := reported("a")
		state.Spec.Attachments = []volumesv1alpha1.NodeAttachment{
			{VolumeName: "v", AttachmentUID: "1", State: volumesv1alpha1.AttachmentAttached, VolumeMode: test.mode},
		}
		state.Status.MountTableReleases = []volumesv1alpha1.MountTableRelease{
			{VolumeName: "v", AttachmentUID: test.release},
		}
		c, _ := over(t, state)
		c.Events = events.NewFakeRecorder(1)
		n := on("a", va("1", "held", "attached"), entry(handshake.Attached, "1"))
		facts := &decision.Facts{Volume: "v", Nodes: []*decision.Node{n}}
		if err := c.markDetaching(t.Context(), facts,
			decision.Step{Act: decision.MarkDetaching, Node: n, Attachment: &n.Attachments[0]}); err != nil {
			t.Fatal(err)
		}
		nvs, err := c.readState(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		e := handshake.AttachmentOf(nvs, "v").Evidence
		if e == nil || e.Type != volumesv1alpha1.EvidenceAgentReleased || e.MountTableOnly != test.table ||
			strings.Contains(e.Message, "mount table") != test.table ||
			strings.Contains(e.Message, "search of all processes") != test.search {
			t.Errorf("evidence that rests on %s: %+v; want AgentReleased that says so", test.name, e)
		}
	}
}

func TestAPodThatTheCacheDoesNotShowYetKeepsItsAttachment(t *testing.T) {
	pod := func(name, node, claim string, phase corev1.PodPhase) *corev1.Pod {
		source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       corev1.PodSpec{NodeName: node, Volumes: []corev1.Volume{{Name: "data", VolumeSource: source}}},
			Status:     corev1.PodStatus{Phase: phase},
		}
	}
	for _, c := range []struct {
		name string
		pod  *corev1.Pod
		free bool
	}{
		{"of the claim on the node", pod("p", "a", "data", corev1.PodPending), false},
		{"of another claim", pod("p", "a", "other", corev1.PodPending), true},
		{"on another node", pod("p", "b", "data", corev1.PodPending), true},
		{"that has ended", pod("p", "a", "data", corev1.PodSucceeded), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			controller, _ := over(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, c.pod)
			f := &decision.Facts{Volume: "v", Bound: []client.ObjectKey{{Namespace: "default", Name: "data"}}}
			if free, _, err := controller.freeOfPods(t.Context(), f, on("a")); free != c.free || err != nil {
				t.Errorf("volume v on node a with a pod %s: free %t, error %v; want free %t", c.name, free, err, c.free)
			}
		})
	}
}

func TestTheReadsForADeleteRunAtTheSameTime(t *testing.T) {
	c, _ := over(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	node, pods := make(chan struct{}), make(chan struct{})
	// Each answer comes once the other was asked for.
	after := func(mine, other chan struct{}) error {
		close(mine)
		select {
		case <-other:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.Reader = interceptor.NewClient(c.Reader.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			return errors.Join(after(node, pods), inner.Get(ctx, key, o, opts...))
		},
		List: func(ctx context.Context, inner client.WithWatch, o client.ObjectList, opts ...client.ListOption) error {
			return errors.Join(after(pods, node), inner.List(ctx, o, opts...))
		},
	})
	f := &decision.Facts{Volume: "v", Bound: []client.ObjectKey{{Namespace: "default", Name: "data"}}}
	if free, _, err := c.freeOfPods(ctx, f, on("a")); !free || err != nil {
		t.Errorf("volume v on node a, with reads at the same time: free %t, error %v; want free", free, err)
	}
}

func TestANodeWaitsForTheFenceOfAMoveThatWasMeantForAnother(t *testing.T) {
	old := reported("a")
	old.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: "v", AttachmentUID: "1", InUse: true}}
	c, _ := over(t, lockObject("v", exclusive.Lock{Holder: "b", MovedFrom: "a"}), old)
	f := &decision.Facts{Volume: "v", Exclusive: true, AttachRequired: true, Lock: handshake.Lock{
		Exists: true, Holder: "b", MovedFrom: "a",
	}, Nodes: []*decision.Node{on("a"), on("b"), on("c", wanted("i"))}}
	n := f.Nodes[2]
	if taken, err := c.takeLock(t.Context(), f, n); taken || err != nil {
		t.Fatalf("lock of volume v, which moves from a to b, for node c: taken %t, error %v; want neither", taken, err)
	}
	if steps := electAndDecide(f, handshake.Protocol{}); len(steps) != 0 {
		t.Errorf("steps in the pass in which node c was refused: %s, want none", describeStep(steps[0]))
	}
	if n.Wait == nil || n.Wait.Reason != volumesv1alpha1.ReasonVolumeInUse {
		t.Errorf("node c: wait %+v, want reason %s", n.Wait, volumesv1alpha1.ReasonVolumeInUse)
	}
}

// slowClock is of a process to which every answer takes longer than what a DELETE rests on may be old.
type slowClock struct{ *testingclock.FakePassiveClock }

func (s slowClock) Since(t time.Time) time.Duration {
	s.SetTime(s.Now().Add(2 * freshness))
	return s.FakePassiveClock.Since(t)
}

func TestADeleteDecidedOnAnOldReadIsRetriedAfterABackoff(t *testing.T) {
	pv := persistentVolume()
	name := volume.UniqueNameOf(pv)
	state := reported("a")
	state.Spec.Attachments = []volumesv1alpha1.NodeAttachment{{
		VolumeName: name, AttachmentUID: "1", AttachmentName: "va", State: volumesv1alpha1.AttachmentDetaching,
		Evidence: &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceAgentReleased},
	}}
	attachment := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "va", UID: "1"},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "d", NodeName: "a", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv.Name},
		},
	}
	c, now := over(t, pv, state, attachment, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	reads := 0
	c.Reader = interceptor.NewClient(c.Reader.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if _, ok := o.(*corev1.Node); ok {
				reads++
			}
			return inner.Get(ctx, key, o, opts...)
		},
	})
	c.Clock = slowClock{now}
	if _, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}); err == nil {
		t.Errorf("pass of volume %s, whose delete rests on an old read: no error, want one, so that it is retried", name)
	}
	if va, err := c.readAttachment(t.Context(), "va"); va == nil || err != nil || reads != 1 {
		t.Errorf("attachment va after %d reads of Node a, answered late: %v, error %v; want it kept after 1 read", reads, va,
			err)
	}
	c.Clock = now
	if _, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}); err != nil {
		t.Error(err)
	}
	if va, err := c.readAttachment(t.Context(), "va"); va != nil || err != nil {
		t.Errorf("attachment va after the next pass: %v, error %v; want it deleted", va, err)
	}
}

func TestANodeThatReportsOrIsDeletedEnqueuesItsLastVolumes(t *testing.T) {
	c := onlyCached(t, lockObject("held", exclusive.Lock{Holder: "a"}),
		lockObject("moved", exclusive.Lock{Holder: "b", MovedFrom: "a"}),
		lockObject("elsewhere", exclusive.Lock{Holder: "b"}))
	silent := reported("a")
	silent.Status.Protocol.ObservedUID = ""
	for _, change := range []struct {
		name          string
		before, after client.Object
	}{
		{"reports", silent, reported("a")},
		{"goes", silent, nil},
		{"is absent, as is recorded", reported("a"), departed(reported("a"), noon)},
	} {
		t.Run(change.name, func(t *testing.T) {
			q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
			defer q.ShutDown()
			c.stateChanged(t.Context(), change.before, change.after, q)
			var woken []string
			for q.Len() > 0 {
				r, _ := q.Get()
				woken = append(woken, r.Name)
			}
			slices.Sort(woken)
			if !slices.Equal(woken, []string{"held", "moved"}) {
				t.Errorf("volumes that node a wakes when it %s: %v, want held and moved", change.name, woken)
			}
		})
	}
}
