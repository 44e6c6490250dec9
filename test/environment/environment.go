/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package environment keeps tests and tools away from the clusters of whoever runs them.
package environment

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
)

// Clean takes out of this process's environment, and so out of that of every program that it starts, what leads to
// somebody's cluster: a kubeconfig, that of the home directory included, and the variables of a pod. It is idempotent.
func Clean() error {
	var errs []error
	for _, name := range []string{"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "KUBERNETES_MASTER"} {
		errs = append(errs, os.Unsetenv(name))
	}
	// Where it is unset, clients read the home directory's.
	return errors.Join(append(errs, os.Setenv("KUBECONFIG", os.DevNull))...)
}

// Trap is an API server that nobody may ask.
type Trap struct {
	listener net.Listener
	asked    atomic.Int32
}

// Poison makes every part of the environment lead to a trap, as that of an administrator leads to a real cluster. It
// writes its files to dir.
func Poison(dir string) (*Trap, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("opening the trap: %w", err)
	}
	t := &Trap{listener: listener}
	go t.serve()
	host, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	config := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: trap\n"+
		"clusters: [{name: trap, cluster: {server: 'http://%s'}}]\n"+
		"contexts: [{name: trap, context: {cluster: trap, user: trap}}]\nusers: [{name: trap, user: {}}]\n", listener.Addr())
	path := filepath.Join(dir, ".kube", "config")
	errs := []error{os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(config), 0o600)}
	for name, value := range map[string]string{
		"HOME": dir, "KUBECONFIG": path, "KUBERNETES_MASTER": "http://" + host + ":" + port,
		"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port,
	} {
		errs = append(errs, os.Setenv(name, value))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *Trap) serve() {
	for {
		conn, err := t.listener.Accept()
		if err != nil {
			return // closed
		}
		t.asked.Add(1)
		_ = conn.Close() // the client's error is not of interest
	}
}

// Asked is how many connections were made.
func (t *Trap) Asked() int { return int(t.asked.Load()) }

// Close ends the trap.
func (t *Trap) Close() error { return t.listener.Close() }
