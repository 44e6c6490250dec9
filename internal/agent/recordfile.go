/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"bytes"
	"fmt"
	"os"
)

// sideFile is a file of the agent beside the records. It is replaced as a whole, and only where it changes.
type sideFile struct {
	store *store
	path  string
}

// file returns the file whose name is that of the record directory with the suffix.
func (s *store) file(suffix string) sideFile {
	return sideFile{store: s, path: s.dir + suffix + recordSuffix}
}

// read returns what is on the disk.
func (f sideFile) read() ([]byte, error) { return os.ReadFile(f.path) }

// unchanged notes that data is on the disk, so that it is not written again.
func (f sideFile) unchanged(data []byte) { f.store.remember(f.path, data) }

// update writes what render returns, unless the disk has it. One that is empty needs no file. render is called under the lock
// that orders updates, so the last one to be written is the newest.
func (f sideFile) update(render func() (data []byte, empty bool, err error)) error {
	f.store.saving.Lock()
	defer f.store.saving.Unlock()
	data, empty, err := render()
	if err != nil {
		return fmt.Errorf("encoding %s: %w", f.path, err)
	}
	last := f.store.last(f.path)
	if bytes.Equal(last, data) || last == nil && empty {
		return nil
	}
	if err := f.store.replace(f.path, data); err != nil {
		f.store.remember(f.path, nil)
		return err
	}
	f.store.remember(f.path, data)
	return nil
}
