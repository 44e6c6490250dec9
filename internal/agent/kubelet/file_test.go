/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/go-logr/logr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/mount"
)

// filed is an observer in the boot "boot", and counts how often its file is written.
type filed struct {
	*Observer
	t      *testing.T
	writes int
	// err is what a write fails with.
	err error
}

func newFiled(t *testing.T) *filed {
	t.Helper()
	s, err := record.OpenStore(filepath.Join(t.TempDir(), "volumes"))
	if err != nil {
		t.Fatal(err)
	}
	f := &filed{Observer: NewObserver(ObserverOptions{Store: s, BootID: "boot", Log: logr.Discard()}), t: t}
	s.Replace = func(path string, data []byte) error {
		f.writes++
		if f.err != nil {
			return f.err
		}
		return record.ReplaceFile(path, data)
	}
	return f
}

// has puts the text into the file.
func (f *filed) has(text string) {
	f.t.Helper()
	if err := os.WriteFile(f.File().Path, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// of puts the uses into the file as an agent of the boot would.
func (f *filed) of(boot string, uses map[string]TrackedUse) {
	f.t.Helper()
	text, err := json.MarshalIndent(UseFile{Schema: record.Schema, BootID: boot, Uses: uses}, "", "  ")
	if err != nil {
		f.t.Fatal(err)
	}
	f.has(string(text))
}

// saves fails the test unless the uses are saved with so many writes.
func (f *filed) saves(writes int) {
	f.t.Helper()
	f.writes = 0
	if err := f.Save(); err != nil || f.writes != writes {
		f.t.Errorf("saving uses %v: error %v and %d writes of %s, want success and %d", f.Last.Uses, err, f.writes,
			f.File().Path, writes)
	}
}

func TestOnlyAFileThatIsUnderstoodIsTakenUp(t *testing.T) {
	directory := func(f *filed) {
		if err := os.Mkdir(f.File().Path, 0o700); err != nil {
			f.t.Fatal(err)
		}
	}
	text := func(s string) func(*filed) { return func(f *filed) { f.has(s) } }
	for name, test := range map[string]struct {
		make func(*filed)
		uses map[string]TrackedUse
		err  string
	}{
		"there is none":            {func(*filed) {}, nil, ""},
		"it cannot be read":        {directory, nil, "reading the kubelet's volumes"},
		"it was cut off":           {text("{"), nil, "parsing the kubelet's volumes"},
		"it holds something else":  {text(`{"schema":1,"bootID":"boot","uses":3}`), nil, "cannot unmarshal"},
		"another version wrote it": {text(`{"schema":2,"bootID":"boot","uses":{"v":{}}}`), nil, "schema 2 is not known"},
		"it has no uses":           {text(`{"schema":1,"bootID":"boot"}`), map[string]TrackedUse{}, ""},
		"it has none of this boot": {text(`{"schema":1,"bootID":"earlier"}`), map[string]TrackedUse{}, ""},
		"it has one without details": {text(`{"schema":1,"bootID":"boot","uses":{"v":{}}}`),
			map[string]TrackedUse{"v": {}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFiled(t)
			test.make(f)
			uses, err := f.load()
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("reading %s: error %v, want one with %q, none where that is empty", f.File().Path, err, test.err)
			}
			if !reflect.DeepEqual(uses, test.uses) {
				t.Errorf("reading %s: uses %#v, want %#v", f.File().Path, uses, test.uses)
			}
		})
	}
}

func TestAFileWithoutUsesIsBelievedRatherThanTheAPI(t *testing.T) {
	nvs := &volumesv1alpha1.NodeVolumeState{}
	nvs.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: "v", AttachmentUID: "uid-1",
		PublishedBy: volumesv1alpha1.PublisherKubelet}}
	f := newFiled(t)
	f.of("boot", nil)
	if f.Recover(nvs); len(f.Last.Uses) != 0 {
		t.Errorf("uses after a restart: %v, want none, as the file %s has none", f.Last.Uses, f.File().Path)
	}
}

func TestTheUsesOfTheAPIAreTakenWhereTheFileHasNone(t *testing.T) {
	nvs := &volumesv1alpha1.NodeVolumeState{}
	nvs.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: "v", AttachmentUID: "uid-1",
		PublishedBy: volumesv1alpha1.PublisherKubelet}, {VolumeName: "w", PublishedBy: volumesv1alpha1.PublisherAgent}}
	for name, has := range map[string]func(*filed){
		"missing":    func(*filed) {},
		"unreadable": func(f *filed) { f.has("{") },
	} {
		f := newFiled(t)
		has(f)
		if f.Recover(nvs); len(f.Last.Uses) != 1 || f.Last.Uses["v"].AttachmentUID != "uid-1" {
			t.Errorf("uses after a restart with a file that is %s: %v, want that of volume v, as the API has it", name,
				f.Last.Uses)
		}
	}
}

func TestAnotherBootHasNothingMountedOfAnEarlierOne(t *testing.T) {
	before := map[string]TrackedUse{
		"recorded": {
			AttachmentUID: "uid-1", Life: []string{"mount 1", "record 2"}, Sources: []Source{{7, 1, "/"}},
			PersistentVolumes: []string{"pv"}, StagedPath: "/stage", DevicePath: "/dev/loop1",
			Devices: []mount.Device{{Major: 7, Minor: 1}}, StageWritten: "written", EarlierStage: "earlier",
			ProvenStage: "written", ShutDown: true,
		},
		"mounted": {AttachmentUID: "uid-2", Life: []string{"mount 3"}},
	}
	for boot, want := range map[string]map[string]TrackedUse{
		"boot": before,
		"earlier": {"recorded": {
			AttachmentUID: "uid-1", Life: []string{"record 2"}, PersistentVolumes: []string{"pv"}, StagedPath: "/stage",
			DevicePath: "/dev/loop1", EarlierStage: "written",
		}},
	} {
		f := newFiled(t)
		f.of(boot, before)
		if uses, err := f.load(); err != nil || !reflect.DeepEqual(uses, want) {
			t.Errorf("uses of the boot %q, read in the boot %q: %+v, error %v, want %+v", boot, f.BootID, uses, err, want)
		}
	}
}

func TestTheFileIsWrittenOnlyWhereItChanges(t *testing.T) {
	uses := map[string]TrackedUse{"v": {AttachmentUID: "uid-1"}}
	f := newFiled(t)
	f.saves(0) // there was no use, so no file is needed
	f.SetKnown(uses)
	f.saves(1)
	f.saves(0)

	f = newFiled(t)
	f.of("boot", uses)
	f.Recover(nil)
	if !maps.EqualFunc(f.Last.Uses, uses, func(a, b TrackedUse) bool { return reflect.DeepEqual(a, b) }) {
		t.Errorf("uses of the file %s: %v, want %v", f.File().Path, f.Last.Uses, uses)
	}
	f.saves(0)
	f.SetKnown(nil)
	f.saves(1) // the file must not keep what has ended
}

func TestUsesThatCannotBeSavedAreTold(t *testing.T) {
	full := errors.New("the disk is full")
	f := newFiled(t)
	f.err = full
	f.SetKnown(map[string]TrackedUse{"v": {}})
	if err := f.Save(); !errors.Is(err, full) || !strings.Contains(err.Error(), "writing the kubelet's volumes") {
		t.Errorf("saving uses to %s: error %v, want one that says what could not be written: %v", f.File().Path, err, full)
	}
	f.err = nil
	f.saves(1)
}
