/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package liveness

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestTheWatchGoesOnWhileWhatItWakesIsBusy(t *testing.T) { synctest.Test(t, wakeSlowly) }

func wakeSlowly(t *testing.T) {
	tracker := NewTracker(clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0)))
	busy, woken := make(chan struct{}), 0
	listen := tracker.Listen(func(context.Context, string, workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		<-busy
		woken++
	})
	if err := listen.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	tracker.begin(nil)
	tracker.hear(said("a", 1, 7, false)) // it would not come back if it waited
	tracker.hear(said("b", 1, 7, false))
	close(busy)
	synctest.Wait()
	if woken != 2 {
		t.Errorf("two agents were heard while what they wake was busy: woken %d times, want twice", woken)
	}
}
