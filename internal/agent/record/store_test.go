/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package record_test

import (
	"reflect"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hawser-io/hawser/internal/agent/plan/plantest"
	"github.com/hawser-io/hawser/internal/agent/record"
)

func TestCallsEndWithTheirDeadlineOrTheirBoot(t *testing.T) {
	r := &record.Record{}
	at := func(s int) record.Moment {
		return record.Moment{BootID: "boot", Uptime: time.Duration(s) * time.Second}
	}
	r.Begin(record.Call{Operation: "stage", BootID: "boot", Uptime: 10 * time.Second, Mounts: true})
	if r.CallsEnded(at(20)) {
		t.Errorf("call %+v in flight counts as ended, want that it goes on", r.InFlight)
	}
	r.Abandon()
	r.Begin(record.Call{Operation: "unstage", BootID: "boot", Uptime: 15 * time.Second})
	r.Abandon()
	if r.CallsEnded(at(14)) || !r.MayMount(at(14)) {
		t.Errorf("call %+v counts as ended before the later deadline, want that it may mount until then", r.Unfinished)
	}
	if !r.CallsEnded(at(15)) || r.MayMount(at(15)) {
		t.Errorf("call %+v counts as going on at its deadline, want that it has ended", r.Unfinished)
	}
	if !r.CallsEnded(record.Moment{BootID: "next"}) {
		t.Errorf("call %+v counts as going on in the next boot, want that it has ended", r.Unfinished)
	}
	r.Begin(record.Call{Operation: "publish", BootID: "boot", Uptime: 99 * time.Second})
	r.Finish()
	if !r.CallsEnded(at(15)) {
		t.Errorf("call %+v counts as going on after it finished, want that it has ended", r.Unfinished)
	}
}

func TestAFirstRecordThatIsNotSavedLeavesItsVolumeUnknown(t *testing.T) {
	s, err := record.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	write, full := s.Replace, func(string, []byte) error { return unix.ENOSPC }
	r := plantest.Situation().Record
	for _, step := range []struct {
		what    string
		replace func(string, []byte) error
		known   bool
	}{{"a first one that is not saved", full, false}, {"one that is saved", write, true},
		{"another one that is not saved", full, true}} {
		s.Replace = step.replace
		r.Schema++ // another content
		if err := s.Save(r); (err != nil) == (step.what == "one that is saved") {
			t.Fatalf("%s: error %v", step.what, err)
		}
		if _, known := s.Known()[r.VolumeName]; known != step.known {
			t.Errorf("%s: volume %s is known %t, want %t", step.what, r.VolumeName, known, step.known)
		}
	}
}

func TestRecordsAreReplacedAsAWhole(t *testing.T) {
	s, err := record.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := plantest.Situation()
	r := f.Record
	r.Schema = record.Schema
	for range 2 {
		if err := s.Save(r); err != nil {
			t.Fatal(err)
		}
	}
	again, err := record.OpenStore(s.Dir)
	if err != nil {
		t.Fatal(err)
	}
	records, broken, err := again.Load()
	if err != nil || len(broken) > 0 || len(records) != 1 || !reflect.DeepEqual(records[0], r) {
		t.Errorf("records %+v, broken %v, error %v, want %+v alone", records, broken, err, r)
	}
	if !reflect.DeepEqual(r.Copy(), r) {
		t.Errorf("the copy %+v differs, want %+v", r.Copy(), r)
	}
	for range 2 {
		if err := s.Remove(r.VolumeName); err != nil {
			t.Fatal(err)
		}
	}
}
