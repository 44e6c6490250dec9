/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package controllertest

import (
	"testing"
	"time"
	"unsafe"
)

// Jump is a time as a machine shows it whose wall clock was set by d; its monotonic clock goes on undisturbed.
func Jump(t testing.TB, at time.Time, d time.Duration) time.Time {
	t.Helper()
	before := at
	// The seconds of a Time with a monotonic reading stand above its 30 bits of nanoseconds.
	wall := (*uint64)(unsafe.Pointer(&at))
	*wall = uint64(int64(*wall) + int64(d/time.Second)<<30)
	if got := at.Round(0).Sub(before.Round(0)); got != d || !at.Equal(before) {
		t.Fatalf("the wall clock jumped by %s, the monotonic one by %s; want %s and 0", got, at.Sub(before), d)
	}
	return at
}
