/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

import (
	"context"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// newClaiming has an operator in namespace hawser, and a VolumeManager of the operator in another one. Writes fail once
// the status is written so often.
func newClaiming(t *testing.T, owner string, statusWrites int) *meanwhile {
	t.Helper()
	vm := &volumesv1alpha1.VolumeManager{ObjectMeta: with("cluster", volumesv1alpha1.RemovalFinalizer)}
	vm.Status.Namespace = owner
	m := newMeanwhile(t, vm)
	refused := errors.New("refused")
	m.Client = interceptor.NewClient(m.live, interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, of string, o client.Object,
			opts ...client.SubResourceUpdateOption) error {
			if statusWrites--; statusWrites < 0 {
				t.Errorf("the status is written once more than expected")
			}
			return c.SubResource(of).Update(ctx, o, opts...)
		},
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return refused
		},
		Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			t.Error("an object is applied")
			return refused
		},
		Delete: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.DeleteOption) error {
			t.Errorf("%T %s is deleted", o, o.GetName())
			return refused
		},
	})
	m.guards, m.Kinds = guards{m.Cache}, Kinds{mutating: true} // everything is served
	m.Namespace, m.podsWatched = "hawser", true
	return m
}

func TestAnOperatorChangesNothingForTheVolumeManagerOfAnotherNamespace(t *testing.T) {
	for name, deleted := range map[string]bool{"kept": false, "deleted": true} {
		t.Run(name, func(t *testing.T) {
			m := newClaiming(t, "storage-system", 0)
			vm := &volumesv1alpha1.VolumeManager{ObjectMeta: with("cluster")}
			if deleted {
				if err := m.live.Delete(t.Context(), vm); err != nil {
					t.Fatal(err)
				}
			}
			before := read(m, vm)
			_, err := m.Reconcile(t.Context(), reconcile.Request{})
			want := "belongs to the operator in namespace storage-system: the one in namespace hawser changes nothing"
			if !errors.Is(err, reconcile.TerminalError(nil)) || !strings.Contains(err.Error(), want) {
				t.Errorf("reconciling it: error %v, want a final one with %q", err, want)
			}
			if after := read(m, vm); after.ResourceVersion != before.ResourceVersion {
				t.Errorf("the VolumeManager is at version %s, want %s as before", after.ResourceVersion, before.ResourceVersion)
			}
			select {
			case event := <-m.Recorder.(*events.FakeRecorder).Events:
				if !strings.Contains(event, "InstalledElsewhere") || !strings.Contains(event, want) {
					t.Errorf("event %q, want InstalledElsewhere with %q", event, want)
				}
			default:
				t.Error("there is no event, want InstalledElsewhere")
			}
		})
	}
}

// Of two operators that start together, the second to write the status has a conflict, and has applied nothing.
func TestAnOperatorWritesItsNamespaceBeforeItAppliesAnything(t *testing.T) {
	m := newClaiming(t, "", 1)
	if _, err := m.Reconcile(t.Context(), reconcile.Request{}); err == nil {
		t.Error("reconciling where every patch is refused: no error, want one")
	}
	vm := &volumesv1alpha1.VolumeManager{ObjectMeta: with("cluster")}
	if got := read(m, vm).Status.Namespace; got != "hawser" {
		t.Errorf("status.namespace is %q, want that of the operator", got)
	}
}
