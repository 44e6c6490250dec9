/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
)

// TestACallEndsBeforeItsRecordedDeadline: a process that comes after takes the call for ended once that deadline has
// passed.
func TestACallEndsBeforeItsRecordedDeadline(t *testing.T) {
	for name, slow := range map[string]struct{ preparing, saving time.Duration }{
		"when nothing takes long":                       {},
		"when the preparations of the call take long":   {preparing: time.Minute},
		"when the record takes long to get to the disk": {saving: time.Minute},
		"when the record takes longer than a call may":  {saving: DefaultDriverTimeout + time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testDeadline(t, slow.preparing, slow.saving) })
		})
	}
}

func testDeadline(t *testing.T, preparing, saving time.Duration) {
	booted := time.Now().Add(-time.Hour)
	now := func() record.Moment { return record.Moment{BootID: "boot", Uptime: time.Since(booted)} }
	a := &operation.Environment{Options: operation.Options{
		Clock: clock.RealClock{}, DriverTimeout: DefaultDriverTimeout, Now: now,
		Step: func(name string) {
			if name == "after record" {
				<-time.After(saving) // virtual time
			}
		},
	}}
	a.Lifetime = t.Context()
	var err error
	if a.Store, err = record.OpenStore(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	v := operation.NewVolume("vol")
	v.Record = &record.Record{Schema: record.Schema, VolumeName: v.Name}
	f := plan.Facts{Name: v.Name, Now: now(), Record: v.Record}
	<-time.After(preparing)
	called := false
	err = a.Call(t.Context(), v, f, "unstage", "/target", func(ctx context.Context) error {
		called = true
		onDisk, err := record.ReadRecord(a.Store.Path(v.Name))
		if err != nil {
			return err
		}
		ends, _ := ctx.Deadline()
		if end := ends.Sub(booted); end > onDisk.InFlight.Uptime {
			t.Errorf("the call ends %s after boot, want it not after %s, which is on the disk", end, onDisk.InFlight.Uptime)
		}
		if !ends.Before(onDisk.InFlight.Deadline) {
			t.Errorf("the call ends at %s, want it before %s, which is on the disk", ends, onDisk.InFlight.Deadline)
		}
		return nil
	})
	if late := saving > DefaultDriverTimeout; called == late || (err != nil) != late {
		t.Errorf("after saving took %s: called %t, error %v, want a call and no error: %t", saving, called, err, !late)
	}
	if v.Record.InFlight != nil {
		t.Errorf("volume %s: call in flight %+v, want none", v.Name, v.Record.InFlight)
	}
}

// TestDeadlinesAreOnTheClockThatCallsEndBy runs itself where the time since boot and that clock differ, as after a
// suspension.
func TestDeadlinesAreOnTheClockThatCallsEndBy(t *testing.T) {
	const inside = "AGENT_TEST_IN_TIME_NAMESPACE"
	if os.Getenv(inside) != "" {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			t.Fatal(err)
		}
		if ahead := uptime() - time.Duration(now.Nano()); ahead > time.Minute {
			t.Errorf("deadlines are %s ahead of CLOCK_MONOTONIC, want less than a minute", ahead)
		}
		return
	}
	program, err := exec.LookPath("unshare")
	if err != nil || os.Getuid() != 0 {
		t.Skip("LEFT OUT (needs root and unshare): a machine that was suspended")
	}
	c := exec.CommandContext(t.Context(), program, "--time", "--boottime", "100000", "--fork", os.Args[0],
		"-test.run=^"+t.Name()+"$", "-test.count=1")
	c.Env = append(os.Environ(), inside+"=1")
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("running the test in another time namespace: error %v, want success\n%s", err, out)
	}
}
