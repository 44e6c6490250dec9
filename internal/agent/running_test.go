/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/agent/report"
	"github.com/hawser-io/hawser/test/apiserver"
)

// running is an agent of the node.
type running struct {
	*Agent
	node   *node
	cancel context.CancelFunc
	done   chan struct{}
	err    error
	writes *writes
	events *events.FakeRecorder
	// dead is closed when the agent was killed; all its requests fail from then on.
	dead     chan struct{}
	deadOnce sync.Once
	steps    atomic.Int64
	killAt   int64
	dieAt    string
	killedAt atomic.Value
	// conns are the connections that Live has had.
	connsLock sync.Mutex
	conns     []net.Conn
}

// dial keeps what dial answers, so that a test can cut it.
func (r *running) dial(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string,
	string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err == nil {
			r.connsLock.Lock()
			r.conns = append(r.conns, conn)
			r.connsLock.Unlock()
		}
		return conn, err
	}
}

// cut ends the connections to the API server.
func (r *running) cut() {
	r.connsLock.Lock()
	defer r.connsLock.Unlock()
	for _, c := range r.conns {
		_ = c.(*report.Connection).Conn.Close() // as if the other side had ended it
	}
	r.conns = nil
}

// writes counts an agent's requests that change something.
type writes struct {
	base http.RoundTripper
	dead <-chan struct{}
	mu   sync.Mutex
	made []string
	seen []string
	down bool
	// deafTo is a path whose next write has its answer lost.
	deafTo string
}

func (w *writes) isDown() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.down
}

// setDown lets every request fail except the open watches.
func (w *writes) setDown(down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = down
}

func (w *writes) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.seen...)
}

func (w *writes) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-w.dead:
		return nil, errors.New("the agent is dead")
	default:
	}
	if w.isDown() && !strings.Contains(r.URL.RawQuery, "watch=") {
		return nil, errors.New("connection refused")
	}
	w.mu.Lock()
	line := r.Method + " " + r.URL.Path
	w.seen = append(w.seen, line+"?"+r.URL.RawQuery)
	if r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/leases") &&
		!strings.Contains(r.URL.Path, "/events") {
		w.made = append(w.made, line)
	}
	lost := w.deafTo != "" && r.Method != http.MethodGet && strings.HasSuffix(r.URL.Path, w.deafTo)
	if lost {
		w.deafTo = ""
	}
	w.mu.Unlock()
	answer, err := w.base.RoundTrip(r)
	if lost && err == nil {
		err = errors.Join(errors.New("the answer was lost"), answer.Body.Close())
		answer = nil
	}
	return answer, err
}

func (w *writes) list() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.made...)
}

func (w *writes) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made = nil
}

// start starts an agent and waits for its first report; killAt > 0 kills it at that step.
func (n *node) start() *running {
	n.t.Helper()
	r := n.launch(0)
	n.t.Cleanup(func() { r.stop() })
	r.await()
	return r
}

func (r *running) await() {
	r.node.t.Helper()
	select {
	case <-r.Started():
	case <-r.done:
		r.node.t.Fatalf("agent of node %s ended with %v, want its start", r.node.name, r.err)
	case <-time.After(patience):
		r.node.t.Fatalf("agent of node %s did not start within %s, want that it does", r.node.name, patience)
	}
}

