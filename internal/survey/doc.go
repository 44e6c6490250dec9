/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package survey has the views of node states that judge no cause: how full volumes are, orphans, and what a drain
// would meet. It is pure; package cli prints.
package survey
