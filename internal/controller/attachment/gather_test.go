/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/intentstatus"
	"github.com/hawser-io/hawser/internal/controller/volume"
)

// boundVolume is a PersistentVolume that is bound to the claim default/data.
func boundVolume() *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", UID: "pv"}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "data", UID: "claim"}
	return pv
}

// TestAnIntentThatIsPinnedWhileIntentsAreListedIsFound, and once only.
func TestAnIntentThatIsPinnedWhileIntentsAreListedIsFound(t *testing.T) {
	pv := boundVolume()
	name := volume.UniqueNameOf(pv)
	for _, test := range []struct {
		name string
		// pinned before the first list, or between the lists.
		before, between bool
		volume          string
		want            int
	}{
		{"before", true, false, name, 1},
		{"between the lists", false, true, name, 1},
		{"between the lists, to another volume", false, true, volume.UniqueName("d", "other"), 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			intent := &volumesv1alpha1.VolumeAttachmentIntent{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data", UID: "intent"},
			}
			intent.Spec.NodeName = "a"
			intent.Spec.Volume.PersistentVolumeClaim = &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "data"}
			if test.before {
				intent.Status.UniqueVolumeName = test.volume
			}
			c, _, api := overAPI(t, pv, intent)
			c.Reporter = &intentstatus.Reporter{Client: c.Client, Clock: c.Clock}
			c.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
				List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if err := w.List(ctx, list, opts...); err != nil || !test.between {
						return err
					}
					if o := (&client.ListOptions{}).ApplyOptions(opts); o.FieldSelector == nil ||
						o.FieldSelector.String() != index.Volume+"="+name {
						return nil
					}
					pinned := intent.DeepCopy()
					pinned.Status.UniqueVolumeName = test.volume
					if err := w.Status().Update(ctx, pinned); err != nil {
						return err
					}
					api.Sync()
					return nil
				},
			})
			f := &decision.Facts{Volume: name}
			if err := c.gatherIntents(t.Context(), f, []*volume.Source{volume.SourceOf(pv)}); err != nil {
				t.Fatal(err)
			}
			if got := len(f.Node("a").Wanted); got != test.want {
				t.Errorf("intents of node a that want volume %s: %d, want %d", name, got, test.want)
			}
		})
	}
}
