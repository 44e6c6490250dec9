/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import "testing"

// lagBound: the world with the rule has 1,957,042 states.
const lagBound = 2_000_000

// TestAManagerBringsInByACacheThatHasTheConfirmation: it is another one than the manager that confirms sessions. Its
// cache of what is used elsewhere is as the API was restored, or current. The state that it writes upon it may read
// live. Without the rule the volume comes to a node while another one uses it.
func TestAManagerBringsInByACacheThatHasTheConfirmation(t *testing.T) {
	if testing.Short() {
		leaveOut(t)
	}
	for name, waits := range map[string]bool{"without the rule": false, "once its cache has the confirmation": true} {
		t.Run(name, func(t *testing.T) {
			w := restoreExclusiveWorld
			w.name, w.lags, w.waits = w.name+", brought in by another manager", true, waits
			m := newModel(w, GuardNone, effectNone)
			e, v, err := m.explore(lagBound)
			if err != nil {
				t.Fatal(err)
			}
			if v == nil {
				v = e.trapped()
			}
			if waits && v != nil || !waits && (v == nil || v.invariant != I3) {
				t.Errorf("brought in %s: %v after %d states, want a violation of I3: %t", name, v, len(e.states), !waits)
			}
			t.Logf("brought in %s: %d states, %d steps, %v", name, len(e.states), e.taken, v)
		})
	}
}
