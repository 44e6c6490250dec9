/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
)

// proxy is between the plugin and an API server: it counts requests, and can end the watches.
type proxy struct {
	*httptest.Server
	mu      sync.Mutex
	reads   []string // the requests but for watches that begin at a version: those read nothing again
	pages   int
	watches map[*http.Request]context.CancelFunc
}

func newProxy(t testing.TB, config *rest.Config) *proxy {
	t.Helper()
	to, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{watches: map[*http.Request]context.CancelFunc{}}
	reverse := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1,
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {}}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		r = r.WithContext(ctx)
		p.count(r, cancel)
		defer p.ended(r)
		defer func() { _ = recover() }() // the reverse proxy panics to abort an answer that has begun
		reverse.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { p.cut(); p.Close() })
	return p
}

func (p *proxy) count(r *http.Request, cancel context.CancelFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	query := r.URL.Query()
	if query.Has("continue") {
		p.pages++
	}
	if query.Get("watch") != "" {
		p.watches[r] = cancel
		if query.Get("sendInitialEvents") != "true" {
			return
		}
	}
	p.reads = append(p.reads, r.URL.String())
}

func (p *proxy) ended(r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.watches, r)
}

// cut ends all watches and returns how many.
func (p *proxy) cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cancel := range p.watches {
		cancel()
	}
	return len(p.watches)
}

// counts returns the requests that read, and how many were for further pages, and begins to count again.
func (p *proxy) counts() (reads []string, pages int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	reads, pages = p.reads, p.pages
	p.reads, p.pages = nil, 0
	return reads, pages
}

// output is a stream that a test waits on.
type output struct {
	mu      sync.Mutex
	text    bytes.Buffer
	written chan struct{}
}

func newOutput() *output { return &output{written: make(chan struct{}, 1)} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.text.Write(p)
	select {
	case o.written <- struct{}{}:
	default:
	}
	return n, err
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// wait until the output has a text after its first skip bytes.
func (o *output) wait(t *testing.T, skip int, text string) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for !strings.Contains(o.String()[skip:], text) {
		select {
		case <-o.written:
		case <-deadline.C:
			t.Fatalf("the output has no %q within a minute:\n%s", text, o.String()[skip:])
		}
	}
}

// watching runs a command with --watch until stop, which returns its exit code.
func watching(t *testing.T, p *proxy, args ...string) (out, errOut *output, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, errOut = newOutput(), newOutput()
	exit := make(chan int, 1)
	args = append(args, "--watch", "--server", p.URL)
	go func() {
		exit <- Run(ctx, args, genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: errOut})
	}()
	return out, errOut, func() int {
		cancel()
		return <-exit
	}
}

// change changes the reason of the intent's Ready, or what else the function changes.
func changeIntent(t *testing.T, c client.Client, change func(*volumesv1alpha1.VolumeAttachmentIntent)) {
	t.Helper()
	intent := &volumesv1alpha1.VolumeAttachmentIntent{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "data-on-node-a"}, intent); err != nil {
		t.Fatal(err)
	}
	change(intent)
	if err := c.Status().Update(t.Context(), intent); err != nil {
		t.Fatal(err)
	}
}

func failing(reason string) func(*volumesv1alpha1.VolumeAttachmentIntent) {
	return func(intent *volumesv1alpha1.VolumeAttachmentIntent) {
		for i := range intent.Status.Conditions {
			if c := &intent.Status.Conditions[i]; c.Type == volumesv1alpha1.ConditionReady {
				c.Status, c.Reason = "False", reason
			}
		}
	}
}

func TestAWatchReportsChangesFromMemoryAndOutlivesItsConnections(t *testing.T) {
	for name, args := range map[string][]string{
		"why":        {"why", "intent", "data-on-node-a", "-n", "shop"},
		"tree node":  {"tree", "node", "node-a"},
		"tree pv":    {"tree", "pv", "pv-1"},
		"why, JSON":  {"why", "intent", "data-on-node-a", "-n", "shop", "-o", "json"},
		"tree, YAML": {"tree", "node", "node-a", "-o", "yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			config, c := apiserver.Borrow(t)
			world(t).create(t, c)
			p := newProxy(t, config)
			out, errOut, stop := watching(t, p, args...)
			out.wait(t, 0, "data-on-node-a")
			skip := len(out.String())
			changeIntent(t, c, failing("StageFailed"))
			out.wait(t, skip, "StageFailed")
			p.counts()
			skip = len(out.String())
			changeIntent(t, c, failing("UnstageFailed"))
			out.wait(t, skip, "UnstageFailed")
			if reads, _ := p.counts(); len(reads) > 0 {
				t.Errorf("the report after a change read %q, want it made from memory", reads)
			}
			if p.cut() == 0 {
				t.Error("the command has no watch")
			}
			skip = len(out.String())
			changeIntent(t, c, failing("PublishFailed"))
			out.wait(t, skip, "PublishFailed")
			want := Fine
			if args[0] == "why" {
				want = Findings
			}
			if exit := stop(); exit != want || errOut.String() != "" {
				t.Errorf("interrupted: exit code %d, stderr %q, want %d as of the last report", exit, errOut.String(), want)
			}
		})
	}
}

