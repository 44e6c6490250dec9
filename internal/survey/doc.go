/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package survey has the views of what was read that judge no cause: the tree of a volume or a node, how full volumes
// are, orphans, the history of a volume, and what a drain would meet. It is pure; package cli prints.
package survey
