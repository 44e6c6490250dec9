/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package csiloop has the names that the loop CSI driver and its users share. The driver stores volumes as sparse files
// and attaches them to nodes as loop devices. All pseudo nodes, one process each, share one backing directory:
//
//	<backing>/volumes/<id>.img                the volume's data: the one authoritative inode
//	<backing>/volumes/<id>.json               its record: name, publications
//	<backing>/nodes/<node>/attached/<id>.img  a hard link to it while it is published to the node
//	<backing>/ledger.jsonl                    every call of all processes, in order (package ledger)
//	<backing>/faults/                         commanded faults (package faults)
package csiloop

import "path/filepath"

// DriverName is the driver's registered name.
const DriverName = "loop.csi.hawser.io"

// NodeSocket is the socket of a node plugin below its kubelet's directory.
func NodeSocket(kubeletDir string) string {
	return filepath.Join(kubeletDir, "plugins", DriverName, "csi.sock")
}

// RegistrationSocket is where the kubelet, or an agent, finds a node plugin.
func RegistrationSocket(kubeletDir string) string {
	return filepath.Join(kubeletDir, "plugins_registry", DriverName+"-reg.sock")
}

// ControllerSocket is the default socket of a process that serves only the controller.
func ControllerSocket(backingDir string) string {
	return filepath.Join(backingDir, "controller.sock")
}
