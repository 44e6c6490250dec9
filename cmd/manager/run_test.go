/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"flag"
	"io"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/hawser-io/hawser/internal/controller"
	"github.com/hawser-io/hawser/internal/metrics/endpoint"
	"github.com/hawser-io/hawser/test/apiserver"
)

func TestPodsAlwaysGetIntentsInReplace(t *testing.T) {
	for _, test := range []struct {
		name       string
		args       []string
		mode       controller.AttachMode
		podIntents bool
		refused    bool
	}{
		{name: "next to upstream by default", mode: controller.Coexist},
		{name: "observed next to upstream", args: []string{"--pod-intents=true"}, mode: controller.Coexist, podIntents: true},
		{name: "instead of upstream", args: []string{"--attach-mode=Replace"}, mode: controller.Replace, podIntents: true},
		{name: "instead of upstream without pods", args: []string{"--attach-mode=Replace", "--pod-intents=false"},
			refused: true},
		{name: "an unknown mode", args: []string{"--attach-mode=replace"}, refused: true},
		{name: "neither true nor false", args: []string{"--pod-intents=yes"}, refused: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := controllersOf(t, test.args)
			if test.refused != (err != nil) {
				t.Fatalf("arguments %q: error %v, want one: %t", test.args, err, test.refused)
			}
			if err == nil && (got.AttachMode != test.mode || got.PodIntents != test.podIntents) {
				t.Errorf("arguments %q: mode %s, pod intents %t; want %s, %t", test.args, got.AttachMode, got.PodIntents, test.mode,
					test.podIntents)
			}
		})
	}
}

func TestTheManagerWaitsForLongListsAndDoesNotBeginAgain(t *testing.T) {
	t.Setenv("KUBECONFIG", apiserver.Kubeconfig(t, &rest.Config{Host: "https://192.0.2.1"})) // of no machine
	mgr, err := newManager(options{healthAddr: "0", metrics: endpoint.Endpoint{Address: "0"}}, cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, least := mgr.GetControllerOptions().CacheSyncTimeout, 10*time.Minute; got < least {
		t.Errorf("the manager ends when the lists at its start take %s, want it to wait for %s at least", got, least)
	}
}

func TestGoneNodesAreForgottenOnlyAfterALongTime(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"": 0, "0": 0, "1h": time.Hour, "24h": 24 * time.Hour, "59m": -1, "-24h": -1,
	} {
		var args []string
		if value != "" {
			args = []string{"--forget-gone-nodes-after=" + value}
		}
		got, err := controllersOf(t, args)
		if refused := want < 0; refused != (err != nil) || !refused && got.ForgetGoneNodesAfter != want {
			t.Errorf("arguments %q: gone nodes are forgotten after %s, error %v; want %s, or an error where that is negative",
				args, got.ForgetGoneNodesAfter, err, want)
		}
	}
}

func TestFlagsOfAnEarlierReleaseAreAcceptedAndNamed(t *testing.T) {
	var o options
	flags := flag.NewFlagSet("manager", flag.ContinueOnError)
	o.addFlags(flags)
	args := []string{"--csi-endpoint=a.example=unix:///run/a/csi.sock", "--verify-period", "1m"}
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	if want := []string{"--csi-endpoint", "--verify-period"}; !slices.Equal(o.withdrawn, want) {
		t.Errorf("flags that are named as without effect: %q, want %q", o.withdrawn, want)
	}
}

func controllersOf(t *testing.T, args []string) (controller.Options, error) {
	t.Helper()
	var o options
	flags := flag.NewFlagSet("manager", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	o.addFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return o.controllers()
}
