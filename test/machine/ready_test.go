/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine_test

import (
	"testing"
	"time"
)

func TestAnIntentBecomesReadyInAMachine(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, class := range []string{loopExt4, diskExt4, mappedXFS} {
		begin := time.Now()
		v := n.newVolume(class, "400Mi")
		path := v.ready()
		t.Logf("%s is Ready after %.1f s", class, time.Since(begin).Seconds())
		n.must("echo kept >%s/file && sync -f %[1]s/file", path)
		begin = time.Now()
		v.release()
		t.Logf("%s is released after %.1f s", class, time.Since(begin).Seconds())
		v.want()
		if got := n.must("cat %s/file", v.ready()); got != "kept" {
			t.Errorf("volume of %s has %q, want what was written before", class, got)
		}
		v.release()
	}
}
