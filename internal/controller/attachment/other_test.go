/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

// ofAnotherVolume is an attachment of volume v that an attacher has begun with, and the PersistentVolume that it names:
// it was created again with another handle.
func ofAnotherVolume() (*storagev1.VolumeAttachment, *corev1.PersistentVolume) {
	va, pv := attachedTo("va-1", "1"), persistentVolume()
	va.Finalizers, va.Spec.Source.PersistentVolumeName = []string{"external-attacher/d"}, ptr.To(pv.Name)
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "data"}
	return va, pv
}

// Another leader may have deleted the attachment, and then given the lock back to this node.
func TestAnAttachmentThatIsGoneOnceTheLockIsReadIsNotConfirmed(t *testing.T) {
	for _, goes := range []bool{false, true} {
		c, _ := over(t, reported("a"), persistentVolume(), attachedTo("va-1", "1"), lockObject("v",
			exclusive.Lock{Holder: "a"}))
		f, n := factsOf(t, c)
		f.Exclusive = true
		reader, reads := c.Reader.(client.WithWatch), 0
		connect(c, c.Client, interceptor.NewClient(reader, interceptor.Funcs{
			Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object,
				opts ...client.GetOption) error {
				if _, lock := o.(*corev1.ConfigMap); lock {
					if reads++; goes && reads == 2 { // the first one is to take the lock
						remove(t, c, attachedTo("va-1", "1"))
					}
				}
				return w.Get(ctx, key, o, opts...)
			},
		}))
		if err := c.confirmAttached(t.Context(), f, n, &n.Attachments[0]); err != nil {
			t.Fatal(err)
		}
		if confirmed := n.State.Entry.State == handshake.Attached; confirmed == goes {
			t.Errorf("attachment that goes before the lock is read (%t): entry %+v, want it confirmed: %t", goes,
				n.State.Entry, !goes)
		}
	}
}

func TestAnAttachmentCreatedAgainIsNotThatOfTheEntry(t *testing.T) {
	for uid, found := range map[types.UID]int{"1": 1, "later": 0} {
		c, _ := over(t, attachedTo("va", uid))
		n := on("a")
		n.Entry = &volumesv1alpha1.NodeAttachment{AttachmentName: "va", AttachmentUID: "1"}
		if err := c.addListed(t.Context(), n); err != nil || len(n.Attachments) != found {
			t.Errorf("attachments of an entry of UID 1, where one of UID %s has the name: %v, error %v; want %d", uid,
				n.Attachments, err, found)
		}
	}
}

func TestAnAttachmentStaysWhileTheVolumeThatItNamesByNowIsUsed(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}
	pod.Spec.NodeName = "a"
	pod.Spec.Volumes = []corev1.Volume{{Name: "d", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	begun, other := ofAnotherVolume()
	name := volume.UniqueNameOf(other)
	for by, c := range map[string]struct {
		use  func(*volumesv1alpha1.NodeVolumeState)
		more []client.Object
		used bool
	}{
		"nothing": {},
		"an entry": {use: func(s *volumesv1alpha1.NodeVolumeState) {
			s.Spec.Attachments = append(s.Spec.Attachments, volumesv1alpha1.NodeAttachment{VolumeName: name,
				AttachmentUID: "2", State: volumesv1alpha1.AttachmentAttached})
		}, used: true},
		"the agent": {use: func(s *volumesv1alpha1.NodeVolumeState) {
			s.Status.Volumes = append(s.Status.Volumes, volumesv1alpha1.NodeVolume{VolumeName: name, InUse: true})
		}, used: true},
		"a pod": {more: []client.Object{pod}, used: true},
	} {
		state := entryIn(reported("a"), volumesv1alpha1.AttachmentDetaching, "1", volumesv1alpha1.EvidenceAgentReleased)
		if c.use != nil {
			c.use(state)
		}
		controller, _ := over(t, append(c.more, state, begun.DeepCopy(), other, nodeNamed("a"))...)
		f, n := factsOf(t, controller)
		if err := controller.deleteAttachment(t.Context(), f, n, &n.Attachments[0]); (err != nil) != c.used {
			t.Errorf("deleting an attachment whose volume by now is used by %s: error %v, want one: %t", by, err, c.used)
		}
		va := liveAttachment(t, controller, "va-1")
		if deleted := va == nil || !va.DeletionTimestamp.IsZero(); deleted == c.used {
			t.Errorf("attachment whose volume by now is used by %s is deleted: %t, want %t", by, deleted, !c.used)
		}
	}
}
