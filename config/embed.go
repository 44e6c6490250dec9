/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package config has the manifests of this directory that the operator applies, and that the manager compares with.
package config

import "embed"

// Manifests are the files of config/standalone and of its components. The operator applies what they contain, so that
// there is one source for both ways to install.
//
//go:embed admission agent csidriver draining foreign-namespace forget-gone-nodes manager monitoring namespace networkpolicy node-writes rbac replace standalone
var Manifests embed.FS
