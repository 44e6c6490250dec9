/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"flag"
	"io"
	"testing"

	"github.com/hawser-io/hawser/internal/controller"
)

func TestPodsGetIntentsInReplaceAndNeverLackThemThere(t *testing.T) {
	for _, test := range []struct {
		name       string
		args       []string
		mode       controller.AttachMode
		podIntents bool
		refused    bool
	}{
		{name: "beside upstream by default", mode: controller.Coexist},
		{name: "observed beside upstream", args: []string{"--pod-intents=true"}, mode: controller.Coexist, podIntents: true},
		{name: "in place of upstream", args: []string{"--attach-mode=Replace"}, mode: controller.Replace, podIntents: true},
		{name: "in place of upstream without pods", args: []string{"--attach-mode=Replace", "--pod-intents=false"}, refused: true},
		{name: "a mode that is not known", args: []string{"--attach-mode=replace"}, refused: true},
		{name: "neither true nor false", args: []string{"--pod-intents=yes"}, refused: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var o options
			flags := flag.NewFlagSet("manager", flag.ContinueOnError)
			flags.SetOutput(io.Discard)
			o.addFlags(flags)
			if err := flags.Parse(test.args); err != nil {
				t.Fatal(err)
			}
			got, err := o.controllers()
			if test.refused != (err != nil) {
				t.Fatalf("refused is %t: %v", err != nil, err)
			}
			if err == nil && (got.AttachMode != test.mode || got.PodIntents != test.podIntents) {
				t.Errorf("mode %s, pod intents %t", got.AttachMode, got.PodIntents)
			}
		})
	}
}
