/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/hawser-io/hawser/hack/localcluster/internal/process"
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

// Restore restores etcd from the snapshot as the documentation of etcd and Kubernetes requires. It stops the API server
// and the components that watch it before, and starts them afterwards. Guests (see Run) continue. With a bump, all
// revisions up to the new one count as compacted, so that clients list again. Without one they are reused.
func Restore(ctx context.Context, l Layout, file string, bump uint64, out io.Writer) error {
	stopped, err := stopComponents(l, out)
	if err != nil {
		return err
	}
	if err := l.restoreData(file, bump); err != nil {
		return err
	}
	for _, record := range slices.Backward(stopped) {
		if err := startAndWait(ctx, l, record.Spec); err != nil {
			return err
		}
	}
	return nil
}

// stopComponents stops the running components of Kubernetes, and returns them in that order.
func stopComponents(l Layout, out io.Writer) ([]process.Record, error) {
	records, err := l.Processes().List()
	if err != nil {
		return nil, err
	}
	first := stopRank(process.Record{Spec: process.Spec{Name: AttacherAccount}})
	records = slices.DeleteFunc(records, func(r process.Record) bool {
		return !r.Running() || stopRank(r) < first && !strings.HasPrefix(r.Name, kubeletName(""))
	})
	slices.SortStableFunc(records, func(a, b process.Record) int { return cmp.Compare(stopRank(a), stopRank(b)) })
	for _, record := range records {
		if err := stopRecord(record, out); err != nil {
			return nil, err
		}
	}
	return records, nil
}

func (l Layout) restoreData(file string, bump uint64) error {
	ports, err := l.ports()
	if err != nil {
		return err
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
	return nil
}
