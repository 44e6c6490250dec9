/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"net/http"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// serverClock is the clock of the API server, to a second or so, as its answers show it. That of the user's machine may
// be off, and would make living agents dead.
type serverClock struct {
	local func() time.Time
	// ahead of the local clock, in nanoseconds; zero before the first answer.
	ahead atomic.Int64
}

// Now is the local time before the first answer.
func (c *serverClock) Now() time.Time { return c.local().Add(time.Duration(c.ahead.Load())) }

// listenTo reads the date of each answer.
func (c *serverClock) listenTo(next http.RoundTripper) http.RoundTripper {
	return &dated{RoundTripper: next, clock: c}
}

type dated struct {
	http.RoundTripper
	clock *serverClock
}

var _ utilnet.RoundTripperWrapper = &dated{}

func (d *dated) WrappedRoundTripper() http.RoundTripper { return d.RoundTripper }

func (d *dated) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := d.RoundTripper.RoundTrip(request)
	if err != nil {
		return response, err
	}
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		d.clock.ahead.Store(int64(date.Sub(d.clock.local())))
	}
	return response, nil
}
