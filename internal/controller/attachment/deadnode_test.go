/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/cached"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/controller/liveness/livenesstest"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/controller/volumesattached"
	"github.com/hawser-io/hawser/internal/handshake"
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
			pv, state, lease := persistentVolume(), entryIn(reported("a"), isThere, "1", ""), renewedLease("a", noon)
			name := volume.UniqueNameOf(pv)
			state.Spec.Attachments[0].VolumeName = name
			c, now, api := overAPI(t, pv, state, attachmentOf("va-1", "1"), lease)
			c.Events, c.Writer.IsCurrent = events.NewFakeRecorder(100), c.Tracker.IsCurrent
			livenesstest.Listen(t, c.Tracker, c.Client.(client.WithWatch))
			heard := make(chan string, 1)
			if err := c.Tracker.Listen(func(_ context.Context, node string, _ queue) { heard <- node }).Start(t.Context(),
				nil); err != nil {
				t.Fatal(err)
			}
			lease.Spec.RenewTime = &metav1.MicroTime{Time: later.Time}
			if err := c.Client.Update(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
			<-heard
			now.SetTime(now.Now().Add(test.silent))
			node := nodeNamed("a")
			node.Annotations = map[string]string{cached.ManagedNodeAnnotation: "true"}
			if test.lists {
				node.Status.VolumesInUse = []corev1.UniqueVolumeName{corev1.UniqueVolumeName(name)}
			}
			c.Tracker.Departed(node)
			<-heard
			now.SetTime(now.Now().Add(time.Minute))
			for range 3 {
				if _, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}); err != nil {
					t.Fatal(err)
				}
				api.Sync()
			}
			if va := liveAttachment(t, c, "va-1"); (va != nil) != test.stays || test.stays && !decision.IsHeld(va) {
				t.Errorf("attachment va-1 to node a: %+v, want it there, and held: %t", va, test.stays)
			}
		})
	}
}
