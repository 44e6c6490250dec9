/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// store keeps the records, one file each. A file is replaced as a whole: after a crash it holds the
// old record or the new one, never a part.
type store struct {
	dir string
	// replace is Host.ReplaceFile.
	replace func(path string, data []byte) error

	// saving is held while the one file about the kubelet's volumes is written.
	saving sync.Mutex

	mu    sync.Mutex
	saved map[string][]byte
	// records are on the disk, or may be, by volume.
	records map[string]identity
}

// identity is what names a record's volume on the node.
type identity struct {
	driver, handle, persistentVolume string
	// hash of the handle, as in paths.
	hash string
}

func identityOf(r *Record) identity {
	return identity{driver: r.Driver, handle: r.Handle, persistentVolume: r.PersistentVolume, hash: hash(r.Handle)}
}

// brokenRecord is a file that holds no record.
type brokenRecord struct {
	name string
	err  error
}

const (
	recordSuffix = ".json"
	tempPrefix   = ".new-"
)

func openStore(dir string) (*store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making record directory: %w", err)
	}
	return &store{dir: dir, replace: replaceFile, saved: map[string][]byte{}, records: map[string]identity{}}, nil
}

func (s *store) path(volumeName string) string {
	return filepath.Join(s.dir, hash(volumeName)+recordSuffix)
}

// load reads every record, and clears away what an interrupted save left behind.
func (s *store) load() ([]*Record, []brokenRecord, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, nil, fmt.Errorf("reading record directory: %w", err)
	}
	var records []*Record
	var broken []brokenRecord
	for _, e := range entries {
		path := filepath.Join(s.dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), tempPrefix):
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, nil, fmt.Errorf("removing unfinished record: %w", err)
			}
		case strings.HasSuffix(e.Name(), recordSuffix):
			r, err := readRecord(path)
			if err != nil {
				broken = append(broken, brokenRecord{name: e.Name(), err: err})
				continue
			}
			records = append(records, r)
			s.own(r)
		}
	}
	return records, broken, nil
}

func readRecord(path string) (*Record, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading record: %w", err)
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("parsing record: %w", err)
	}
	if r.Schema != recordSchema {
		return nil, fmt.Errorf("parsing record: schema %d is not known", r.Schema)
	}
	if name := hash(r.VolumeName) + recordSuffix; name != filepath.Base(path) {
		return nil, fmt.Errorf("parsing record: it speaks of volume %q, whose record is %s", r.VolumeName, name)
	}
	return &r, nil
}

// save writes the record and returns once it is on the disk. What is there already is not written again.
func (s *store) save(r *Record) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding record: %w", err)
	}
	path := s.path(r.VolumeName)
	s.own(r)
	if bytes.Equal(s.last(path), data) {
		return nil
	}
	if err := s.replace(path, data); err != nil {
		s.remember(path, nil) // what is on the disk now is not known
		return fmt.Errorf("writing record: %w", err)
	}
	s.remember(path, data)
	return nil
}

// remove deletes the volume's record; one that is not there is done.
func (s *store) remove(volumeName string) error {
	path := s.path(volumeName)
	s.remember(path, nil)
	if err := os.Remove(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			s.disown(volumeName)
			return nil
		}
		return fmt.Errorf("removing record: %w", err)
	}
	s.disown(volumeName)
	return syncDir(s.dir)
}

// own notes that there is a record of the volume.
func (s *store) own(r *Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[r.VolumeName] = identityOf(r)
}

func (s *store) disown(volumeName string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, volumeName)
}

// known are the volumes of which there is a record.
func (s *store) known() map[string]identity {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.records)
}

func (s *store) last(path string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.saved[path]
}

func (s *store) remember(path string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if data == nil {
		delete(s.saved, path)
		return
	}
	s.saved[path] = data
}

func replaceFile(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), tempPrefix)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreNotExist(os.Remove(f.Name())))
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
