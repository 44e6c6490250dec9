//go:build race

/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package harness

// raceEnabled is true if the tests, and therefore the driver, are built with the race detector.
const raceEnabled = true
