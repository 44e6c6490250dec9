/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package controller_test

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// silence around a manager: from some time on it gets no news of some resources.
type silence struct {
	resources []string
	// heard is closed once it has got news that name this.
	name  string
	heard chan struct{}
	once  sync.Once

	mu   sync.Mutex
	over chan struct{}
}

func (s *silence) transport(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		if err == nil && r.URL.Query().Get("watch") == "true" && slices.Contains(s.resources, nameIn(r)) {
			answer.Body = &silentBody{ReadCloser: answer.Body, silence: s, closed: make(chan struct{})}
		}
		return answer, err
	})
}

// begin, and end when the channel that is returned is closed.
func (s *silence) begin() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = make(chan struct{})
	return s.over
}

func (s *silence) until() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

type silentBody struct {
	io.ReadCloser
	*silence
	once   sync.Once
	closed chan struct{}
}

func (b *silentBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if over := b.until(); over != nil {
		select {
		case <-over:
		case <-b.closed:
		}
	}
	if bytes.Contains(p[:n], []byte(b.name)) {
		b.silence.once.Do(func() { close(b.heard) })
	}
	return n, err
}

func (b *silentBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.ReadCloser.Close()
}

// oneThatTookTheClaimAndSleptReadsItAgain: it has made the claim, and sleeps before it makes the attachment. Meanwhile another one moves the
// claim, and all that the first one sees of that is the fence.
func oneThatTookTheClaimAndSleptReadsItAgain(t *testing.T, w *world) {
	const claims = "configmaps"
	witness := w.witness(t, "took-sentinel")
	w.node(t, "took-a")
	w.node(t, "took-b")
	w.volume(t, "took", volumeOptions{})

	quiet := &silence{resources: []string{claims, "volumeattachmentintents"}, name: `"node":"took-a"`, heard: make(chan struct{})}
	attach := func(what, _ string) bool { return what == "POST volumeattachments" }
	g := newGate(attach)
	woken, decided := make(chan struct{}), make(chan string, 100)
	_, stop := w.manage(t, managerOptions{transport: func(next http.RoundTripper) http.RoundTripper {
		next = quiet.transport(g.transport(next))
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			answer, err := next.RoundTrip(r)
			select {
			case <-woken:
				what := describeRequest(r)
				if err == nil && (what == "GET "+claims || what == "PUT nodevolumestates" && answer.StatusCode == http.StatusOK) {
					decided <- what
				}
			default:
			}
			return answer, err
		})
	}})
	first := w.intent(t, "took-first", "took-a", "took")
	<-g.held
	<-quiet.heard
	over := quiet.begin()

	other := newGate(attach)
	_, stopOther := w.manage(t, managerOptions{transport: other.transport})
	w.delete(t, first)
	gone(t, w, first)
	second := w.intent(t, "took-second", "took-b", "took")
	<-other.held
	until(t, w, stateOf("took-a"), "the first node is fenced", func(s *volumesv1alpha1.NodeVolumeState) bool { return s.Spec.Fences == 1 })

	close(woken)
	close(g.open)
	if what := <-decided; what != "GET "+claims {
		t.Errorf("the first act of the one that slept: %s", what)
	}
	close(over)
	close(other.open)
	until(t, w, second, "the second intent is Ready", isReady)
	w.letGo(t, second, "took")
	stop()
	stopOther()
	for _, wrong := range judge(witness.story(t.Context())) {
		t.Error(wrong)
	}
}