func TestListingsFollowTheNodeStates(t *testing.T) {
	config, c := apiserver.Borrow(t)
	world(t).create(t, c)
	p := newProxy(t, config)
	tops, _, stopTop := watching(t, p, "top")
	orphans, _, stopOrphans := watching(t, p, "orphans")
	tops.wait(t, 0, "NODE")
	orphans.wait(t, 0, "no orphans")
	state := &volumesv1alpha1.NodeVolumeState{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "node-a"}, state); err != nil {
		t.Fatal(err)
	}
	state.Status.Volumes = []volumesv1alpha1.NodeVolume{{
		VolumeName: "kubernetes.io/csi/disk.example.com^lost", InUse: true,
		Publications: []volumesv1alpha1.Publication{{Intent: volumesv1alpha1.IntentReference{Namespace: "shop", Name: "gone"},
			Path: "/p", Type: "Mount", Orphan: true}}}}
	if err := c.Status().Update(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	tops.wait(t, 0, "^lost")
	orphans.wait(t, 0, "shop/gone")
	if exit := stopTop(); exit != Fine {
		t.Errorf("top: exit code %d, want %d", exit, Fine)
	}
	if exit := stopOrphans(); exit != Findings {
		t.Errorf("orphans: exit code %d, want %d: there is one now", exit, Findings)
	}
}

func TestAWatchEndsAfterATimeoutOnlyIfOneWasGiven(t *testing.T) {
	config, c := apiserver.Borrow(t)
	world(t).create(t, c)
	stdout, stderr, exit := run(t, config, "plan", "move", "data", "--to", "node-b", "-n", "shop", "--watch",
		"--timeout", "10s")
	if exit != TimedOut || !strings.Contains(stdout, "1 intents leave") || !strings.Contains(stderr, "watched for 10s") {
		t.Errorf("exit code %d, stdout %q, stderr %q; want %d and the plan", exit, stdout, stderr, TimedOut)
	}
}

func TestWhatMayNotBeWatchedIsNamed(t *testing.T) {
	config, c := apiserver.Borrow(t)
	world(t).create(t, c)
	grant(t, c, "dev", []string{"", "volumes.hawser.io"}, []string{"persistentvolumeclaims"},
		[]string{"get", "list", "watch"})
	p := newProxy(t, as(config, "dev"))
	out, errOut, stop := watching(t, p, "why", "pvc", "data", "-n", "shop")
	out.wait(t, 0, "PersistentVolumeClaim shop/data")
	stop()
	if want := "do not show"; !strings.Contains(errOut.String(), want) {
		t.Errorf("stderr is %q, want what may not be watched", errOut.String())
	}
}

func TestATerminalDoesNotObeyTheNameOfWhatMayNotBeWatched(t *testing.T) {
	config, c := apiserver.Borrow(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	if err := c.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	claimant(t, c, "shop")
	grant(t, c, "dev", []string{""}, []string{"pods"}, []string{"get", "list", "watch"})
	p := newProxy(t, as(config, "dev"))
	out, errOut, stop := watching(t, p, "why", "pod", "web", "-n", "shop")
	out.wait(t, 0, "Pod shop/web")
	stop()
	if got := errOut.String(); obeyed(got) || !strings.Contains(got, "metadata.name=x;reboot") {
		t.Errorf("stderr is %q, want the name of the claim without control characters", got)
	}
}

func TestWideHasMoreThanText(t *testing.T) {
	config, c := apiserver.Borrow(t)
	one(t, "node-orphan-and-stuck-detach", time.Now()).create(t, c)
	for _, args := range []string{"top", "why node node-b"} {
		text, _, _ := run(t, config, strings.Fields(args)...)
		wide, stderr, _ := run(t, config, strings.Fields(args+" -o wide")...)
		if len(wide) <= len(text) {
			t.Errorf("%s -o wide has %d bytes, and without it %d; want more; stderr %q", args, len(wide), len(text), stderr)
		}
	}
}
