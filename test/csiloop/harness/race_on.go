//go:build race

/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package harness

// raceEnabled: the driver is built with the race detector if its tests are.
const raceEnabled = true
