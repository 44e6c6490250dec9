/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// trap is the cluster of whoever runs the launcher: an API server that nobody may ask, and files of kubectl that nobody
// may open.
type trap struct {
	asked  atomic.Int32
	opened int // an inotify instance
}

// poison makes the whole environment of the launcher lead to the trap, as it leads an administrator to a real cluster.
func poison(t *testing.T) *trap {
	t.Helper()
	p := &trap{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p.asked.Add(1)
		w.WriteHeader(http.StatusTeapot)
	}))
	t.Cleanup(server.Close)
	var err error
	if p.opened, err = unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(p.opened) })
	home := t.TempDir()
	config := filepath.Join(home, ".kube", "config")
	if err := os.Mkdir(filepath.Dir(config), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{
		config: fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: trap\n"+
			"clusters: [{name: trap, cluster: {server: %q}}]\ncontexts: [{name: trap, context: {cluster: trap, user: trap}}]\n"+
			"users: [{name: trap, user: {}}]\n", server.URL),
		// Preferences of kubectl: defaults of flags and aliases.
		filepath.Join(home, ".kube", "kuberc"): "apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\n",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.InotifyAddWatch(p.opened, path, unix.IN_OPEN); err != nil {
			t.Fatal(err)
		}
	}
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"HOME": home, "KUBECONFIG": config, "KUBERNETES_MASTER": server.URL, "KUBERNETES_SERVICE_HOST": "127.0.0.1",
		"KUBERNETES_SERVICE_PORT": port, "HTTP_PROXY": server.URL, "HTTPS_PROXY": server.URL,
	} {
		t.Setenv(name, value)
	}
	return p
}

// check reports everybody who asked the trap or opened its files.
func (p *trap) check(t *testing.T) {
	t.Helper()
	if n, _ := unix.Read(p.opened, make([]byte, 4096)); n > 0 { // an error: no event
		t.Error("a program opened files of kubectl in the home directory of whoever runs the launcher")
	}
	if asked := p.asked.Load(); asked > 0 {
		t.Errorf("programs sent %d requests to the cluster of whoever runs the launcher", asked)
	}
}