func (n *node) launch(killAt int64) *running {
	n.t.Helper()
	r := &running{node: n, dead: make(chan struct{}), killAt: killAt, dieAt: n.dieAt, done: make(chan struct{}),
		events: events.NewFakeRecorder(10000)}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	cfg := rest.CopyConfig(n.cfg)
	cfg.Wrap(func(base http.RoundTripper) http.RoundTripper {
		if r.writes == nil {
			r.writes = &writes{base: base, dead: r.dead}
		}
		return r.writes
	})
	connections := &report.Connections{}
	cfg.Dial = r.dial(connections.Dial)
	o := CacheOptions(n.name)
	o.Scheme, o.Mapper = apiserver.Scheme(), n.client.RESTMapper() // which spares each agent asking for all kinds
	held, err := cache.New(cfg, o)
	n.must(err)
	live, err := client.New(cfg, client.Options{Scheme: o.Scheme, Mapper: o.Mapper})
	n.must(err)
	options := Options{
		NodeName: n.name, RootDir: n.root, KubeletDir: n.kubelet, Version: "test", BootIDFile: n.boot,
		MachineIdentityFile: n.machine, DriverTimeout: n.timeout,
		Cache: held, Live: live, Registry: n.registry, Mounts: n.kernel, MountChanges: n.kernel.changes,
		Recorder: r.events, Log: logFor(n.t), Step: r.step, Connections: connections,
	}
	options.Host = mortalHost{thisHost{log: options.Log}, r.dead}
	if n.drive != nil {
		n.drive(&options)
	}
	r.Agent, err = New(options)
	n.must(err)
	go func() { _ = held.Start(ctx) }() // ends with ctx
	go func() {
		r.err = r.Start(ctx)
		close(r.done)
	}()
	return r
}

// mortalHost takes nothing from an agent that was killed.
type mortalHost struct {
	thisHost
	dead <-chan struct{}
}

func (h mortalHost) ReplaceFile(path string, data []byte) error {
	select {
	case <-h.dead:
		select {} // for ever, as a dead process
	default:
		return h.thisHost.ReplaceFile(path, data)
	}
}

// logFor fails the test if the agent recovers from a panic of its own: a retry would hide it.
func logFor(t *testing.T) logr.Logger {
	all := os.Getenv("AGENT_TEST_LOG") != ""
	return funcr.New(func(prefix, args string) {
		switch {
		case strings.Contains(args, `"error"="panic: `):
			t.Errorf("the agent panicked: %s", args)
		case all:
			t.Log(prefix, args)
		}
	}, funcr.Options{})
}

// deathAt is the step at which the agent was killed, or "".
func (r *running) deathAt() string {
	name, _ := r.killedAt.Load().(string)
	return name
}

// step kills the agent at its turn: no request of it goes out any more and the goroutine goes no further.
func (r *running) step(name string) {
	select {
	case <-r.dead:
		select {} // for ever, as a dead process
	default:
	}
	if r.steps.Add(1) == r.killAt || name == r.dieAt {
		r.killedAt.Store(name)
		r.kill()
		select {}
	}
}

// kill is kill -9: the lock is let go and nothing else is done.
func (r *running) kill() {
	r.deadOnce.Do(func() {
		close(r.dead)
		r.cancel()
		r.cut()
		if r.Agent.lock == nil {
			return
		}
		if err := r.Agent.lock.Close(); !errors.Is(err, os.ErrClosed) { // it may be ending by itself
			r.node.must(err)
		}
	})
}

// stop is SIGTERM.
func (r *running) stop() {
	r.cancel()
	select {
	case <-r.dead:
	case <-r.done:
	case <-time.After(patience):
		r.node.t.Errorf("agent of node %s did not end within %s, want that it does", r.node.name, patience)
	}
	r.cut()
}

// rest waits until the agent has nothing to do any more.
func (r *running) rest() {
	r.node.t.Helper()
	err := wait.PollUntilContextTimeout(r.node.t.Context(), 10*time.Millisecond, patience, true,
		func(context.Context) (bool, error) {
			return !r.state.Pending() && r.queue.queue.Len() == 0, nil
		})
	if err != nil {
		r.node.t.Errorf("agent of node %s does not come to rest within %s, want that it does", r.node.name, patience)
	}
}

// asks waits until the agent has asked for the node's state.
func (r *running) asks(name string) {
	r.node.t.Helper()
	err := wait.PollUntilContextTimeout(r.node.t.Context(), time.Millisecond, patience, true,
		func(context.Context) (bool, error) {
			return slices.ContainsFunc(r.writes.all(), func(s string) bool {
				return strings.HasPrefix(s, "GET ") && strings.Contains(s, "/nodevolumestates/"+name)
			}), nil
		})
	if err != nil {
		r.node.t.Errorf("agent of node %s did not ask for state %s, want that it does", r.node.name, name)
	}
}

// recorded lists the events.
func (r *running) recorded() []string {
	var all []string
	for {
		select {
		case e := <-r.events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}
