/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hawser-io/hawser/internal/operator"
)

// delayed holds back what the watches of one resource bring.
type delayed struct {
	resource string

	mu   sync.Mutex
	gate chan struct{}
}

// delay wraps the answer of a watch of the resource.
func (d *delayed) delay(request *http.Request, response *http.Response) {
	if request.URL.Query().Get("watch") != "" && strings.HasSuffix(request.URL.Path, "/"+d.resource) {
		response.Body = delayedBody{response.Body, d}
	}
}

func (d *delayed) hold() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gate == nil {
		d.gate = make(chan struct{})
	}
}

func (d *delayed) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gate != nil {
		close(d.gate)
		d.gate = nil
	}
}

func (d *delayed) wait() {
	d.mu.Lock()
	gate := d.gate
	d.mu.Unlock()
	if gate != nil {
		<-gate
	}
}

type delayedBody struct {
	io.ReadCloser
	by *delayed
}

func (b delayedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.by.wait()
	return n, err
}

// TestAReconcileAfterTheEndOfARemovalAppliesNothing lets the operator learn late that the VolumeManager is gone. What
// else went makes it reconcile meanwhile.
func TestAReconcileAfterTheEndOfARemovalAppliesNothing(t *testing.T) {
	const cleans, finished = 1, 2
	s := newServer(t)
	managers := &delayed{resource: "volumemanagers"}
	t.Cleanup(managers.release)
	var stage atomic.Int32
	next := make(chan string, 100)
	s.rights.after = func(request *http.Request, response *http.Response) {
		managers.delay(request, response)
		ofManager := strings.Contains(request.URL.Path, "v1alpha1/volumemanagers")
		switch {
		case stage.Load() == finished && (ofManager || request.Method == http.MethodPatch):
			next <- request.Method + " " + request.URL.Path
		case request.Method == http.MethodDelete && strings.HasSuffix(request.URL.Path, "policies/hawser-draining"):
			stage.CompareAndSwap(0, cleans)
			managers.hold()
		case request.Method == http.MethodPatch && ofManager:
			stage.CompareAndSwap(cleans, finished)
		}
	}
	s.remove(t)
	select {
	case first := <-next:
		if !strings.HasPrefix(first, http.MethodGet) {
			t.Errorf("the operator's first request after it let the VolumeManager go: %s, want that it reads it live", first)
		}
	case <-time.After(patience):
		t.Fatal("the operator did not reconcile after it let the VolumeManager go")
	}
	managers.release()
	s.awaitGone(t, volumeManager, "", "cluster", "nothing is in use")
	s.expectNothingInstalled(t)
}

// TestARemovalDeletesPoliciesThatTheCacheDoesNotHaveYet has the policies that refuse new intents applied and deleted
// before a watch shows them.
func TestARemovalDeletesPoliciesThatTheCacheDoesNotHaveYet(t *testing.T) {
	s := newServer(t)
	policies := &delayed{resource: "validatingadmissionpolicies"}
	s.rights.after = func(request *http.Request, response *http.Response) {
		policies.delay(request, response)
		if request.Method == http.MethodPatch && strings.HasSuffix(request.URL.Path, "policies/hawser-draining") {
			policies.hold()
		}
	}
	t.Cleanup(policies.release)
	s.remove(t)
	s.awaitGone(t, volumeManager, "", "cluster", "nothing is in use")
	s.expectNothingInstalled(t)
}

// remove installs Hawser and deletes its VolumeManager.
func (s server) remove(t *testing.T) {
	t.Helper()
	s.kubectl(t, "apply", "-k", "default")
	s.run(t, operator.Options{Images: released})
	s.awaitMark(t, volumeManager, "", "cluster", "0")
	s.await(t, deployment, namespace, "hawser-manager", "it is installed", there)
	s.kubectl(t, "delete", "hvm", "cluster", "--wait=false")
}
