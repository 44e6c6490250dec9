/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package controller_test

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

// sleeps lets the requests of two leaders sleep: before a live read and before a write, which then arrives
// arbitrarily late. One of the two is awake at a time, so that what is wanted comes about; they take turns. Nothing
// is measured in time: a request wakes when so many others have been answered.
type sleeps struct {
	mu     sync.Mutex
	random *rand.Rand
	awake  int
	// answered counts the writes of both; turn is when the other one is to be awake.
	answered, turn int
	napping        []*nap
	// focus is what sleeps most often during a turn, and depth for how long about.
	focus string
	depth float64
	// over: nothing sleeps, not yet or not any more.
	over bool
	// stalled is closed when the sleeping leader sees news again of the resources that are named in it.
	stalled map[string]chan struct{}
	log     []string
}

// focuses are the requests that it matters most to oversleep.
var focuses = []string{
	"", "PUT nodevolumestates", "GET nodevolumestates", "POST volumeattachments", "GET volumeattachments", "DELETE volumeattachments",
	"PUT configmaps", "GET configmaps", "POST configmaps", "PATCH nodes/status",
}

// nap is one request that sleeps.
type nap struct {
	leader int
	write  bool
	// until so many writes were answered.
	until int
	wake  chan struct{}
	// lost is closed when the leader gives the request up.
	lost chan struct{}
}

func newSleeps(seed uint64) *sleeps {
	return &sleeps{random: rand.New(rand.NewPCG(seed, 1)), stalled: map[string]chan struct{}{}, over: true}
}

// begin lets requests sleep from now on; before, both leaders have to see what there is.
func (s *sleeps) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = false
	s.takeTurns()
}

// transport is a leader's way to the API server.
func (s *sleeps) transport(leader int) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return &sleepwalker{s, leader, next} }
}

type sleepwalker struct {
	*sleeps
	leader int
	next   http.RoundTripper
}

func (w *sleepwalker) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") == "true" {
		return w.watch(r)
	}
	what := describeRequest(r)
	if what == "" {
		return w.next.RoundTrip(r)
	}
	n := w.doze(w.leader, what)
	if n == nil {
		answer, err := w.next.RoundTrip(r)
		w.note(w.leader, r, "", answer, err)
		return answer, err
	}
	return w.sleep(r, n)
}

// sleep sends the request when its nap is over, whether the leader still waits for it or not.
func (w *sleepwalker) sleep(r *http.Request, n *nap) (*http.Response, error) {
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
		<-n.wake
		answer, err := w.next.RoundTrip(late)
		if err == nil {
			// It may have no reader.
			var body []byte
			body, err = io.ReadAll(answer.Body)
			err = errors.Join(err, answer.Body.Close())
			answer.Body = io.NopCloser(bytes.NewReader(body))
		}
		w.note(w.leader, r, "late, ", answer, err)
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

// doze decides whether a request sleeps; nil when it does not.
func (s *sleeps) doze(leader int, what string) *nap {
	s.mu.Lock()
	defer s.mu.Unlock()
	tired := 0.2
	if what == s.focus {
		tired = 0.8
	}
	if s.over || leader == s.awake || s.random.Float64() > tired {
		return nil
	}
	n := &nap{
		leader: leader, write: !strings.HasPrefix(what, http.MethodGet), until: s.answered + 1 + int(s.random.ExpFloat64()*s.depth),
		wake: make(chan struct{}), lost: make(chan struct{}),
	}
	s.napping = append(s.napping, n)
	return n
}

// note takes down an answer, and wakes what slept for long enough.
func (s *sleeps) note(leader int, r *http.Request, how string, answer *http.Response, err error) {
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
	s.wakeUp(func(n *nap) bool { return n.until <= s.answered })
	if s.answered >= s.turn && !s.over {
		s.takeTurns()
	}
}

func (s *sleeps) wakeUp(which func(*nap) bool) {
	s.napping = slices.DeleteFunc(s.napping, func(n *nap) bool {
		if which(n) {
			close(n.wake)
			return true
		}
		return false
	})
}

// takeTurns lets the other leader be awake. What it waits for is answered now or never: a write may still be on its
// way.
func (s *sleeps) takeTurns() {
	s.turn = s.answered + 5 + s.random.IntN(40)
	s.awake = 1 - s.awake
	s.log = append(s.log, fmt.Sprintf("leader %d is awake", s.awake))
	s.wakeUp(func(n *nap) bool { return n.leader == s.awake && (!n.write || s.random.IntN(2) == 0) })
	for _, n := range s.napping {
		if n.leader == s.awake {
			select {
			case <-n.lost:
			default:
				close(n.lost)
			}
		}
	}
	s.seeNews()
	for _, resource := range watched {
		if s.random.IntN(4) == 0 {
			s.stalled[resource] = make(chan struct{})
		}
	}
	s.focus, s.depth = focuses[s.random.IntN(len(focuses))], []float64{3, 15, 50}[s.random.IntN(3)]
}

// watched are the resources that a leader may see no news of for a while, each by itself.
var watched = []string{"nodevolumestates", "volumeattachmentintents", "volumeattachments", "leases", "configmaps", "nodes", "pods"}

// seeNews lets a leader that was stalled see everything again.
func (s *sleeps) seeNews() {
	for _, gate := range s.stalled {
		close(gate)
	}
	clear(s.stalled)
}

// end wakes everybody for good.
func (s *sleeps) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.wakeUp(func(*nap) bool { return true })
	s.seeNews()
}

// last are the latest requests.
func (s *sleeps) last(n int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.log[max(0, len(s.log)-n):], "\n")
}

// watch lets the leader see no news while it is stalled.
func (w *sleepwalker) watch(r *http.Request) (*http.Response, error) {
	answer, err := w.next.RoundTrip(r)
	if err == nil {
		answer.Body = &staleBody{ReadCloser: answer.Body, walker: w, resource: nameIn(r), closed: make(chan struct{})}
	}
	return answer, err
}

type staleBody struct {
	io.ReadCloser
	walker   *sleepwalker
	resource string
	once     sync.Once
	closed   chan struct{}
}

func (b *staleBody) Read(p []byte) (int, error) {
	gate := b.walker.stalledFor(b.walker.leader, b.resource)
	if gate != nil {
		select {
		case <-gate:
		case <-b.closed:
		}
	}
	return b.ReadCloser.Read(p)
}

// stalledFor returns what a leader waits for before it sees news of a resource; nil if it sees them.
func (s *sleeps) stalledFor(leader int, resource string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if leader == s.awake {
		return nil
	}
	return s.stalled[resource]
}

func (b *staleBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.ReadCloser.Close()
}

// gate holds one request of a manager up: the first that hold selects. It is asked in order.
type gate struct {
	hold func(what, name string) bool
	// held is closed when there is one; open lets it go on.
	held, open chan struct{}

	mu   sync.Mutex
	over bool
}

func newGate(hold func(what, name string) bool) *gate {
	return &gate{hold: hold, held: make(chan struct{}), open: make(chan struct{})}
}

func (g *gate) transport(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if g.holds(describeRequest(r), nameIn(r)) {
			close(g.held)
			select {
			case <-g.open:
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}
		return next.RoundTrip(r)
	})
}

func (g *gate) holds(what, name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over || what == "" || !g.hold(what, name) {
		return false
	}
	g.over = true
	return true
}

// nameIn is the name of the object that a request is about; of a collection, the resource.
func nameIn(r *http.Request) string {
	path := strings.TrimSuffix(strings.TrimSuffix(r.URL.Path, "/"), "/status")
	return path[strings.LastIndex(path, "/")+1:]
}
