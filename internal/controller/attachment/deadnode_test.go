/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/cached"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/controller/liveness/livenesstest"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/controller/volumesattached"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/machine"
)

// deadBeforeItLooked is a volume in mode Replace that was unlisted on node a, whose agent died before it checked once
// more.
func deadBeforeItLooked(
	t *testing.T, more ...client.Object,
) (look func() time.Duration, evidence func() volumesv1alpha1.EvidenceType) {
	t.Helper()
	pv := persistentVolume()
	name := volume.UniqueNameOf(pv)
	state := reported("a")
	state.Status.ObservedGeneration = 1
	state.Spec.Attachments = []volumesv1alpha1.NodeAttachment{{
		VolumeName: name, AttachmentUID: "1", AttachmentName: "va", State: volumesv1alpha1.AttachmentDetaching,
		Protocol: volumesv1alpha1.AttachmentProtocol{UnlistedGeneration: 2},
		Evidence: &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceAgentReleased},
	}}
	state.Status.Node.Absence = &volumesv1alpha1.AbsenceObservation{Observed: noon}
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Name: "va", UID: "1", Annotations: map[string]string{volumesv1alpha1.HoldAnnotation: "now"},
		},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "d", NodeName: "a", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv.Name},
		},
	}
	c, now := over(t, append(more, pv, state, va)...)
	c.Replace, c.Protocol.Kubelet, c.Events = true, true, events.NewFakeRecorder(100)
	c.Lister = volumesattached.New(c.Client, c.Reader, c.Writer, nil)
	look = func() time.Duration {
		t.Helper()
		r, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
		if err != nil {
			t.Fatal(err)
		}
		now.SetTime(now.Now().Add(r.RequeueAfter))
		return r.RequeueAfter
	}
	evidence = func() volumesv1alpha1.EvidenceType {
		t.Helper()
		nvs, err := c.readState(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if e := handshake.AttachmentOf(nvs, name); e != nil {
			return e.Evidence.Type
		}
		return ""
	}
	return look, evidence
}

func TestTheVolumeOfANodeThatIsGoneBeforeItsAgentCheckedIsDetached(t *testing.T) {
	look, evidence := deadBeforeItLooked(t)
	for wait := look(); wait > 0; {
		wait = look()
	}
	if got := evidence(); got != volumesv1alpha1.EvidenceNodeGone {
		t.Errorf("evidence of the detach: %s, want %s, after which the entry ends", got, volumesv1alpha1.EvidenceNodeGone)
	}
}

func TestNoTimeIsMeasuredForAnAgentThatHasToCheck(t *testing.T) {
	look, evidence := deadBeforeItLooked(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	if again, got := look(), evidence(); again != 0 || got != volumesv1alpha1.EvidenceAgentReleased {
		t.Errorf("next pass in %s, evidence %s; want no requeue and %s", again, got, volumesv1alpha1.EvidenceAgentReleased)
	}
}

func TestAnAttachmentOfUpstreamToANodeThatIsGoneIsDetached(t *testing.T) {
	pv := persistentVolume()
	name := volume.UniqueNameOf(pv)
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: volume.AttachmentName("d", "h", "a"), UID: "1"},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "d", NodeName: "a", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv.Name},
		},
	}
	// The state was made for the attachment's sake; no agent ever reported under it.
	state := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "state"}}
	c, now := over(t, pv, va, state)
	c.Replace, c.Protocol.Kubelet, c.Events = true, true, events.NewFakeRecorder(100)
	c.Lister = volumesattached.New(c.Client, c.Reader, c.Writer, nil)
	for again := time.Duration(1); again > 0; {
		r, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
		if err != nil {
			t.Fatal(err)
		}
		again = r.RequeueAfter
		now.SetTime(now.Now().Add(again))
	}
	nvs, err := c.readState(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if e := handshake.AttachmentOf(nvs, name); e == nil || e.Evidence.Type != volumesv1alpha1.EvidenceNodeGone {
		t.Errorf("entry of volume %s on node a: %+v, want evidence %s", name, e, volumesv1alpha1.EvidenceNodeGone)
	}
}

// TestWhatTheKubeletListedInUseStaysWhenItsNodeGoes: beside upstream a kubelet mounts for a pod what an intent has
// attached, after it has listed that. The agent had reported the volume not in use.
func TestWhatTheKubeletListedInUseStaysWhenItsNodeGoes(t *testing.T) {
	for _, test := range []struct {
		name string
		// silent is for how long the agent had been when the Node went.
		silent time.Duration
		lists  bool
		stays  bool
	}{
		{"the agent had fallen silent before", liveness.DefaultDuration, true, true},
		{"the agent may have died before", liveness.DefaultDuration - time.Second, true, true},
		{"it did not list it, long after the machine had ended", time.Hour, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := reportedUnused(t)
			w.now.SetTime(w.now.Now().Add(test.silent))
			node := w.node()
			if test.lists {
				node.Status.VolumesInUse = []corev1.UniqueVolumeName{corev1.UniqueVolumeName(w.volume)}
			}
			w.c.Tracker.Departed(node)
			<-w.heard
			w.now.SetTime(w.now.Now().Add(time.Minute))
			w.reconcile(t)
			if va := liveAttachment(t, w.c, "va-1"); (va != nil) != test.stays || test.stays && !decision.IsHeld(va) {
				t.Errorf("attachment va-1 to node a: %+v, want it there, and held: %t", va, test.stays)
			}
		})
	}
}

