/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package observe

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/explain/live"
	"github.com/hawser-io/hawser/test/apiserver"
)

// network to the API server, which can be cut.
type network struct {
	mu    sync.Mutex
	down  bool
	conns []net.Conn
	// paths of all requests.
	paths []string
}

func (n *network) dial(ctx context.Context, kind, address string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		return nil, errors.New("the network is down")
	}
	conn, err := new(net.Dialer).DialContext(ctx, kind, address)
	n.conns = append(n.conns, conn)
	return conn, err
}

func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = true
	for _, conn := range n.conns {
		_ = conn.Close()
	}
}

// note the path of each request.
func (n *network) note(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		n.mu.Lock()
		n.paths = append(n.paths, request.URL.Path)
		n.mu.Unlock()
		return next.RoundTrip(request)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// waitsForSecret is a pod that waits for a Secret, with the event of its kubelet.
func waitsForSecret() []client.Object {
	about := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "waits"}
	return []client.Object{
		&corev1.Pod{ObjectMeta: about, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "example.com/c",
				VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}},
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				Secret: &corev1.SecretVolumeSource{SecretName: "absent"}}}}}},
		&corev1.Event{ObjectMeta: about, Type: corev1.EventTypeWarning, Reason: "FailedMount",
			Message:        `MountVolume.SetUp failed for volume "v" : secret "absent" not found`,
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: about.Namespace, Name: about.Name}},
	}
}

// TestKindsThatAreDeletedAreNotReadAnyMore, although they were installed when the observer began.
func TestKindsThatAreDeletedAreNotReadAnyMore(t *testing.T) {
	base := &installed{}
	r := reader{live.New(t.Context(), base, nil, nil), base}
	for _, base.now = range []bool{false, true, false} {
		if got, err := r.Installed(t.Context()); err != nil || got != base.now {
			t.Errorf("installed is %t (%v), want %t", got, err, base.now)
		}
	}
}

type installed struct {
	facts.Reader
	now bool
}

func (i *installed) Installed(context.Context) (bool, error) { return i.now, nil }

// TestAnObserverThatIsCutOffFails, and leaves its report as it was: in memory, leases and pods would get older with
// each examination. The cluster has Hawser's kinds and no more of it.
func TestAnObserverThatIsCutOffFails(t *testing.T) {
	config, c := apiserver.Start(t)
	network := &network{}
	config = rest.CopyConfig(config)
	config.Dial = network.dial
	config.Wrap(network.note)
	objects := waitsForSecret()
	for _, object := range objects {
		if event, ok := object.(*corev1.Event); ok {
			event.InvolvedObject.UID = objects[0].GetUID()
		}
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	o, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	followed := live.New(t.Context(), o.server, o.server, func(what string, err error) { t.Error(what, err) })
	for range 2 {
		if err := o.examine(t.Context(), followed); err != nil {
			t.Fatal(err)
		}
	}
	report := o.report.Load()
	if n := testutil.CollectAndCount(o, "hawser_observer_unread"); n > 0 {
		t.Errorf("%d kinds could not be read, want none: %+v", n, report.LeftOut)
	}
	network.cut()
	if err := o.examine(t.Context(), followed); err == nil || o.report.Load() != report {
		t.Errorf("without the API server: error %v, same report %t; want an error, and the report of before", err,
			o.report.Load() == report)
	}
	for _, path := range network.paths {
		if strings.Contains(path, "/secrets") || strings.Contains(path, "/configmaps") {
			t.Errorf("the observer asked for %s, want no request about Secrets", path)
		}
	}
}
