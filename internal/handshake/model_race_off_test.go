//go:build !race

/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

const raceDetector = false

// bound keeps the memory of one exploration below some 1 GiB.
const bound = 2_000_000
