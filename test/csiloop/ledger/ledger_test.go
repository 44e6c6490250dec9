/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package ledger

import (
	"os"
	"testing"
)

// tale builds a ledger from incomplete entries.
func tale(lines ...Entry) []Entry {
	for i := range lines {
		lines[i].Seq = int64(i + 1)
		if lines[i].Call == 0 {
			lines[i].Call = lines[i].Seq
		}
		if lines[i].Volume == "" {
			lines[i].Volume = "v"
		}
	}
	return lines
}

func effect(method, node string) Entry {
	return Entry{Phase: Effect, Method: method, Node: node, Code: "OK", AccessMode: "SINGLE_NODE_WRITER"}
}

func start(method, node string) Entry { return Entry{Phase: Start, Method: method, Node: node} }

func TestTheJudgeFindsAVolumePublishedTwice(t *testing.T) {
	shared := effect("ControllerPublishVolume", "b")
	shared.AccessMode = "MULTI_NODE_MULTI_WRITER"
	refused := effect("ControllerPublishVolume", "b")
	refused.Code = "FailedPrecondition"
	tests := map[string]struct {
		entries []Entry
		want    int
	}{
		"on two nodes": {tale(effect("ControllerPublishVolume", "a"), effect("ControllerPublishVolume", "b")), 1},
		"twice on one": {tale(effect("ControllerPublishVolume", "a"), effect("ControllerPublishVolume", "a")), 0},
		"shared":       {tale(effect("ControllerPublishVolume", "a"), shared), 0},
		"refused":      {tale(effect("ControllerPublishVolume", "a"), refused), 0},
		"one after the other": {tale(effect("ControllerPublishVolume", "a"), effect("ControllerUnpublishVolume", "a"),
			effect("ControllerPublishVolume", "b")), 0},
		"taken from all": {tale(effect("ControllerPublishVolume", "a"), effect("ControllerUnpublishVolume", ""),
			effect("ControllerPublishVolume", "b")), 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if found := PublishedTwice(test.entries); len(found) != test.want {
				t.Errorf("volumes published twice: %v, want %d", found, test.want)
			}
		})
	}
}

func TestTheJudgeFindsADetachWhileStaged(t *testing.T) {
	detach := start("ControllerUnpublishVolume", "a")
	failed := Entry{Phase: Effect, Method: "NodeStageVolume", Node: "a", Code: "Internal", Call: 1}
	refused := Entry{Phase: End, Method: "NodeStageVolume", Node: "a", Code: "Aborted", Call: 1}
	tests := map[string]struct {
		entries []Entry
		want    int
	}{
		"staged":                   {tale(effect("NodeStageVolume", "a"), detach), 1},
		"staged on another node":   {tale(effect("NodeStageVolume", "b"), detach), 0},
		"unstaged":                 {tale(effect("NodeStageVolume", "a"), effect("NodeUnstageVolume", "a"), detach), 0},
		"stage running":            {tale(start("NodeStageVolume", "a"), detach), 1},
		"stage failed":             {tale(start("NodeStageVolume", "a"), failed, detach), 0},
		"stage refused by a fault": {tale(start("NodeStageVolume", "a"), refused, detach), 0},
		"rebooted": {tale(effect("NodeStageVolume", "a"),
			Entry{Phase: Note, Method: Reboot, Node: "a"}, detach), 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if found := UnpublishedWhileStaged(test.entries); len(found) != test.want {
				t.Errorf("detaches while staged: %v, want %d", found, test.want)
			}
		})
	}
}

func TestTheJudgeFindsAUseWithoutAttachment(t *testing.T) {
	attached := effect("ControllerPublishVolume", "a")
	if found := UsedUnattached(tale(attached, start("NodeStageVolume", "a"),
		start("NodePublishVolume", "a"))); len(found) != 0 {
		t.Errorf("uses without an attachment: %v, want none on node a", found)
	}
	if found := UsedUnattached(tale(attached, start("NodeStageVolume", "b"))); len(found) != 1 {
		t.Errorf("uses without an attachment: %v, want one on node b", found)
	}
}

func TestATruncatedLineDoesNotAffectOthers(t *testing.T) {
	dir := t.TempDir()
	if _, err := Append(dir, Entry{Phase: Start, Method: "A"}); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(File(dir), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"seq":2,"ti`); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if entry, err := Append(dir, Entry{Phase: Start, Method: "B"}); err != nil || entry.Seq != 2 {
		t.Errorf("entry after a truncated line: %+v, error %v; want number 2", entry, err)
	}
	entries, err := Read(dir)
	if err != nil || len(entries) != 2 || entries[1].Method != "B" {
		t.Errorf("entries of the ledger: %+v, error %v; want A and B", entries, err)
	}
}
