/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/hawser-io/hawser/test/csiloop/filelock"
)

func (s *Store) targetsFile(id, node string) string {
	return filepath.Join(s.nodeDir(node), "targets", id+".json")
}

// Targets are the paths at which the node was asked to publish the volume. Only the mount table shows if it did.
func (s *Store) Targets(id, node string) ([]string, error) {
	if !validID.MatchString(id) {
		return nil, nil
	}
	data, err := os.ReadFile(s.targetsFile(id, node))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading targets: %w", err)
	}
	var targets []string
	if err := json.Unmarshal(data, &targets); err != nil {
		return nil, fmt.Errorf("decoding targets of %s: %w", id, err)
	}
	return targets, nil
}

// AddTarget records a target before it is mounted. Calls for one volume on one node must not run concurrently.
func (s *Store) AddTarget(id, node, target string) error {
	targets, err := s.Targets(id, node)
	if err != nil || slices.Contains(targets, target) {
		return err
	}
	return s.putTargets(id, node, append(targets, target))
}

// RemoveTarget deletes the record of a target after it was unmounted.
func (s *Store) RemoveTarget(id, node, target string) error {
	targets, err := s.Targets(id, node)
	if err != nil || !slices.Contains(targets, target) {
		return err
	}
	return s.putTargets(id, node, slices.DeleteFunc(targets, func(t string) bool { return t == target }))
}

func (s *Store) putTargets(id, node string, targets []string) error {
	if len(targets) == 0 {
		return remove(s.targetsFile(id, node))
	}
	data, err := json.Marshal(targets)
	if err != nil {
		return fmt.Errorf("encoding targets: %w", err)
	}
	return filelock.WriteAtomic(s.targetsFile(id, node), data)
}
