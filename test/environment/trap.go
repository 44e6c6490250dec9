/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package environment

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Trap is an API server that nobody may ask, and a home directory whose kubeconfig nobody may read.
type Trap struct {
	dir      string
	listener *net.TCPListener
	// taken has the addresses of those who connected.
	taken chan string
	// opened is an inotify instance for the kubeconfig.
	opened int
}

// Poison makes every part of this process's environment lead to a trap, as that of an administrator leads to a real
// cluster.
func Poison() (*Trap, error) {
	dir, err := os.MkdirTemp("", "poisoned-home-")
	if err != nil {
		return nil, fmt.Errorf("creating the poisoned home directory: %w", err)
	}
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the trap: %w", err), os.Remove(dir))
	}
	opened, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("watching the trap: %w", err), listener.Close(), os.Remove(dir))
	}
	t := &Trap{dir: dir, listener: listener, taken: make(chan string, 1000), opened: opened}
	if err := t.lead(); err != nil {
		return nil, errors.Join(fmt.Errorf("setting the trap: %w", err), t.Close())
	}
	go t.serve()
	return t, nil
}

// lead writes the kubeconfig and exports the environment.
func (t *Trap) lead() error {
	server := t.listener.Addr().String()
	config := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: trap\n"+
		"clusters: [{name: trap, cluster: {server: 'http://%s'}}]\n"+
		"contexts: [{name: trap, context: {cluster: trap, user: trap}}]\nusers: [{name: trap, user: {}}]\n", server)
	path := filepath.Join(t.dir, ".kube", "config")
	errs := []error{os.Mkdir(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(config), 0o600)}
	_, err := unix.InotifyAddWatch(t.opened, path, unix.IN_OPEN)
	errs = append(errs, err)
	host, port, err := net.SplitHostPort(server)
	errs = append(errs, err)
	for name, value := range map[string]string{
		"HOME": t.dir, "KUBECONFIG": path, "KUBERNETES_MASTER": "http://" + server,
		"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port,
	} {
		errs = append(errs, os.Setenv(name, value))
	}
	return errors.Join(errs...)
}

// serve refuses everybody at once.
func (t *Trap) serve() {
	for {
		conn, err := t.listener.Accept()
		if err != nil {
			return // closed
		}
		_ = conn.Close() // the client's error is not of interest
		t.taken <- conn.RemoteAddr().String()
	}
}

// Sprung is an error if anybody connected or read the kubeconfig since the last call.
func (t *Trap) Sprung() error {
	own, err := net.Dial("tcp", t.listener.Addr().String())
	if err != nil {
		return fmt.Errorf("connecting to the trap: %w", err)
	}
	defer own.Close() //nolint:errcheck // nothing was written to it
	connected := 0
	for <-t.taken != own.LocalAddr().String() { // they come in order
		connected++
	}
	opened := 0
	for {
		n, err := unix.Read(t.opened, make([]byte, unix.SizeofInotifyEvent))
		if err != nil || n == 0 {
			break // no further event
		}
		opened++
	}
	if connected+opened > 0 {
		return fmt.Errorf("%d connections to the cluster that the environment leads to, and its kubeconfig was opened "+
			"%d times, want none", connected, opened)
	}
	return nil
}

// Close ends the trap, and removes its files.
func (t *Trap) Close() error {
	return errors.Join(t.listener.Close(), unix.Close(t.opened), os.RemoveAll(t.dir))
}
