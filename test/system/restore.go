/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package system

import (
	"context"
	"strconv"
)

// Backup takes a snapshot of etcd.
func (s *System) Backup(ctx context.Context, file string) error {
	return s.localcluster(ctx, "backup", "--dir", s.Dir, file)
}

// Restore restores etcd from a snapshot, with the API server stopped. It adds bump to the revision. With 0,
// revisions are reused.
func (s *System) Restore(ctx context.Context, file string, bump uint64) error {
	err := s.localcluster(ctx, "restore", "--dir", s.Dir, "--bump-revision", strconv.FormatUint(bump, 10), file)
	if err != nil {
		return err
	}
	return s.awaitPolicies(ctx)
}

// KeepAgent runs a node's agent like StartAgent, and restarts it whenever it ends, as a kubelet would.
func (s *System) KeepAgent(ctx context.Context, node string) error {
	return s.kept().StartAgent(ctx, node)
}

// KeepManager is KeepAgent for the cluster controller.
func (s *System) KeepManager(ctx context.Context) error { return s.kept().StartManager(ctx) }

func (s *System) kept() *System {
	kept := *s
	kept.keep = true
	return &kept
}
