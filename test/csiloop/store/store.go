/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package store is the backing store that all processes of the driver share. Its state is on disk and changes under one
// lock, so that any process may be killed at any moment. Errors have the gRPC code of the CSI specification.
package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hawser-io/hawser/test/csiloop/filelock"
)

// Store is a backing directory.
type Store struct {
	dir      string
	capacity int64
}

// Volume is a volume's record.
type Volume struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Created, in nanoseconds of the wall clock, orders the list of volumes.
	Created int64 `json:"created"`
	// Publications by node. A publication is recorded before the node gets its link and deleted after the link. If the
	// process is killed in between, the node counts as published.
	Publications map[string]Publication `json:"publications,omitempty"`
	// Size of the data file.
	Size int64 `json:"-"`
}

// Publication is how a volume is published to a node.
type Publication struct {
	AccessMode string `json:"accessMode"`
	Block      bool   `json:"block,omitempty"`
	ReadOnly   bool   `json:"readOnly,omitempty"`
}

// Node is a pseudo node that a node plugin registered.
type Node struct {
	ID string `json:"id"`
	// MaxVolumes that may be published to it; 0 is no limit.
	MaxVolumes int64 `json:"maxVolumes,omitempty"`
}

// validID matches the IDs that are safe as file names: none leaves the directory.
var validID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,126}$`)

// Open prepares a backing directory. capacity limits the sum of all volume sizes; 0 means the size of the disk.
func Open(dir string, capacity int64) (*Store, error) {
	for _, sub := range []string{"volumes", "nodes", "faults"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, fmt.Errorf("creating backing directory: %w", err)
		}
	}
	// The kernel reports backing files by their real path.
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, fmt.Errorf("resolving backing directory: %w", err)
	}
	real, err = filepath.Abs(real)
	return &Store{dir: real, capacity: capacity}, err
}

// Dir is the backing directory.
func (s *Store) Dir() string { return s.dir }

func (s *Store) image(id string) string  { return filepath.Join(s.dir, "volumes", id+".img") }
func (s *Store) record(id string) string { return filepath.Join(s.dir, "volumes", id+".json") }
func (s *Store) nodeDir(node string) string {
	return filepath.Join(s.dir, "nodes", node)
}

// Link is the node's own path to the volume's data.
func (s *Store) Link(id, node string) string {
	return filepath.Join(s.nodeDir(node), "attached", id+".img")
}

func (s *Store) locked(do func() error) error {
	return filelock.With(filepath.Join(s.dir, "lock"), do)
}

// Get reads a volume.
func (s *Store) Get(id string) (Volume, error) {
	missing := status.Errorf(codes.NotFound, "volume %q does not exist", id)
	if !validID.MatchString(id) {
		return Volume{}, missing
	}
	data, err := os.ReadFile(s.record(id))
	if errors.Is(err, os.ErrNotExist) {
		return Volume{}, missing
	}
	if err != nil {
		return Volume{}, fmt.Errorf("reading volume record: %w", err)
	}
	var volume Volume
	if err := json.Unmarshal(data, &volume); err != nil {
		return Volume{}, fmt.Errorf("decoding volume record %s: %w", id, err)
	}
	info, err := os.Stat(s.image(id))
	if errors.Is(err, os.ErrNotExist) {
		return Volume{}, missing // deleted between the two reads
	}
	if err != nil {
		return Volume{}, fmt.Errorf("reading volume size: %w", err)
	}
	volume.Size = info.Size()
	return volume, nil
}

func (s *Store) put(volume Volume) error {
	data, err := json.Marshal(volume)
	if err != nil {
		return fmt.Errorf("encoding volume record: %w", err)
	}
	return filelock.WriteAtomic(s.record(volume.ID), data)
}

// List returns all volumes, oldest first.
func (s *Store) List() ([]Volume, error) {
	records, err := filepath.Glob(filepath.Join(s.dir, "volumes", "*.json"))
	if err != nil {
		return nil, fmt.Errorf("listing volumes: %w", err)
	}
	volumes := make([]Volume, 0, len(records))
	for _, record := range records {
		volume, err := s.Get(strings.TrimSuffix(filepath.Base(record), ".json"))
		if status.Code(err) == codes.NotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		volumes = append(volumes, volume)
	}
	slices.SortFunc(volumes, func(a, b Volume) int {
		return int(min(max(a.Created-b.Created, -1), 1))
	})
	return volumes, nil
}

// RegisterNode adds a node for the controller.
func (s *Store) RegisterNode(node Node) error {
	if !validID.MatchString(node.ID) {
		return fmt.Errorf("node id %q is not usable as a file name", node.ID)
	}
	for _, sub := range []string{"attached", "targets"} {
		if err := os.MkdirAll(filepath.Join(s.nodeDir(node.ID), sub), 0o755); err != nil {
			return fmt.Errorf("creating node directory: %w", err)
		}
	}
	data, err := json.Marshal(node)
	if err != nil {
		return fmt.Errorf("encoding node record: %w", err)
	}
	return filelock.WriteAtomic(filepath.Join(s.nodeDir(node.ID), "node.json"), data)
}

// HoldNode prevents other processes from serving the same node until the returned file is closed.
func (s *Store) HoldNode(node string) (*os.File, error) {
	return filelock.Hold(filepath.Join(s.nodeDir(node), "lock"))
}

func (s *Store) node(id string) (Node, error) {
	missing := status.Errorf(codes.NotFound, "node %q is unknown", id)
	if !validID.MatchString(id) {
		return Node{}, missing
	}
	data, err := os.ReadFile(filepath.Join(s.nodeDir(id), "node.json"))
	if errors.Is(err, os.ErrNotExist) {
		return Node{}, missing
	}
	if err != nil {
		return Node{}, fmt.Errorf("reading node record: %w", err)
	}
	var node Node
	if err := json.Unmarshal(data, &node); err != nil {
		return Node{}, fmt.Errorf("decoding node record %s: %w", id, err)
	}
	return node, nil
}
