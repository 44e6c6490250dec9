/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package nfs is a CSI driver over directories that a real NFS server of a virtual machine exports. As usual for NFS it
// has neither attachment nor stage: each publication is a mount of its own, which mount-utils makes and takes away,
// careless of servers that do not answer.
//
// It is strict with its callers: it records every call in a ledger, refuses what is out of order, and takes every call
// twice. The node's ledger and its faults are in a directory of its own, because a lock on a shared filesystem of the
// machine holds only inside.
package nfs

import (
	"google.golang.org/grpc"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/hawser-io/hawser/test/csiloop/recorder"
	_ "github.com/hawser-io/hawser/test/environment" // cleans that of the programs
	"github.com/hawser-io/hawser/test/machine/plugin"
)

const (
	// DriverName is the driver's registered name.
	DriverName = "nfs.csi.hawser.io"
	// ParameterServer of a StorageClass is the name of the server that has its volumes.
	ParameterServer = "server"
	// InsideVariable of the tests of this package is the name of the server with the number 1, in whose machine they run.
	InsideVariable = "HAWSER_TEST_NFS_SERVER"
	// addressKey and directoryKey are the attributes of a volume: its server's address, and its directory there.
	addressKey, directoryKey = "address", "directory"
)

// ServeNode serves the node plugin of a node below the kubelet's directory. dir has the ledger and the faults. It
// returns with an error only.
func ServeNode(node, kubeletDir, dir string) error {
	server := grpc.NewServer(grpc.UnaryInterceptor(recorder.New(dir, "node", node).Intercept))
	csi.RegisterNodeServer(server, newNodeServer(node))
	return plugin.ServeNode(server, DriverName, kubeletDir)
}
