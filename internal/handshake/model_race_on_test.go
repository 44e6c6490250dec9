//go:build race

/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

const raceDetector = true

// bound keeps explorations short: under the race detector the program runs some ten times slower.
const bound = 5_000
