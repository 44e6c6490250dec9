/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package rollout

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	testclock "k8s.io/utils/clock/testing"

	"github.com/hawser-io/hawser/internal/operator/condition"
)

func TestARolloutIsUnfinishedSinceItBegan(t *testing.T) {
	clock := testclock.NewFakePassiveClock(time.Now())
	m := &Metrics{Clock: clock}
	if n := testutil.CollectAndCount(m); n != 0 {
		t.Errorf("series before the first reconcile: %d, want none", n)
	}
	workloads := func(ready int32) condition.Facts {
		return condition.Facts{Now: clock.Now(), Manager: condition.Workload{Desired: 1, Updated: 1, Ready: 1},
			Agents: condition.Workload{Desired: 3, Updated: 2, Ready: ready}}
	}
	want := func(when, unfinished, ready string) {
		t.Helper()
		for name, line := range map[string]string{
			"hawser_rollout_unfinished_seconds": "hawser_rollout_unfinished_seconds " + unfinished + "\n",
			"hawser_rollout_pods":               `hawser_rollout_pods{component="agent",state="ready"} ` + ready + "\n",
		} {
			text, err := testutil.CollectAndFormat(m, expfmt.TypeTextPlain, name)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), line) {
				t.Errorf("%s %s:\n%s\nwant %s", name, when, text, line)
			}
		}
	}
	m.Observe(workloads(1), false)
	clock.SetTime(clock.Now().Add(time.Minute))
	m.Observe(workloads(2), false)
	want("after a minute", "60", "2")
	m.Observe(workloads(3), true)
	want("once it has ended", "0", "3")
	earlier := workloads(1)
	earlier.ProgressingSince = clock.Now().Add(-time.Hour)
	m.Observe(earlier, false)
	want("of a rollout that an earlier process began", "3600", "1")
	var none *Metrics
	none.Observe(earlier, false)
}
