/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package record

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

// Store keeps the records, one file each. A file is replaced as a whole: after a crash it holds the
// old record or the new one, never a part.
type Store struct {
	Dir string
	// Replace is Host.ReplaceFile.
	Replace func(path string, data []byte) error

	// saving is held while the one file about the kubelet's volumes is written.
	saving sync.Mutex

	mu    sync.Mutex
	saved map[string][]byte
	// records are on the disk, or may be, by volume.
	records map[string]Identity
	// places are the paths at which the records have something mounted, by volume.
	places map[string][]string
}

// Identity is what names a record's volume in what the kubelet has on the node.
type Identity struct {
	Driver, Handle, PersistentVolume string
	// Hash of the handle, as in paths.
	Hash string
}

// identityOf is empty for a volume that the kubelet does not know.
func identityOf(r *Record) Identity {
	if !r.VolumeSource().KubeletKnows() {
		return Identity{}
	}
	return Identity{Driver: r.Driver, Handle: r.Handle, PersistentVolume: r.PersistentVolume, Hash: Hash(r.Handle)}
}

// Broken is a file that holds no record.
type Broken struct {
	Name string
	Err  error
}

const (
	// Suffix of a record's file.
	Suffix     = ".json"
	tempPrefix = ".new-"
)

// OpenStore returns a store of records in dir, which it creates if it has to.
func OpenStore(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making record directory: %w", err)
	}
	return &Store{Dir: dir, Replace: ReplaceFile, saved: map[string][]byte{}, records: map[string]Identity{},
		places: map[string][]string{}}, nil
}

// Path is the file of the volume's record.
func (s *Store) Path(volumeName string) string {
	return filepath.Join(s.Dir, Hash(volumeName)+Suffix)
}

// Load reads every record, and clears away what an interrupted save left behind.
func (s *Store) Load() ([]*Record, []Broken, error) {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return nil, nil, fmt.Errorf("reading record directory: %w", err)
	}
	var records []*Record
	var broken []Broken
	for _, e := range entries {
		path := filepath.Join(s.Dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), tempPrefix):
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, nil, fmt.Errorf("removing unfinished record: %w", err)
			}
		case strings.HasSuffix(e.Name(), Suffix):
			r, err := ReadRecord(path)
			if err != nil {
				broken = append(broken, Broken{Name: e.Name(), Err: err})
				continue
			}
			records = append(records, r)
			s.Note(r)
		}
	}
	return records, broken, nil
}

// ReadRecord reads one record. It fails if the file holds none, or the record of another volume.
func ReadRecord(path string) (*Record, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading record: %w", err)
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("parsing record: %w", err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("parsing record: schema %d is not known", r.Schema)
	}
	if name := Hash(r.VolumeName) + Suffix; name != filepath.Base(path) {
		return nil, fmt.Errorf("parsing record: it speaks of volume %q, whose record is %s", r.VolumeName, name)
	}
	return &r, nil
}

// Save writes the record and returns once it is on the disk. What is there already is not written again. After an error
// the disk may have it, but no step follows a first record that was not saved: the volume is not Known by it.
func (s *Store) Save(r *Record) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding record: %w", err)
	}
	path := s.Path(r.VolumeName)
	was := s.Note(r)
	if bytes.Equal(s.last(path), data) {
		return nil
	}
	if err := s.Replace(path, data); err != nil {
		s.remember(path, nil) // what is on the disk now is not known
		if !was {
			s.Forget(r.VolumeName)
		}
		return fmt.Errorf("writing record: %w", err)
	}
	s.remember(path, data)
	return nil
}

// Remove deletes the volume's record; one that is not there is done.
func (s *Store) Remove(volumeName string) error {
	path := s.Path(volumeName)
	s.remember(path, nil)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing record: %w", err)
	}
	s.Forget(volumeName)
	return syncDir(s.Dir)
}

// Note notes that there is a record of the volume, and returns whether that was known.
func (s *Store) Note(r *Record) (was bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, was = s.records[r.VolumeName]
	s.records[r.VolumeName], s.places[r.VolumeName] = identityOf(r), r.places()
	return was
}

// Forget notes that there is no record of the volume, whatever the disk has.
func (s *Store) Forget(volumeName string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, volumeName)
	delete(s.places, volumeName)
}

// Knows reports whether the volume has a record.
func (s *Store) Knows(volumeName string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.records[volumeName]
	return known
}

// Known are the volumes that have a record.
func (s *Store) Known() map[string]Identity {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.records)
}

// Places are the paths at which each volume with a record has, or may have, something mounted.
func (s *Store) Places() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.places)
}

func (s *Store) last(path string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.saved[path]
}

func (s *Store) remember(path string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if data == nil {
		delete(s.saved, path)
		return
	}
	s.saved[path] = data
}

// ReplaceFile returns once data is on the disk. After a crash the file holds the old data or the new, never a part.
func ReplaceFile(path string, data []byte) (err error) {
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
