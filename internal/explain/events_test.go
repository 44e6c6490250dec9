/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"testing"

	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

func TestAKubeletThatWasTooFastForTheAPIServerIsNoCause(t *testing.T) {
	const waits = `Unable to attach or mount volumes: unmounted volumes=[data]`
	for message, want := range map[string]string{
		waits: catalog.MountWaits,
		waits + `: persistentvolumeclaims "data" is forbidden: User "system:node:node-b" cannot get resource ` +
			`"persistentvolumeclaims": no relationship found between node 'node-b' and this object`: "",
	} {
		if got := mountReason(facts.Event{Reason: "FailedMount", Message: message}); got != want {
			t.Errorf("event %q means %q, want %q", message, got, want)
		}
	}
}
