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

// ofHawserAlone are the codes from HWS600 on that are about Hawser's own objects.
var ofHawserAlone = map[string]bool{"HWS608": true, "HWS633": true, "HWS717": true, "HWS902": true, "HWS903": true,
	"HWS935": true}

func TestNoSentenceNamesIntentsInAClusterWithoutHawser(t *testing.T) {
	for _, e := range catalog.All() {
		if e.Code < "HWS600" || e.Code > "HWS640" && e.Code < "HWS650" || e.Code > "HWS940" || ofHawserAlone[e.Code] {
			continue
		}
		states := []catalog.States{{}}
		for _, i := range e.Instead {
			states = append(states, catalog.States{i.Object: i.State})
		}
		for _, s := range states {
			s[catalog.Installation] = catalog.Gone
			if e := e.For(s); strings.Contains(e.Says+e.Way+string(e.Acts), "intent") {
				t.Errorf("%s in state %v: %q, %q, acts %q; want no intents", e.Code, s, e.Says, e.Way, e.Acts)
			}
		}
	}
}
