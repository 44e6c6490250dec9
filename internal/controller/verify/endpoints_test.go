/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package verify

import (
	"strings"
	"testing"
)

func TestEndpointsAreTakenAsAFlag(t *testing.T) {
	e := Endpoints{}
	for _, s := range []string{"b.example.com=unix:///run/b.sock", "a.example.com=unix:///run/a=1.sock"} {
		if err := e.Set(s); err != nil {
			t.Fatal(err)
		}
	}
	if got := e.String(); got != "a.example.com=unix:///run/a=1.sock,b.example.com=unix:///run/b.sock" {
		t.Errorf("endpoints: %s, want those of a.example.com and b.example.com in this order", got)
	}
	for bad, want := range map[string]string{
		"":                              "must be <driver>=unix:///path",
		"unix:///run/c.sock":            "must be <driver>=unix:///path",
		"c.example.com":                 "must be <driver>=unix:///path",
		"=unix:///run/c.sock":           "must be <driver>=unix:///path",
		"c.example.com=/run/c.sock":     "must be unix://",
		"c.example.com=unix://c.sock":   "absolute path",
		"c.example.com=tcp://host:1234": "must be unix://",
		"a.example.com=unix:///run/2":   "two endpoints",
	} {
		if err := e.Set(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("endpoint %q: error %v, want one with %q", bad, err, want)
		}
	}
	if len(e) != 2 {
		t.Errorf("endpoints after those that were refused: %s, want 2", e)
	}
}
