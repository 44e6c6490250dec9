/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hawser-io/hawser/internal/agent/plan"
)

// BenchmarkPublicationsOfOneVolume publishes one volume for many intents, with a driver that takes its time:
//
//	go test ./internal/agent -run NONE -bench PublicationsOfOneVolume -benchtime 3x
//
// The mounts and the API server are those of the tests, in memory; the records are on the disk.
func BenchmarkPublicationsOfOneVolume(b *testing.B) {
	const intents = 20
	for _, latency := range []time.Duration{0, 20 * time.Millisecond, 200 * time.Millisecond} {
		b.Run(latency.String(), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				w := newBench(b, testVolume{handle: "volume"})
				for i := range intents {
					w.want(types.UID(fmt.Sprintf("intent-%d", i)))
				}
				w.stage()
				w.done(plan.Join)
				w.driver.before = func(string, string) error { <-time.After(latency); return nil }
				b.StartTimer()
				for _, i := range w.intents {
					if err := w.agent.steps.Run(b.Context(), w.volume, w.facts(),
						plan.Step{Kind: plan.Publish, Intent: i.UID}); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
