/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package verify

import (
	"errors"
	"testing"
)

func (w *world) expectFinding(t *testing.T, when string, want Finding) {
	t.Helper()
	if got := w.Findings.All()["d"]; !got.equals(want) {
		t.Errorf("finding about driver d %s: %+v, want %+v", when, got, want)
	}
}

func TestAFindingTakesTwoVerifications(t *testing.T) {
	w := oneVolume(t)
	w.Findings = &Findings{}
	notified := 0
	w.Findings.notify = func(string) { notified++ }
	w.volumes = listing{"h": {"id-a", "id-b"}}
	w.verify(t.Context())
	w.expectFinding(t, "after one verification", Finding{})
	w.verify(t.Context())
	onB := map[string][]string{"b": {"h"}}
	w.expectFinding(t, "after two that found a publication on node b", Finding{Settled: true, Unexpected: onB})
	w.verify(t.Context())
	if notified != 1 {
		t.Errorf("changes that were reported after three verifications: %d, want 1", notified)
	}
	w.err = errors.New("nobody listens")
	w.verify(t.Context())
	w.expectFinding(t, "after one failure", Finding{})
	w.err = errors.New("nobody listens yet")
	w.verify(t.Context())
	w.expectFinding(t, "after two failures", Finding{Failure: "nobody listens"})
	w.err, w.volumes = nil, listing{"h": {"id-a"}}
	w.verify(t.Context())
	w.verify(t.Context())
	w.expectFinding(t, "after two verifications that found all in order", Finding{Settled: true})
}
