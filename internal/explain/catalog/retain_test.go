/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package catalog_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/hawser-io/hawser/internal/explain/catalog"
)

func TestNoDeletionIsAdvisedBeforeTheDataIsKept(t *testing.T) {
	for _, e := range catalog.All() {
		if !e.Data {
			continue
		}
		for policy, patches := range map[catalog.State]bool{catalog.Present: false, catalog.Gone: true,
			catalog.Unread: false} {
			e := e.For(catalog.States{catalog.Retain: policy})
			if got := strings.HasPrefix(e.Run[0], "kubectl patch pv {volume}"); got != patches {
				t.Errorf("%s, policy Retain in state %d: commands %q, want one that keeps the data first: %t", e.Code, policy,
					e.Run, patches)
			}
			if !strings.Contains(e.Way, "he data") {
				t.Errorf("%s, policy Retain in state %d: way out %q, want what becomes of the data", e.Code, policy, e.Way)
			}
		}
	}
}

// ofPods are the entries about intents of inline volumes, which have no claim.
var ofPods = []string{"HWS112", "HWS113", "HWS114"}

func TestNoIntentIsToBeDeletedBeforeItsDataIsKept(t *testing.T) {
	for _, state := range []catalog.State{catalog.Present, catalog.Pinned} {
		for _, e := range catalog.All() {
			for policy, patches := range map[catalog.State]bool{
				catalog.Present: false, catalog.Gone: true, catalog.Unset: false,
			} {
				e := e.For(catalog.States{catalog.Retain: policy, "vai {intent}": state})
				deletes := slices.ContainsFunc(e.Run, func(command string) bool {
					return strings.HasPrefix(command, "kubectl delete vai {intent}")
				})
				if !deletes || slices.Contains(ofPods, e.Code) {
					continue
				}
				if got := strings.HasPrefix(e.Run[0], "kubectl patch pv {volume}"); got != patches {
					t.Errorf("%s, intent in state %d, policy Retain in state %d: commands %q, want one that keeps the data first: %t",
						e.Code, state, policy, e.Run, patches)
				}
				if got := strings.Contains(e.Way, "he data"); got != (policy != catalog.Unset) {
					t.Errorf("%s, intent in state %d, policy Retain in state %d: way out %q, want what becomes of the data: %t",
						e.Code, state, policy, e.Way, policy != catalog.Unset)
				}
			}
		}
	}
}
