/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package record

import (
	"bytes"
	"fmt"
	"os"
)

// File is a file of the agent beside the records. It is replaced as a whole, and only where it changes.
type File struct {
	store *Store
	Path  string
}

// File returns the file whose name is that of the record directory with the suffix.
func (s *Store) File(suffix string) File {
	return File{store: s, Path: s.Dir + suffix + Suffix}
}

// Read returns what is on the disk.
func (f File) Read() ([]byte, error) { return os.ReadFile(f.Path) }

// Unchanged notes that data is on the disk, so that it is not written again.
func (f File) Unchanged(data []byte) { f.store.remember(f.Path, data) }

// Update writes what render returns, unless the disk has that already. One that is empty needs no file. render is
// called under the lock that orders updates, so the last one to be written is the newest.
func (f File) Update(render func() (data []byte, empty bool, err error)) error {
	f.store.saving.Lock()
	defer f.store.saving.Unlock()
	data, empty, err := render()
	if err != nil {
		return fmt.Errorf("encoding %s: %w", f.Path, err)
	}
	last := f.store.last(f.Path)
	if bytes.Equal(last, data) || last == nil && empty {
		return nil
	}
	if err := f.store.Replace(f.Path, data); err != nil {
		f.store.remember(f.Path, nil)
		return err
	}
	f.store.remember(f.Path, data)
	return nil
}
