/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

// requestCounter counts the manager's requests by verb and resource, Events apart.
type requestCounter struct {
	next http.RoundTripper
	// down, if it is not nil: the API server cannot be reached. It receives each write that did not arrive.
	down atomic.Pointer[chan struct{}]
	mu   sync.Mutex
	seen map[string]int
}

func (c *requestCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	if what := describeRequest(r); what != "" {
		c.mu.Lock()
		c.seen[what]++
		c.mu.Unlock()
	}
	if missed := c.down.Load(); missed != nil {
		if r.Method != http.MethodGet {
			select {
			case *missed <- struct{}{}:
			default:
			}
		}
		return nil, errors.New("the API server is down")
	}
	return c.next.RoundTrip(r)
}

// goDown lets no request through any more, and returns what is sent to with each write.
func (c *requestCounter) goDown() <-chan struct{} {
	missed := make(chan struct{}, 100)
	c.down.Store(&missed)
	return missed
}

// describeRequest names a single object's request, such as "PATCH volumeattachments"; empty for what is not counted.
func describeRequest(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(parts) > 1 && parts[0] == "api" {
		parts = parts[2:]
	} else if len(parts) > 2 {
		parts = parts[3:]
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) == 0 || parts[0] == "events" || r.Method == http.MethodGet && len(parts) < 2 {
		return ""
	}
	what := r.Method + " " + parts[0]
	if len(parts) > 2 {
		what += "/" + parts[2]
	}
	return what
}

func (c *requestCounter) writes() (int, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for what, count := range c.seen {
		if !strings.HasPrefix(what, http.MethodGet) {
			n += count
		}
	}
	return n, fmt.Sprint(c.seen)
}

func (c *requestCounter) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.seen)
}

func (c *requestCounter) count(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[what]
}

// collectionIn is the resource that a LIST or a WATCH is about; empty for any other request.
func collectionIn(r *http.Request) string {
	if r.Method != http.MethodGet || describeRequest(r) != "" {
		return ""
	}
	return nameIn(r)
}

// nameIn is the name of the object that a request is about; of a collection, the resource.
func nameIn(r *http.Request) string {
	path := strings.TrimSuffix(strings.TrimSuffix(r.URL.Path, "/"), "/status")
	return path[strings.LastIndex(path, "/")+1:]
}
