/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"strings"
	"testing"
	"time"

	"github.com/hawser-io/hawser/internal/controller"
)

// theManagerWaitsForAnUnreachableAPIServer, while one volume is wanted and another one no more.
func theManagerWaitsForAnUnreachableAPIServer(t *testing.T, w *world, mode controller.AttachMode) {
	name := "away-" + strings.ToLower(string(mode))
	w.managedNode(t, name)
	w.volume(t, name, volumeOptions{})
	w.volume(t, name+"-late", volumeOptions{})
	requests, stop := w.manage(t, managerOptions{attachMode: mode})
	defer stop()
	there := w.wantAttached(t, mode, name, name, name)
	there.awaitAttached(t)
	requests.reset()
	missed := requests.goDown()
	late := w.wantAttached(t, mode, name+"-late", name+"-late", name)
	there.drop(t)
	// The manager still sees both, and acts in vain.
	for range 2 {
		select {
		case <-missed:
		case <-time.After(patience):
			t.Fatalf("the manager made no write within %s while volume %s is wanted", patience, late.claim)
		}
	}
	requests.down.Store(nil)
	late.awaitAttached(t)
	there.awaitDetached(t)
	if n, what := requests.writes(); n > 40 {
		t.Errorf("%d writes around the outage, want at most 40, with backoff: %s", n, what)
	}
	late.drop(t)
	late.awaitDetached(t)
}
