/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestOfManyIntentsThatWaitForLongTheFirstAreReportedAtOnceAndTheOthersInTurn(t *testing.T) {
	var b attachTimes
	begun := time.Unix(0, 0)
	left := func(n int, now time.Time) time.Duration {
		i := intentNamed(fmt.Sprint("intent-", n)).Object
		i.UID = types.UID(i.Name)
		return b.left(i, "d", true, now)
	}
	const waiting = turnsAtOnce + 20
	for n := range waiting {
		if got := left(n, begun); got != slow {
			t.Fatalf("intent %d, just begun: %s left, want %s", n, got, slow)
		}
	}
	late := begun.Add(slow)
	for n := range waiting {
		want := max(0, time.Duration(n+1-turnsAtOnce)*turnEvery)
		if got := left(n, late); got != want {
			t.Errorf("intent %d of %d that are slow: %s left, want %s", n, waiting, got, want)
		}
	}
	if got := left(waiting-1, late.Add(20*turnEvery)); got != 0 {
		t.Errorf("the last intent, at its turn: %s left, want none", got)
	}
	if got := left(waiting, late.Add(time.Hour)); got != slow {
		t.Errorf("an intent that has just begun: %s left, want %s", got, slow)
	}
	if got := left(waiting, late.Add(time.Hour+slow)); got != 0 {
		t.Errorf("an intent that is slow when few are: %s left, want none", got)
	}
}
