/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package controller_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hawser-io/hawser/internal/controller"
)

// TestFaults runs what goes wrong between the manager, the API server and the attacher, in both modes on one control
// plane.
func TestFaults(t *testing.T) {
	w := newWorld(t)
	for _, mode := range []controller.AttachMode{controller.Coexist, controller.Replace} {
		for _, s := range []struct {
			name     string
			scenario func(*testing.T, *world, controller.AttachMode)
		}{
			{"nothing is detached before every cache is full", nothingIsDetachedBeforeEveryCacheIsFull},
			{"what happened while all watches were lost is made up for", whatHappenedWhileAllWatchesWereLostIsMadeUpFor},
			{"an API server that is away is waited for", anAPIServerThatIsAwayIsWaitedFor},
			{"somebody else who writes first, at every write, is got over", somebodyElseWhoWritesFirstIsGotOver},
			{"an attacher that is down is told, waited for and not waited on busily", anAttacherThatIsDownIsWaitedFor},
			{"an attacher that fails to detach is told where it is waited for", anAttacherThatFailsToDetachIsTold},
		} {
			t.Run(fmt.Sprintf("%s: %s", mode, s.name), func(t *testing.T) { s.scenario(t, w, mode) })
		}
	}
}

// resources that the manager watches.
var resources = []string{
	"volumeattachmentintents", "nodevolumestates", "volumeattachments", "leases", "configmaps", "pods", "nodes", "csinodes", "csidrivers",
	"persistentvolumes", "persistentvolumeclaims", "storageclasses",
}

// collectionIn is the resource that a LIST or a WATCH is about; empty for any other request.
func collectionIn(r *http.Request) string {
	if r.Method != http.MethodGet || describeRequest(r) != "" {
		return ""
	}
	return nameIn(r)
}

// roundTripper is between a manager and the API server.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// curtain hides resources from a manager: LISTs and WATCHes of them wait until it is opened.
type curtain struct {
	mu     sync.Mutex
	hidden map[string]*hidden
	// bodies of watches that go on.
	bodies map[*watchBody]string
	// expired counts the watches that were to go on from a version that was too old.
	expired int
}

type hidden struct {
	// waits is closed once a request waits, opened when it may go on.
	waits, opened chan struct{}
	once          sync.Once
}

// newCurtain hides these resources from the beginning.
func newCurtain(resources ...string) *curtain {
	c := &curtain{hidden: map[string]*hidden{}, bodies: map[*watchBody]string{}}
	c.draw(resources...)
	return c
}

// draw cuts the watches of these resources, and hides them from now on.
func (c *curtain) draw(resources ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range resources {
		c.hidden[resource] = &hidden{waits: make(chan struct{}), opened: make(chan struct{})}
		for body, of := range c.bodies {
			if of == resource {
				body.cut.Store(true)
				_ = body.ReadCloser.Close() // nothing is read from it any more
			}
		}
	}
}

// await returns when requests for everything that is hidden wait.
func (c *curtain) await(t *testing.T) {
	t.Helper()
	over := time.NewTimer(patience)
	defer over.Stop()
	for resource, h := range c.behind() {
		select {
		case <-h.waits:
		case <-over.C:
			t.Fatalf("nobody asked for %s", resource)
		}
	}
}

func (c *curtain) behind() map[string]*hidden {
	c.mu.Lock()
	defer c.mu.Unlock()
	hidden := map[string]*hidden{}
	for resource, h := range c.hidden {
		hidden[resource] = h
	}
	return hidden
}

// open lets everything be seen again. What a watch was to go on from has been forgotten meanwhile.
func (c *curtain) open() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.hidden {
		close(h.opened)
	}
	clear(c.hidden)
}

func (c *curtain) transport(next http.RoundTripper) http.RoundTripper { return &behind{c, next} }

// behind is the way to the API server of who is behind the curtain.
type behind struct {
	*curtain
	next http.RoundTripper
}

