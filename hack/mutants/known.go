/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// known is what units reached in an earlier run over the same source. A test that changed since may reach more: to be
// sure, remove the file.
type known struct {
	path   string
	mu     sync.Mutex
	Source string
	Units  map[string]recorded
}

type recorded struct {
	Took    time.Duration
	Reached []int
}

func (t *tree) readKnown() (*known, error) {
	k := &known{path: filepath.Join(t.work, "reached.json")}
	text, err := os.ReadFile(k.path)
	if err == nil {
		err = json.Unmarshal(text, k)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if source := t.sum(); k.Source != source || k.Units == nil {
		k.Source, k.Units = source, map[string]recorded{}
	}
	return k, nil
}

// sum is the hash of all mutated sources. They determine the numbers of the mutants.
func (t *tree) sum() string {
	hash := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(t.files)) {
		hash.Write([]byte(path + "\n")) // a hash never returns an error
		hash.Write(t.files[path])
	}
	return fmt.Sprintf("%x", hash.Sum(nil))
}

// record runs the unit without a mutant, for at most that long, unless its result is known.
func (k *known) record(ctx context.Context, top string, u *unit, most time.Duration) error {
	key := u.String()
	k.mu.Lock()
	r, ok := k.Units[key]
	k.mu.Unlock()
	if ok {
		u.took, u.reached = r.Took, map[int]bool{}
		for _, n := range r.Reached {
			u.reached[n] = true
		}
		return nil
	}
	if err := u.record(ctx, top, filepath.Dir(k.path), most); err != nil || u.took > most {
		return err
	}
	r.Took = u.took
	for n := range u.reached {
		r.Reached = append(r.Reached, n)
	}
	slices.Sort(r.Reached)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.Units[key] = r
	return k.write()
}

func (k *known) write() error {
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return os.WriteFile(k.path, text, 0o600)
}
