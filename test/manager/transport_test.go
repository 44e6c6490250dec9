/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"bytes"
	"context"
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
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// roundTripper is between a manager and the API server.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// blocker keeps resources from a manager: LISTs and WATCHes of them wait until it is opened.
type blocker struct {
	mu        sync.Mutex
	resources map[string]*blockedResource
	// bodies of watches that go on.
	bodies map[*watchBody]string
	// expired counts the watches that were to go on from a version that was too old.
	expired int
}

type blockedResource struct {
	// waits is closed once a request waits, opened when it may go on.
	waits, opened chan struct{}
	once          sync.Once
}

// newBlocker blocks these resources from the beginning.
func newBlocker(resources ...string) *blocker {
	c := &blocker{resources: map[string]*blockedResource{}, bodies: map[*watchBody]string{}}
	c.block(resources...)
	return c
}

// block ends the watches of these resources, and blocks them from now on.
func (c *blocker) block(resources ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range resources {
		c.resources[resource] = &blockedResource{waits: make(chan struct{}), opened: make(chan struct{})}
		for body, of := range c.bodies {
			if of == resource {
				body.cut.Store(true)
				_ = body.ReadCloser.Close() // nothing is read from it any more
			}
		}
	}
}

// awaitRequests returns when a request for each blocked resource waits.
func (c *blocker) awaitRequests(t *testing.T) {
	t.Helper()
	over := time.NewTimer(patience)
	defer over.Stop()
	for resource, h := range c.blocked() {
		select {
		case <-h.waits:
		case <-over.C:
			t.Fatalf("the manager did not list or watch %s within %s, want it to", resource, patience)
		}
	}
}

func (c *blocker) blocked() map[string]*blockedResource {
	c.mu.Lock()
	defer c.mu.Unlock()
	hidden := map[string]*blockedResource{}
	for resource, h := range c.resources {
		hidden[resource] = h
	}
	return hidden
}

// unblock lets the manager see everything again. The versions from which watches continue have expired meanwhile.
func (c *blocker) unblock() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.resources {
		close(h.opened)
	}
	clear(c.resources)
}

func (c *blocker) transport(next http.RoundTripper) http.RoundTripper {
	return &blockedTransport{c, next}
}

// blockedTransport is the transport of a manager with a blocker.
type blockedTransport struct {
	*blocker
	next http.RoundTripper
}

func (b *blockedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resource := collectionIn(r)
	if resource == "" {
		return b.next.RoundTrip(r)
	}
	b.mu.Lock()
	h := b.resources[resource]
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

func (c *blocker) follow(resource string, body io.ReadCloser) io.ReadCloser {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := &watchBody{ReadCloser: body, blocker: c}
	c.bodies[b] = resource
	if c.resources[resource] != nil {
		b.cut.Store(true)
	}
	return b
}

// watchBody ends where it is cut.
type watchBody struct {
	io.ReadCloser
	blocker *blocker
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
	b.blocker.mu.Lock()
	delete(b.blocker.bodies, b)
	b.blocker.mu.Unlock()
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
		Status: fmt.Sprintf("%d %s", code, http.StatusText(code)), StatusCode: code, Proto: "HTTP/1.1",
		ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)), Request: r,
	}
}

// conflicts writes to an object just before a manager does, the first times that the manager writes to it. The answers
// are those of the API server.
type conflicts struct {
	times int

	mu sync.Mutex
	// counts of writes by write and object; refused writes by write.
	counts, refused map[string]int
}

func newConflicts(times int) *conflicts {
	return &conflicts{times: times, counts: map[string]int{}, refused: map[string]int{}}
}

func (v *conflicts) transport(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		what := describeRequest(r)
		if what == "" || r.Method == http.MethodGet {
			return next.RoundTrip(r)
		}
		n := v.count(what + " " + nameIn(r))
		if n > v.times {
			return next.RoundTrip(r)
		}
		answer, err := writeBefore(next, r, n)
		if err == nil && answer.StatusCode == http.StatusConflict {
			v.mu.Lock()
			v.refused[what]++
			v.mu.Unlock()
		}
		return answer, err
	})
}

// count returns how often the manager has made this write.
func (v *conflicts) count(key string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.counts[key]++
	return v.counts[key]
}

// writeBefore writes to the object before r does.
func writeBefore(next http.RoundTripper, r *http.Request, n int) (*http.Response, error) {
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
	body := fmt.Sprintf(`{"metadata":{"annotations":{"test.hawser.io/conflict":"%s %d"}}}`, r.Method, n)
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

// expect fails unless writes of these kinds were refused.
func (v *conflicts) expect(t *testing.T, writes ...string) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, what := range writes {
		if v.refused[what] == 0 {
			t.Errorf("refused writes: %v, want a conflict of %s among them", v.refused, what)
		}
	}
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

// watchPause keeps the changes of one resource from a manager, from begin until end.
type watchPause struct {
	resource string

	mu   sync.Mutex
	over chan struct{}
}

func (s *watchPause) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = make(chan struct{})
}

func (s *watchPause) end() { close(s.until()) }

func (s *watchPause) until() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

func (s *watchPause) transport(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		if err == nil && r.URL.Query().Get("watch") == "true" && nameIn(r) == s.resource {
			answer.Body = &pausedWatch{ReadCloser: answer.Body, watchPause: s, closed: make(chan struct{})}
		}
		return answer, err
	})
}

type pausedWatch struct {
	io.ReadCloser
	*watchPause
	once   sync.Once
	closed chan struct{}
}

func (b *pausedWatch) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if over := b.until(); over != nil {
		select {
		case <-over:
		case <-b.closed:
		}
	}
	return n, err
}

func (b *pausedWatch) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.ReadCloser.Close()
}

// refusals fails one kind of write while it is on.
type refusals struct {
	what string
	on   atomic.Bool
	// tried receives each, if it is set.
	tried chan struct{}
}

func (d *refusals) transport(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if !d.on.Load() || describeRequest(r) != d.what {
			return next.RoundTrip(r)
		}
		select {
		case d.tried <- struct{}{}:
		default:
		}
		return nil, errors.New("the connection was cut")
	})
}

var errDead = errors.New("the process is dead")

// killSwitch passes a number of writes; with the next one the process dies: that write and all after it have no effect.
type killSwitch struct {
	mu   sync.Mutex
	left int
	dead chan struct{}
	what string
}

func (f *killSwitch) write(what string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left == 0 {
		if f.what == "" {
			f.what = what
			close(f.dead)
		}
		return errDead
	}
	f.left--
	return nil
}

// client is a manager's client whose writes count.
func (f *killSwitch) client(cfg *rest.Config, o client.Options) (client.Client, error) {
	c, err := client.NewWithWatch(cfg, o)
	if err != nil {
		return nil, err
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := f.write(fmt.Sprintf("creating %T", o)); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := f.write(fmt.Sprintf("updating %T", o)); err != nil {
				return err
			}
			return c.Update(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			opts ...client.PatchOption) error {
			if err := f.write(fmt.Sprintf("patching %T", o)); err != nil {
				return err
			}
			return c.Patch(ctx, o, p, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := f.write(fmt.Sprintf("deleting %T", o)); err != nil {
				return err
			}
			return c.Delete(ctx, o, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object,
			opts ...client.SubResourceUpdateOption) error {
			if err := f.write(fmt.Sprintf("updating %s of %T", sub, o)); err != nil {
				return err
			}
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			if err := f.write(fmt.Sprintf("patching %s of %T", sub, o)); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	}), nil
}
