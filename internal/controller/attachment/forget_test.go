/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/outage"
	"github.com/hawser-io/hawser/internal/handshake"
)

func TestNothingIsKeptOfAnIntentDeletedBeforeTheAnswer(t *testing.T) {
	again := intentNamed("i").Object // under its name, where the watch had a gap
	again.UID = "another"
	t.Run("deleted", func(t *testing.T) { deleteBeforeTheAnswer(t, nil) })
	t.Run("created again", func(t *testing.T) { deleteBeforeTheAnswer(t, again) })
}

func deleteBeforeTheAnswer(t *testing.T, after client.Object) {
	intent := intentNamed("i*")
	intent.Object.UID, intent.Object.Finalizers = "i", []string{volumesv1alpha1.ReleaseFinalizer}
	c, _ := over(t, intent.Object)
	if err := c.Reader.Get(t.Context(), client.ObjectKeyFromObject(intent.Object), intent.Object); err != nil {
		t.Fatal(err)
	}
	c.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch,
			opts ...client.PatchOption) error {
			err := w.Patch(ctx, o, p, opts...)
			woken(t, c.intentChanged, intent.Object, after)
			return err
		},
	})
	n := on("a", entry(handshake.Detaching, "1"))
	if err := c.release(t.Context(), n, []*decision.Intent{intent}); err != nil {
		t.Fatal(err)
	}
	c.released.Range(func(uid, _ any) bool {
		t.Errorf("deleted intent with UID %s is remembered as released, want it forgotten", uid)
		return true
	})
}

func TestTheAbsenceOfANodeIsForgottenWithItsNodeState(t *testing.T) {
	c, now := over(t)
	c.unready.Observe("a", outage.Spell{Absent: true}, 0, 0, now.Now())
	woken(t, c.stateChanged, reported("a"), nil)
	if c.unready.Known("a") {
		t.Error("absence of node a is remembered after its node state was deleted, want it forgotten")
	}
}
