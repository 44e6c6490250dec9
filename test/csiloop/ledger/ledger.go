/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package ledger records every call to any process of the driver, in order, and judges that record. The ledger survives
// the death of the process that writes it.
package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hawser-io/hawser/test/csiloop/filelock"
)

// Phase is the part of a call that an entry records.
type Phase string

const (
	// Start of the call, before its work.
	Start Phase = "start"
	// Effect means that the work was done, or refused. A call whose work a fault prevented has no such entry.
	Effect Phase = "effect"
	// End means that the answer is sent. A process that died has none.
	End Phase = "end"
	// Note of a test about another event, such as a reboot.
	Note Phase = "note"
)

// Reboot is the method of a note that a node lost all its mounts and devices.
const Reboot = "Reboot"

// Entry is one line of the ledger.
type Entry struct {
	Seq  int64     `json:"seq"`
	Time time.Time `json:"time"`
	// Call is the sequence number of the call's Start.
	Call  int64 `json:"call"`
	Phase Phase `json:"phase"`
	// Process and Mode that served the call, and the node it serves, if any.
	Process int    `json:"process"`
	Mode    string `json:"mode"`
	// Method without its service, such as NodeStageVolume.
	Method string `json:"method"`
	// Node of the call: from the request for the controller's calls, the plugin's own for a node's.
	Node   string `json:"node,omitempty"`
	Volume string `json:"volume,omitempty"`
	// StagingPath and TargetPath as requested; TargetPath is also the volume path of stats and expansion.
	StagingPath string `json:"stagingPath,omitempty"`
	TargetPath  string `json:"targetPath,omitempty"`
	AccessMode  string `json:"accessMode,omitempty"`
	Block       bool   `json:"block,omitempty"`
	ReadOnly    bool   `json:"readOnly,omitempty"`
	// Code and Message of Effect and End.
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// File is the ledger's path.
func File(backingDir string) string { return filepath.Join(backingDir, "ledger.jsonl") }

// Append writes the entry, and returns it with its sequence number and time. A Start names its own call.
func Append(backingDir string, entry Entry) (Entry, error) {
	err := filelock.With(filepath.Join(backingDir, "ledger.lock"), func() error {
		file, err := os.OpenFile(File(backingDir), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
		if err != nil {
			return fmt.Errorf("opening ledger: %w", err)
		}
		last, torn, err := lastSeq(file)
		if err != nil {
			return errors.Join(err, file.Close())
		}
		entry.Seq, entry.Time = last+1, time.Now()
		if entry.Phase == Start || entry.Phase == Note {
			entry.Call = entry.Seq
		}
		line, err := json.Marshal(entry)
		if err != nil {
			return errors.Join(fmt.Errorf("encoding ledger entry: %w", err), file.Close())
		}
		if torn {
			line = append([]byte{'\n'}, line...)
		}
		_, err = file.Write(append(line, '\n'))
		return errors.Join(err, file.Close())
	})
	return entry, err
}

// tail is longer than any entry.
const tail = 64 << 10

// lastSeq finds the last whole entry, and whether an unfinished line follows it.
func lastSeq(file *os.File) (seq int64, torn bool, err error) {
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return 0, false, err
	}
	from := max(info.Size()-tail, 0)
	data := make([]byte, info.Size()-from)
	if _, err := file.ReadAt(data, from); err != nil {
		return 0, false, fmt.Errorf("reading the ledger's end: %w", err)
	}
	torn = data[len(data)-1] != '\n'
	lines := bytes.Split(data, []byte{'\n'})
	for i := len(lines) - 1; i >= 0; i-- {
		var entry Entry
		if json.Unmarshal(lines[i], &entry) == nil {
			return entry.Seq, torn, nil
		}
	}
	return 0, torn, nil
}

// Read returns the whole ledger. It skips a line that a full disk truncated.
func Read(backingDir string) ([]Entry, error) {
	file, err := os.Open(File(backingDir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("opening ledger: %w", err)
	}
	defer func() { _ = file.Close() }() // only read
	data, err := io.ReadAll(file)
	if err != nil {
		return nil, fmt.Errorf("reading ledger: %w", err)
	}
	var entries []Entry
	for line := range bytes.SplitSeq(data, []byte{'\n'}) {
		var entry Entry
		if json.Unmarshal(line, &entry) == nil {
			entries = append(entries, entry)
		}
	}
	return entries, nil
}

// Wait returns the ledger as soon as the condition holds for it.
func Wait(ctx context.Context, backingDir string, satisfied func([]Entry) bool) (entries []Entry, err error) {
	err = filelock.WaitFor(ctx, backingDir, func() (bool, error) {
		entries, err = Read(backingDir)
		return satisfied(entries), err
	})
	return entries, err
}

// NoteReboot records that a node lost its mounts and devices without calls.
func NoteReboot(backingDir, node string) error {
	_, err := Append(backingDir, Entry{Phase: Note, Method: Reboot, Node: node, Process: os.Getpid(), Code: "OK"})
	return err
}
