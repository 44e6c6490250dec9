/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package catalog_test

import (
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
			if !strings.Contains(e.Way, "The data") {
				t.Errorf("%s, policy Retain in state %d: way out %q, want what becomes of the data", e.Code, policy, e.Way)
			}
		}
	}
}