func (b *behind) RoundTrip(r *http.Request) (*http.Response, error) {
	resource := collectionIn(r)
	if resource == "" {
		return b.next.RoundTrip(r)
	}
	b.mu.Lock()
	h := b.hidden[resource]
	b.mu.Unlock()
	query := r.URL.Query()
	if h != nil {
		h.once.Do(func() { close(h.waits) })
		select {
		case <-h.opened:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		if query.Get("watch") == "true" && query.Get("resourceVersion") != "" && query.Get("sendInitialEvents") != "true" {
			b.mu.Lock()
			b.expired++
			b.mu.Unlock()
			return refusal(r, http.StatusGone, metav1.StatusReasonExpired, "too old resource version"), nil
		}
	}
	answer, err := b.next.RoundTrip(r)
	if err == nil && query.Get("watch") == "true" {
		answer.Body = b.follow(resource, answer.Body)
	}
	return answer, err
}

func (c *curtain) follow(resource string, body io.ReadCloser) io.ReadCloser {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := &watchBody{ReadCloser: body, curtain: c}
	c.bodies[b] = resource
	if c.hidden[resource] != nil {
		b.cut.Store(true)
	}
	return b
}

// watchBody ends where it is cut.
type watchBody struct {
	io.ReadCloser
	curtain *curtain
	cut     atomic.Bool
}

func (b *watchBody) Read(p []byte) (int, error) {
	if b.cut.Load() {
		return 0, io.EOF
	}
	n, err := b.ReadCloser.Read(p)
	if b.cut.Load() {
		return 0, io.EOF
	}
	return n, err
}

func (b *watchBody) Close() error {
	b.curtain.mu.Lock()
	delete(b.curtain.bodies, b)
	b.curtain.mu.Unlock()
	return b.ReadCloser.Close()
}

// refusal is an answer of the API server.
func refusal(r *http.Request, code int, reason metav1.StatusReason, message string) *http.Response {
	body, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
	if err != nil {
		panic(err) // these are plain fields
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", code, http.StatusText(code)), StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)), Request: r,
	}
}

// rivals write to an object just before a manager does, the first times that it writes to it. The API server answers
// what it answers.
type rivals struct {
	times int

	mu sync.Mutex
	// came how often, by write and object; refused writes, by write.
	came, refused map[string]int
}

func newRivals(times int) *rivals {
	return &rivals{times: times, came: map[string]int{}, refused: map[string]int{}}
}

func (v *rivals) transport(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		what := describeRequest(r)
		if what == "" || r.Method == http.MethodGet {
			return next.RoundTrip(r)
		}
		n := v.comes(what + " " + nameIn(r))
		if n > v.times {
			return next.RoundTrip(r)
		}
		answer, err := meet(next, r, n)
		if err == nil && answer.StatusCode == http.StatusConflict {
			v.mu.Lock()
			v.refused[what]++
			v.mu.Unlock()
		}
		return answer, err
	})
}

// comes counts.
func (v *rivals) comes(key string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.came[key]++
	return v.came[key]
}

// meet lets the rival write before r.
func meet(next http.RoundTripper, r *http.Request, n int) (*http.Response, error) {
	if r.Method == http.MethodPost {
		return createTwice(next, r)
	}
	if err := touch(next, r, n); err != nil {
		return nil, err
	}
	return next.RoundTrip(r)
}

// createTwice lets a create through and answers that it was there already, as it is when a first answer was lost.
func createTwice(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	answer, err := next.RoundTrip(r)
	if err != nil || answer.StatusCode != http.StatusCreated {
		return answer, err
	}
	if err := answer.Body.Close(); err != nil {
		return nil, err
	}
	return refusal(r, http.StatusConflict, metav1.StatusReasonAlreadyExists, "it already exists"), nil
}

// touch changes the object that r is about.
func touch(next http.RoundTripper, r *http.Request, n int) error {
	url := *r.URL
	url.Path, url.RawQuery = strings.TrimSuffix(url.Path, "/status"), ""
	body := fmt.Sprintf(`{"metadata":{"annotations":{"test.hawser.io/rival":"%s %d"}}}`, r.Method, n)
	change, err := http.NewRequestWithContext(r.Context(), http.MethodPatch, url.String(), strings.NewReader(body))
	if err != nil {
		return err
	}
	change.Header.Set("Content-Type", string(types.MergePatchType))
	answer, err := next.RoundTrip(change)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return errors.Join(err, answer.Body.Close())
}

// expect says that writes of these kinds were refused.
func (v *rivals) expect(t *testing.T, writes ...string) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, what := range writes {
		if v.refused[what] == 0 {
			t.Errorf("no %s was refused", what)
		}
	}
}
