/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package version

import "testing"

func TestPagesAreThoseOfTheRelease(t *testing.T) {
	before := Version
	t.Cleanup(func() { Version = before })
	for version, want := range map[string]string{"v0.1.0": "v0.1.0", "v1.20.3": "v1.20.3", "v0.2.0-rc.1": "v0.2.0-rc.1",
		"v0.1.0-dev": "main", "v0.0.0-unversioned": "main", "": "main"} {
		Version = version
		if got := Ref(); got != want {
			t.Errorf("pages of version %q are at %s, want %s", version, got, want)
		}
	}
}
