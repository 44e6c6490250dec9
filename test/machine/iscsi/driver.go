/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package iscsi is a CSI driver over disks that a real iSCSI target (tgt) of a virtual machine serves to the machine's
// initiator (open-iscsi). Its attachment is the right to log in. Its stage logs in and mounts the disk, which it finds
// by the name of the target. Where more than one network leads to the server, it logs in over each, and mounts what
// multipathd makes of the disks. Its detachment is refused as long as the initiator is logged in.
//
// It is strict with its callers, like the NFS driver: it records every call in a ledger, refuses what is out of order,
// and takes every call twice.
package iscsi

import (
	"google.golang.org/grpc"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/hawser-io/hawser/test/csiloop/recorder"
	_ "github.com/hawser-io/hawser/test/environment" // cleans that of the programs
	"github.com/hawser-io/hawser/test/machine/plugin"
)

const (
	// DriverName is the driver's registered name.
	DriverName = "iscsi.csi.hawser.io"
	// ParameterServer of a StorageClass is the name of the server that has its volumes.
	ParameterServer = "server"
	// InsideVariable of the tests of this package is the name of the server with the number 1, in whose machine they run.
	InsideVariable = "HAWSER_TEST_ISCSI_SERVER"
	// portalsKey and targetKey are what the publish context has: addresses, and the target there.
	portalsKey, targetKey = "portals", "target"
)

// ServeNode serves the node plugin of a node below the kubelet's directory. dir has the ledger and the faults. It
// returns with an error only.
func ServeNode(node, kubeletDir, dir string) error {
	server := grpc.NewServer(grpc.UnaryInterceptor(recorder.New(dir, "node", node).Intercept))
	csi.RegisterNodeServer(server, newNodeServer(node))
	return plugin.ServeNode(server, DriverName, kubeletDir)
}
