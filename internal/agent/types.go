/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/report"
)

// What an agent is made of and what it needs has its place in the packages below; programs find it here.
type (
	// Mounts is what the agent needs of the node's mounts.
	Mounts = operation.Mounts
	// FilesystemKnower reports whether the kernel or a program of the node knows a filesystem.
	FilesystemKnower = operation.FilesystemKnower
	// Connections are those to the API server.
	Connections = report.Connections
	// Watcher reports changes in directories.
	Watcher = kubelet.Watcher
)
