/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hawser-io/hawser/internal/explain/facts"
)

func TestAConflictOfWritesIsNoFailureOfAnExpansion(t *testing.T) {
	const conflicts = `update capacity of PV failed: Operation cannot be fulfilled: the object has been modified; ` +
		`please apply your changes to the latest version and try again`
	failed := facts.Event{Reason: "VolumeResizeFailed", Message: "the pool is full"}
	for name, tt := range map[string]struct {
		events []facts.Event
		want   string
	}{
		"a conflict alone": {[]facts.Event{{Reason: "VolumeResizeFailed", Message: conflicts}}, ""},
		"a conflict after an error": {
			[]facts.Event{failed, {Reason: "VolumeResizeFailed", Message: conflicts}}, failed.Message},
		"an error": {[]facts.Event{failed}, failed.Message},
	} {
		if got, _ := ResizeError(&corev1.PersistentVolumeClaim{}, tt.events); got != tt.want {
			t.Errorf("%s: the error is %q, want %q", name, got, tt.want)
		}
	}
}
