/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

// attachedTo is an attachment that the driver has carried out, as the API server has it.
func attachedTo(name string, uid types.UID) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: uid, Annotations: map[string]string{volumesv1alpha1.HoldAnnotation: "now"},
		},
		Status: storagev1.VolumeAttachmentStatus{Attached: true},
	}
}

func TestAccessModesThatChangedUnderALeaderMakeAVolumeUsableOnOneNode(t *testing.T) {
	const many, once = corev1.ReadWriteMany, corev1.ReadWriteOnce
	for _, test := range []struct {
		name string
		// knows the volume as exclusive.
		exclusive bool
		modes     corev1.PersistentVolumeAccessMode
		// lock names this node.
		lock string
		// elsewhere is an attachment to another node.
		elsewhere bool
		attached  bool
	}{
		{name: "several nodes may have it, as the leader knows", modes: many, attached: true},
		{name: "several nodes have it, as the leader knows", modes: many, elsewhere: true, attached: true},
		{name: "one node may have it by now", modes: once},
		{name: "another node was given the lock meanwhile", modes: many, lock: "b"},
		{name: "this node was given the lock meanwhile", modes: many, lock: "a", attached: true},
		{name: "one node may have it, as the leader knows", exclusive: true, modes: once, lock: "a", attached: true},
		{name: "another leader takes it for shared and has an attachment elsewhere", exclusive: true, modes: once, lock: "a",
			elsewhere: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := on("a", wanted("i"), va("1", "held", "attached"))
			pv := persistentVolume()
			pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{test.modes}
			n.Wanted[0].Result.Source = volume.SourceOf(pv)
			objects := []client.Object{reported("a"), pv, attachedTo("va-1", "1")}
			if test.elsewhere {
				objects = append(objects, attachedTo(volume.AttachmentName("d", "h", "b"), "2"))
			}
			c, _ := over(t, objects...)
			f := &decision.Facts{Volume: "v", Driver: "d", VolumeHandle: "h", AttachRequired: true, Exclusive: test.exclusive,
				Nodes: []*decision.Node{n, on("b")}}
			if test.lock != "" {
				if _, swapped, err := c.Locks.Swap(t.Context(), "v", exclusive.Lock{},
					exclusive.Lock{Holder: test.lock}); err != nil || !swapped {
					t.Fatalf("writing lock %s of volume v: swapped %t, error %v; want swapped", test.lock, swapped, err)
				}
			}
			if err := c.confirmAttached(t.Context(), f, n, &n.Attachments[0]); err != nil {
				t.Fatal(err)
			}
			if attached := n.State.Entry.State == handshake.Attached; attached != test.attached {
				t.Errorf("volume v is Attached on node a: %t, want %t", attached, test.attached)
			}
			if !test.attached && n.Wait == nil {
				t.Error("node a, refused volume v: no wait, want one")
			}
		})
	}
}
