/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"encoding/json"
	"slices"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/test/system"
)

// waits waits until a condition of the intent has the reason, and checks that kubectl hawser why names the same cause,
// or one of those that may follow it.
func (v *volume) waits(name, conditionType, reason string, causes ...string) *volumesv1alpha1.VolumeAttachmentIntent {
	v.t.Helper()
	has := system.HasReason(conditionType, reason)
	intent := v.await(name, has)
	v.explained(name, has, append(causes, reason)...)
	return intent
}

// explained checks that the verdict on an intent has one of the causes, unless the intent does not wait for that any
// more.
func (v *volume) explained(name string, waits func(*volumesv1alpha1.VolumeAttachmentIntent) bool, causes ...string) {
	v.t.Helper()
	_, output := plugin(limited(v.t), "why", "intent", name, "--output=json")
	var answer struct{ Reports []explain.Report }
	if err := json.Unmarshal([]byte(output), &answer); err != nil {
		v.t.Errorf("kubectl hawser why intent %s: %v in %s", name, err, output)
		return
	}
	found := answer.Reports[0].Findings
	if len(found) > 0 && slices.Contains(causes, found[0].Reason) {
		return
	}
	intent, err := sys.AwaitIntent(limited(v.t), namespace, name, func(*volumesv1alpha1.VolumeAttachmentIntent) bool {
		return true
	})
	if err != nil || waits(intent) {
		v.t.Errorf("kubectl hawser why intent %s does not name %v as the cause, error %v; it finds %s", name, causes, err,
			output)
	}
}
