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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/controller/liveness/livenesstest"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/install"
)

// unheard is an intent that is being deleted on node a, whose state shows nothing of the volume and to which no agent
// has reported.
func unheard() (*volumesv1alpha1.VolumeAttachmentIntent, *volumesv1alpha1.NodeVolumeState, []client.Object) {
	pv := persistentVolume()
	pv.UID = "pv-uid"
	i := intentNamed("i").Object
	i.UID, i.Finalizers = "uid-i", []string{volumesv1alpha1.ReleaseFinalizer}
	i.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	i.Spec.NodeName, i.Status.VolumeName = "a", pv.Name
	i.Status.UniqueVolumeName = volume.UniqueNameOf(pv)
	state := reported("a")
	state.Status = volumesv1alpha1.NodeVolumeStateStatus{}
	return i, state, []client.Object{pv, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
}

// attachmentOf the volume to node a, which Hawser counts on.
func attachmentOf(name string, uid types.UID) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: uid, Annotations: map[string]string{volumesv1alpha1.HoldAnnotation: "now"},
		},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "d", NodeName: "a", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("pv")},
		},
		Status: storagev1.VolumeAttachmentStatus{Attached: true},
	}
}

func agentLease(restored bool) *coordinationv1.Lease {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: install.Namespace(), Name: volumesv1alpha1.AgentLeasePrefix + "a",
	}}
	if restored {
		lease.Name = volumesv1alpha1.AgentLeasePrefix + "b"
		lease.Annotations = map[string]string{volumesv1alpha1.LeaseRestoredAnnotation: "true"}
	}
	return lease
}

func TestAnIntentOnANodeThatNeverHadAnAgentIsReleased(t *testing.T) {
	began := func(state *volumesv1alpha1.NodeVolumeState) {
		state.Status.Protocol = volumesv1alpha1.AgentProtocol{Session: 1, Reports: 1, ObservedUID: state.UID}
	}
	for name, test := range map[string]struct {
		change func(i *volumesv1alpha1.VolumeAttachmentIntent, state *volumesv1alpha1.NodeVolumeState)
		more   []client.Object
		deaf   bool
		// begins: an agent begins a session after the state was read.
		begins bool
		stays  bool
	}{
		"no agent ever ran": {},
		"an agent reported, and shows nothing": {
			change: func(_ *volumesv1alpha1.VolumeAttachmentIntent, s *volumesv1alpha1.NodeVolumeState) { began(s) },
			more:   []client.Object{agentLease(false)},
		},
		"an agent has a Lease and did not report to this state": {more: []client.Object{agentLease(false)}, stays: true},
		"an agent has a Lease and reported to a state of which this one is a copy": {
			change: func(_ *volumesv1alpha1.VolumeAttachmentIntent, s *volumesv1alpha1.NodeVolumeState) {
				began(s)
				s.Status.Protocol.ObservedUID = "another"
			},
			more: []client.Object{agentLease(false)}, stays: true,
		},
		"the manager hears no agent": {deaf: true, stays: true},
		"an agent begins meanwhile":  {begins: true, stays: true},
		"it is attached": {change: func(_ *volumesv1alpha1.VolumeAttachmentIntent, s *volumesv1alpha1.NodeVolumeState) {
			entryIn(s, volumesv1alpha1.AttachmentAttached, "1", "")
			s.Spec.Attachments[0].VolumeName = volume.UniqueNameOf(persistentVolume())
		}, more: []client.Object{attachmentOf("va-1", "1")}, stays: true},
		"an attachment is there": {more: []client.Object{attachmentOf("va-1", "1")}, stays: true},
		"it is in use": {change: func(_ *volumesv1alpha1.VolumeAttachmentIntent, s *volumesv1alpha1.NodeVolumeState) {
			usedIn(s, "1")
			s.Status.Volumes[0].VolumeName = volume.UniqueNameOf(persistentVolume())
		}, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			i, state, objects := unheard()
			if test.change != nil {
				test.change(i, state)
			}
			c, now := over(t, append(append(objects, i, state), test.more...)...)
			c.Events = events.NewFakeRecorder(100)
			c.Writer.IsCurrent = c.Tracker.IsCurrent
			if !test.deaf {
				livenesstest.Listen(t, c.Tracker, c.Client.(client.WithWatch))
			}
			if test.begins {
				c.Reader = interceptor.NewClient(c.Reader.(client.WithWatch), interceptor.Funcs{
					Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object,
						opts ...client.GetOption) error {
						if _, lease := o.(*coordinationv1.Lease); lease {
							began(state)
							live := &volumesv1alpha1.NodeVolumeState{}
							if err := w.Get(ctx, client.ObjectKeyFromObject(state), live); err != nil {
								t.Error(err)
							}
							if live.Status.Protocol.Session == 0 {
								usedIn(live, "1")
								live.Status.Volumes[0].VolumeName = volume.UniqueNameOf(persistentVolume())
								began(live)
								if err := w.Status().Update(ctx, live); err != nil {
									t.Error(err)
								}
							}
						}
						return w.Get(ctx, key, o, opts...)
					},
				})
			}
			request := reconcile.Request{NamespacedName: client.ObjectKey{Name: volume.UniqueNameOf(persistentVolume())}}
			for range 2 {
				r, err := c.Reconcile(t.Context(), request)
				if err != nil {
					t.Fatal(err)
				}
				now.SetTime(now.Now().Add(max(r.RequeueAfter, liveness.DefaultDuration)))
			}
			err := c.Reader.Get(t.Context(), client.ObjectKeyFromObject(i), i)
			if test.stays && err != nil || !test.stays && !apierrors.IsNotFound(err) {
				t.Errorf("intent i on node a, where %s: error %v, finalizers %v; want that it stays: %t", name, err, i.Finalizers,
					test.stays)
			}
		})
	}
}

func TestAnIntentWaitsForTheAgentsNodeUntilItIsKnownToBeSilent(t *testing.T) {
	i, state, objects := unheard()
	c, _ := over(t, append(objects, i, state)...)
	c.Events = events.NewFakeRecorder(100)
	livenesstest.Listen(t, c.Tracker, c.Client.(client.WithWatch))
	r, err := c.Reconcile(t.Context(),
		reconcile.Request{NamespacedName: client.ObjectKey{Name: volume.UniqueNameOf(persistentVolume())}})
	if err != nil || r.RequeueAfter <= 0 || r.RequeueAfter > liveness.DefaultDuration {
		t.Errorf("first pass over intent i on node a: after %s, error %v; want again within %s", r.RequeueAfter, err,
			liveness.DefaultDuration)
	}
	if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(i), i); err != nil {
		t.Errorf("intent i after the first pass: error %v, want that it stays", err)
	}
}
