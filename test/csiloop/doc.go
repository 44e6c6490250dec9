/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package csiloop names what the loop CSI driver and its users share. The driver keeps volumes as sparse files and
// shows them to nodes as loop devices; any number of pseudo nodes, one process each, share one backing directory:
//
//	<backing>/volumes/<id>.img                the volume's data: the one authoritative inode
//	<backing>/volumes/<id>.json               its record: name, publications
//	<backing>/nodes/<node>/attached/<id>.img  a hard link to it while it is published to the node
//	<backing>/ledger.jsonl                    every call, in order, over all processes (package ledger)
//	<backing>/faults/                         faults on command (package faults)
package csiloop

import "path/filepath"

// DriverName is the name under which the driver registers.
const DriverName = "loop.csi.hawser.io"

// NodeSocket is where a node plugin listens below its kubelet's directory.
func NodeSocket(kubeletDir string) string {
	return filepath.Join(kubeletDir, "plugins", DriverName, "csi.sock")
}

// RegistrationSocket is where the kubelet, or an agent, finds a node plugin.
func RegistrationSocket(kubeletDir string) string {
	return filepath.Join(kubeletDir, "plugins_registry", DriverName+"-reg.sock")
}

// ControllerSocket is where a process that serves only the controller listens unless told otherwise.
func ControllerSocket(backingDir string) string {
	return filepath.Join(backingDir, "controller.sock")
}