// unused is a volume that an intent had attached to node a, and that its agent has reported as not in use.
type unused struct {
	c      *Controller
	now    *testingclock.FakePassiveClock
	api    *controllertest.API
	volume string
	lease  *coordinationv1.Lease
	// heard has node a each time that it is woken.
	heard chan string
}

func reportedUnused(t *testing.T, objects ...client.Object) *unused {
	t.Helper()
	pv, state := persistentVolume(), entryIn(reported("a"), isThere, "1", "")
	w := &unused{volume: volume.UniqueNameOf(pv), lease: renewedLease("a", noon), heard: make(chan string, 1)}
	state.Spec.Attachments[0].VolumeName = w.volume
	state.Status.Machine = machine.New("11111111-2222-4333-8444-555555555555", "")
	w.c, w.now, w.api = overAPI(t, append(objects, pv, state, attachmentOf("va-1", "1"), w.lease)...)
	w.c.Events, w.c.Writer.IsCurrent = events.NewFakeRecorder(100), w.c.Tracker.IsCurrent
	livenesstest.Listen(t, w.c.Tracker, w.c.Client.(client.WithWatch))
	wake := func(_ context.Context, node string, _ queue) { w.heard <- node }
	if err := w.c.Tracker.Listen(wake).Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	w.renew(t, later)
	return w
}

// node is the one that the agent has reported from.
func (w *unused) node() *corev1.Node {
	node := nodeNamed("a")
	node.Annotations = map[string]string{cached.ManagedNodeAnnotation: "true"}
	node.Status.NodeInfo.SystemUUID = "11111111-2222-4333-8444-555555555555"
	return node
}

// renew the agent's Lease, and wait until that has woken the node.
func (w *unused) renew(t *testing.T, at metav1.Time) {
	t.Helper()
	w.lease.Spec.RenewTime = &metav1.MicroTime{Time: at.Time}
	if err := w.c.Client.Update(t.Context(), w.lease); err != nil {
		t.Fatal(err)
	}
	<-w.heard
}

func (w *unused) reconcile(t *testing.T) {
	t.Helper()
	for range 3 {
		if _, err := w.c.Reconcile(t.Context(), reconcile.Request{
			NamespacedName: client.ObjectKey{Name: w.volume}}); err != nil {
			t.Fatal(err)
		}
		w.api.Sync()
	}
}

// TestTheReportOfANodesEarlierLifeIsNoneOfWhatItsKubeletMounted: the kubelet of a Node that was registered again lists
// nothing before it has found what it had mounted, and that of another machine lists its own volumes.
func TestTheReportOfANodesEarlierLifeIsNoneOfWhatItsKubeletMounted(t *testing.T) {
	again := (&unused{}).node()
	again.UID = "again"
	other := again.DeepCopy()
	other.Status.NodeInfo.SystemUUID = "66666666-7777-4888-8999-aaaaaaaaaaaa"
	for _, test := range []struct {
		name string
		node *corev1.Node
		// seen: this process saw the Node go and come back.
		seen bool
		// heard: the agent is, since then.
		heard bool
		stays bool
	}{
		{name: "the Node came back", node: again, seen: true, stays: true},
		{name: "it did, and its agent was heard", node: again, seen: true, heard: true},
		{name: "another machine registered it", node: other, stays: true},
		{name: "it was always there", node: again},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := reportedUnused(t, test.node)
			w.now.SetTime(w.now.Now().Add(time.Hour))
			nodes := &informertest.FakeInformers{Scheme: controllertest.Scheme()}
			if err := w.c.Tracker.WatchDepartures(t.Context(), nodes); err != nil {
				t.Fatal(err)
			}
			informer, err := nodes.FakeInformerFor(t.Context(), &corev1.Node{})
			if err != nil {
				t.Fatal(err)
			}
			if test.seen {
				informer.Delete(w.node())
				<-w.heard
				informer.Add(test.node)
			}
			if test.heard {
				w.renew(t, metav1.NewTime(later.Add(time.Minute)))
			}
			w.reconcile(t)
			if va := liveAttachment(t, w.c, "va-1"); (va != nil) != test.stays || test.stays && !decision.IsHeld(va) {
				t.Errorf("attachment va-1 to node a: %+v, want it there, and held: %t", va, test.stays)
			}
		})
	}
}
