//go:build race

/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

// raceDetector: the program runs some ten times slower.
const raceDetector = true
