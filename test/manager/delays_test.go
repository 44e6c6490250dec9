/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// errLost is what a leader gets for a request that it has given up and that is still on its way.
var errLost = errors.New("the connection was lost")

// delays holds up requests of two leaders: live reads, and writes, which then arrive arbitrarily late. One of the two
// is active at a time: its requests are not held up, so that the work gets done. They take turns. Nothing is measured
// in time: a request is released when a number of writes has been answered.
type delays struct {
	mu     sync.Mutex
	random *rand.Rand
	active int
	// answered counts the writes of both; turn is when the other leader becomes active.
	answered, turn int
	pending        []*delay
	// focus is the request that is delayed most often during a turn, and depth the mean delay.
	focus string
	depth float64
	// off: nothing is delayed, not yet or not any more.
	off bool
	// stalled has a channel for each resource whose changes the inactive leader does not see; it is closed when the
	// leader sees them again.
	stalled map[string]chan struct{}
	log     []string
}

// focusChoices are the requests whose delay matters most.
var focusChoices = []string{
	"", "PUT nodevolumestates", "GET nodevolumestates", "POST volumeattachments", "GET volumeattachments",
	"DELETE volumeattachments",
	"PUT configmaps", "GET configmaps", "POST configmaps", "PATCH nodes/status",
}

// delay is one request that is held up.
type delay struct {
	leader int
	write  bool
	// due is the number of answered writes that releases the request.
	due      int
	released chan struct{}
	// lost is closed when the leader gives the request up.
	lost chan struct{}
}

func newDelays(seed uint64) *delays {
	return &delays{random: rand.New(rand.NewPCG(seed, 1)), stalled: map[string]chan struct{}{}, off: true}
}

// begin starts the delays. Before that, both leaders have to fill their caches.
func (s *delays) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.off = false
	s.switchActive()
}

// transport is a leader's way to the API server.
func (s *delays) transport(leader int) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return &delayedTransport{s, leader, next} }
}

type delayedTransport struct {
	*delays
	leader int
	next   http.RoundTripper
}

func (w *delayedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") == "true" {
		return w.watch(r)
	}
	what := describeRequest(r)
	if what == "" {
		return w.next.RoundTrip(r)
	}
	n := w.delayOf(w.leader, what)
	if n == nil {
		answer, err := w.next.RoundTrip(r)
		w.logAnswer(w.leader, r, "", answer, err)
		return answer, err
	}
	return w.sendLate(r, n)
}

// sendLate sends the request when it is released, whether the leader still waits for it or not.
func (w *delayedTransport) sendLate(r *http.Request, n *delay) (*http.Response, error) {
	late := r.Clone(context.WithoutCancel(r.Context()))
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err := errors.Join(err, r.Body.Close()); err != nil {
			return nil, err
		}
		late.Body = io.NopCloser(bytes.NewReader(body))
	}
	type result struct {
		answer *http.Response
		err    error
	}
	done := make(chan result, 1)
	go func() {
		<-n.released
		answer, err := w.next.RoundTrip(late)
		if err == nil {
			// The leader may not wait for the answer any more.
			var body []byte
			body, err = io.ReadAll(answer.Body)
			err = errors.Join(err, answer.Body.Close())
			answer.Body = io.NopCloser(bytes.NewReader(body))
		}
		w.logAnswer(w.leader, r, "late, ", answer, err)
		done <- result{answer, err}
	}()
	select {
	case d := <-done:
		return d.answer, d.err
	case <-n.lost:
		return nil, errLost
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// delayOf decides whether a request is delayed; nil if it is not.
func (s *delays) delayOf(leader int, what string) *delay {
	s.mu.Lock()
	defer s.mu.Unlock()
	odds := 0.2
	if what == s.focus {
		odds = 0.8
	}
	if s.off || leader == s.active || s.random.Float64() > odds {
		return nil
	}
	n := &delay{
		leader: leader, write: !strings.HasPrefix(what, http.MethodGet),
		due:      s.answered + 1 + int(s.random.ExpFloat64()*s.depth),
		released: make(chan struct{}), lost: make(chan struct{}),
	}
	s.pending = append(s.pending, n)
	return n
}

// logAnswer logs an answer, and releases the requests that are due.
func (s *delays) logAnswer(leader int, r *http.Request, how string, answer *http.Response, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := fmt.Sprint(err)
	if err == nil {
		status = answer.Status
	}
	s.log = append(s.log, fmt.Sprintf("leader %d: %s %s: %s%s", leader, describeRequest(r), nameIn(r), how, status))
	if r.Method == http.MethodGet {
		return
	}
	s.answered++
	s.release(func(n *delay) bool { return n.due <= s.answered })
	if s.answered >= s.turn && !s.off {
		s.switchActive()
	}
}

func (s *delays) release(which func(*delay) bool) {
	s.pending = slices.DeleteFunc(s.pending, func(n *delay) bool {
		if which(n) {
			close(n.released)
			return true
		}
		return false
	})
}

// switchActive makes the other leader active. The requests that it waits for are released now or given up; a write
// that is given up may still arrive.
func (s *delays) switchActive() {
	s.turn = s.answered + 5 + s.random.IntN(40)
	s.active = 1 - s.active
	s.log = append(s.log, fmt.Sprintf("leader %d is active", s.active))
	s.release(func(n *delay) bool { return n.leader == s.active && (!n.write || s.random.IntN(2) == 0) })
	for _, n := range s.pending {
		if n.leader == s.active {
			select {
			case <-n.lost:
			default:
				close(n.lost)
			}
		}
	}
	s.resumeWatches()
	for _, resource := range stallable {
		if s.random.IntN(4) == 0 {
			s.stalled[resource] = make(chan struct{})
		}
	}
	s.focus, s.depth = focusChoices[s.random.IntN(len(focusChoices))], []float64{3, 15, 50}[s.random.IntN(3)]
}

// stallable are the resources whose changes a leader may not see for a while, each by itself.
var stallable = []string{"nodevolumestates", "volumeattachmentintents", "volumeattachments", "leases", "configmaps",
	"nodes", "pods"}

// resumeWatches lets a leader see all changes again.
func (s *delays) resumeWatches() {
	for _, gate := range s.stalled {
		close(gate)
	}
	clear(s.stalled)
}

// end releases everything and delays nothing any more.
func (s *delays) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.off = true
	s.release(func(*delay) bool { return true })
	s.resumeWatches()
}

// last are the latest requests.
func (s *delays) last(n int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.log[max(0, len(s.log)-n):], "\n")
}

// watch keeps changes from the leader while the resource is stalled.
func (w *delayedTransport) watch(r *http.Request) (*http.Response, error) {
	answer, err := w.next.RoundTrip(r)
	if err == nil {
		answer.Body = &delayedWatch{ReadCloser: answer.Body, transport: w, resource: nameIn(r), closed: make(chan struct{})}
	}
	return answer, err
}

type delayedWatch struct {
	io.ReadCloser
	transport *delayedTransport
	resource  string
	once      sync.Once
	closed    chan struct{}
}

func (b *delayedWatch) Read(p []byte) (int, error) {
	gate := b.transport.stalledFor(b.transport.leader, b.resource)
	if gate != nil {
		select {
		case <-gate:
		case <-b.closed:
		}
	}
	return b.ReadCloser.Read(p)
}

// stalledFor returns what a leader waits for before it sees changes of a resource; nil if it sees them.
func (s *delays) stalledFor(leader int, resource string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if leader == s.active {
		return nil
	}
	return s.stalled[resource]
}

func (b *delayedWatch) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.ReadCloser.Close()
}
