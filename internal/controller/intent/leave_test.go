/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intent

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
	"github.com/hawser-io/hawser/internal/controller/intentstatus"
	"github.com/hawser-io/hawser/internal/controller/resolve"
)

func TestAnIntentLeavesOnlyAsItWasReadAndWithANodeThatIsKnownToGo(t *testing.T) {
	type intent = volumesv1alpha1.VolumeAttachmentIntent
	there := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	goes := there.DeepCopy()
	goes.DeletionTimestamp, goes.Finalizers = ptr.To(metav1.Now()), []string{"example.com/machine"}
	for name, c := range map[string]struct {
		// node as the API server has it, and the error of its read.
		node *corev1.Node
		down error
		// meanwhile is what another client does to the intent.
		meanwhile func(*intent)
		stays     bool
	}{
		"its Node is gone":          {},
		"its Node is being deleted": {node: goes},
		"its Node is there":         {node: there, stays: true},
		"its Node cannot be read":   {down: errors.New("the API server is away"), stays: true},
		"it was created again":      {meanwhile: func(i *intent) { i.UID = "later" }, stays: true},
		"it was changed": {meanwhile: func(i *intent) {
			i.Spec.OnNodeDeletion = volumesv1alpha1.OnNodeDeletionKeep
		}, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			i := &intent{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "i", UID: "earlier"}}
			i.Spec.NodeName, i.Spec.OnNodeDeletion = "a", volumesv1alpha1.OnNodeDeletionRelease
			i.Status.UniqueVolumeName = "volume"
			live := fake.NewClientBuilder().WithScheme(controllertest.Scheme()).WithObjects(i)
			if c.node != nil {
				live.WithObjects(c.node)
			}
			api := live.Build()
			get := func() error { return api.Get(t.Context(), client.ObjectKeyFromObject(i), i) }
			if err := get(); err != nil {
				t.Fatal(err)
			}
			if c.meanwhile != nil {
				other := i.DeepCopy()
				c.meanwhile(other)
				if err := api.Update(t.Context(), other); err != nil {
					t.Fatal(err)
				}
			}
			controller := &Controller{Client: controllertest.Strict(t, api),
				Reporter: &intentstatus.Reporter{Events: events.NewFakeRecorder(1)},
				Reader: interceptor.NewClient(api, interceptor.Funcs{Get: func(ctx context.Context, w client.WithWatch,
					key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if c.down != nil {
						return c.down
					}
					return w.Get(ctx, key, o, opts...)
				}})}
			// The cache has no Node any more.
			if _, err := controller.leave(t.Context(), resolve.Facts{Intent: i}); (err != nil) != (c.down != nil) {
				t.Errorf("deleting an intent if %s: error %v, want that of the read of its Node", name, err)
			}
			if err := get(); (err == nil) != c.stays {
				t.Errorf("reading the intent if %s: error %v, want that it stays: %t", name, err, c.stays)
			}
		})
	}
}
