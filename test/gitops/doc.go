/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package gitops tests how tools of GitOps judge Hawser's kinds: Flux by the library kstatus, Argo CD by the script in
// config/gitops. It is a module of its own, because no program of Hawser needs these libraries.
package gitops
