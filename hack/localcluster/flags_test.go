/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"slices"
	"testing"
)

func TestNodesAreNamedOrCounted(t *testing.T) {
	for _, test := range []struct {
		value string
		want  []string
	}{
		{"3", []string{"node-a", "node-b", "node-c"}},
		{"0", []string{}},
		{"node-a,other", []string{"node-a", "other"}},
		{"27", nil},
		{"-1", nil},
		{"", nil},
		{"a,,b", nil},
		{"../escape", nil},
	} {
		got, err := nodeNames(test.value)
		if (err != nil) != (test.want == nil) || !slices.Equal(got, test.want) {
			t.Errorf("%q: %v, error %v", test.value, got, err)
		}
	}
}

func TestSocketsAreGivenAsDriverAndPath(t *testing.T) {
	got, err := parseSockets([]string{"a.csi=/run/a.sock", "b.csi=unix:///run/b.sock"})
	if err != nil || got["a.csi"] != "/run/a.sock" || got["b.csi"] != "/run/b.sock" {
		t.Errorf("%v, error %v", got, err)
	}
	for _, wrong := range []string{"/run/a.sock", "=path", "driver="} {
		if got, err := parseSockets([]string{wrong}); err == nil {
			t.Errorf("%q gave %v", wrong, got)
		}
	}
}
