/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cluster

import (
	"context"
	"fmt"
	"io"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// Backup writes a snapshot of the running etcd to the file.
func Backup(ctx context.Context, l Layout, file string) error {
	ports, err := l.ports()
	if err != nil {
		return err
	}
	endpoint := fmt.Sprintf("http://127.0.0.1:%d", ports.EtcdClient)
	if _, err := snapshot.NewV3(zap.NewNop()).Save(ctx, clientv3.Config{Endpoints: []string{endpoint}}, file); err != nil {
		return fmt.Errorf("taking a snapshot of etcd: %w", err)
	}
	return nil
}

// Restore stops the API server and etcd, restores etcd from the snapshot, and starts both again, as etcd's documentation asks for. With a
// bump of the revision the revisions up to there count as compacted, so that clients list anew; without one they are used again.
func Restore(ctx context.Context, l Layout, file string, bump uint64, out io.Writer) error {
	ports, err := l.ports()
	if err != nil {
		return err
	}
	for _, name := range []string{apiServer, etcd} {
		if err := Stop(l, name, out); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(l.etcdData()); err != nil {
		return fmt.Errorf("deleting etcd's data: %w", err)
	}
	peer := fmt.Sprintf("http://127.0.0.1:%d", ports.EtcdPeer)
	err = snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, Name: "default", OutputDataDir: l.etcdData(), PeerURLs: []string{peer},
		InitialCluster: "default=" + peer, InitialClusterToken: "restored", RevisionBump: bump, MarkCompacted: bump > 0,
	})
	if err != nil {
		return fmt.Errorf("restoring etcd: %w", err)
	}
	for _, name := range []string{etcd, apiServer} {
		if err := Start(ctx, l, name); err != nil {
			return err
		}
	}
	return nil
}
