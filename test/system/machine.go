/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package system

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// MachineFile has the identity of the machine that a node's agent runs on.
func (s *System) MachineFile(node string) string {
	return filepath.Join(s.Dir, "nodes", node, "machine-identity")
}

// Identify makes the node's machine the one of that name, from the next start of its agent on.
func (s *System) Identify(node, machine string) error {
	sum := sha256.Sum256([]byte(machine))
	err := os.WriteFile(s.MachineFile(node), fmt.Appendf(nil, "%x\n%x\n", sum[:16], sum[16:]), 0o644)
	if err != nil {
		return fmt.Errorf("identifying the machine of node %s: %w", node, err)
	}
	return nil
}

// disk has the directories of a machine's disk: its agent's, and what its kubelet keeps. The driver of the node stays
// registered.
func (s *System) disk(node string) []string {
	return []string{s.AgentRoot(node), filepath.Join(s.KubeletDir(node), "pods"),
		filepath.Join(s.KubeletDir(node), "plugins", "kubernetes.io")}
}

// SetAside puts the disk of the node's machine, with all that is mounted there, under that name, so that the next
// machine begins with none. Neither agent nor kubelet of the node may run.
func (s *System) SetAside(node, machine string) error {
	return s.moveDisk(node, func(path string) (from, to string) { return path, path + "-of-" + machine })
}

// BringBack replaces the disk of the node's machine, which is set aside, by the one that was set aside under that name.
func (s *System) BringBack(node, machine string) error {
	if err := s.SetAside(node, "the-one-after-"+machine); err != nil {
		return err
	}
	return s.moveDisk(node, func(path string) (from, to string) { return path + "-of-" + machine, path })
}

func (s *System) moveDisk(node string, move func(string) (from, to string)) error {
	for _, path := range s.disk(node) {
		if err := os.Rename(move(path)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("moving the disk of node %s: %w", node, err)
		}
	}
	return nil
}
