/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package endpoints helps tests to ask what a program serves over HTTP: its probes and its metrics.
package endpoints

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// patience is longer than a program takes to start on a machine that runs many tests.
const patience = time.Minute

// FreeAddress returns an address of this machine that nothing listens on.
func FreeAddress(t *testing.T) string {
	t.Helper()
	address, err := Free(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// Free returns an address of this machine that nothing listens on. The kernel takes ports from 32768 on for connections
// and for listeners without a port, so those could be in use before the caller listens.
func Free(ctx context.Context) (string, error) {
	var last error
	for range 100 {
		//nolint:gosec // any free port will do
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(10000)))
		if err == nil {
			return listener.Addr().String(), listener.Close()
		}
		last = err
	}
	return "", fmt.Errorf("finding a free port: %w", last)
}

// Run runs a program until the test ends, and then waits for its end.
func Run(t *testing.T, program func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- program(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Await waits until a GET of the URL, without a token, is answered with the status. Nothing announces that.
func Await(t *testing.T, what, url string, want int) {
	t.Helper()
	last, body := 0, ""
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true,
		func(context.Context) (bool, error) {
			last, body = Send(t, http.MethodGet, url, "")
			return last == want, nil
		})
	if err != nil {
		t.Fatalf("waiting until %s: GET %s has status %d, want %d: %s", what, url, last, want, body)
	}
}

// Send sends a request, with a bearer token if it is not empty, and accepts every certificate. The status is 0 if there
// is no answer; the body is then the error.
func Send(t *testing.T, method, url, token string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the certificate may be self-signed
		DisableKeepAlives: true,
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}
