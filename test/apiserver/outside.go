/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// OutsideVariable names a directory with control planes that another process has started (Lend). Tests then start none
// of their own. It is for tests inside a machine that is too slow for an API server.
const OutsideVariable = "HAWSER_TEST_OUTSIDE"

// outside is a control plane as another process finds it.
type outside struct {
	// Host is the address of the API server, and Etcd that of its etcd.
	Host, Etcd string
	// ServerName is a name in the API server's certificate.
	ServerName           string
	CA, Certificate, Key []byte
}

// Lend starts control planes for tests of another process, until this test ends. The other process reaches this host's
// loopback under the name.
func Lend(t *testing.T, dir, name string, n int) {
	t.Helper()
	needPrograms(t)
	for i := range n {
		p, err := start()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := p.stop(); err != nil {
				t.Error(err)
			}
		})
		there := func(address string) string { return strings.Replace(address, "127.0.0.1", name, 1) }
		data, err := json.Marshal(outside{Host: there(p.config.Host), Etcd: there(p.store.url.String()),
			ServerName: "localhost", CA: p.config.CAData, Certificate: p.config.CertData, Key: p.config.KeyData})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("control-plane-%d", i)), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// startOutside takes a control plane that no test of this process has taken yet.
func startOutside(dir string) (*controlPlane, error) {
	files, err := filepath.Glob(filepath.Join(dir, "control-plane-*"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		taken := filepath.Join(dir, "taken-"+filepath.Base(file))
		if err := os.Rename(file, taken); errors.Is(err, os.ErrNotExist) {
			continue // another test was faster
		} else if err != nil {
			return nil, fmt.Errorf("taking a control plane: %w", err)
		}
		return readOutside(taken)
	}
	return nil, fmt.Errorf("%s has no control plane that is free", dir)
}

func readOutside(file string) (*controlPlane, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading a control plane: %w", err)
	}
	var o outside
	if err := json.Unmarshal(data, &o); err != nil {
		return nil, fmt.Errorf("reading a control plane: %w", err)
	}
	etcd, err := url.Parse(o.Etcd)
	if err != nil {
		return nil, fmt.Errorf("reading a control plane: %w", err)
	}
	return &controlPlane{store: store{etcd}, config: &rest.Config{Host: o.Host, QPS: -1, Burst: -1,
		TLSClientConfig: rest.TLSClientConfig{ServerName: o.ServerName, CAData: o.CA, CertData: o.Certificate,
			KeyData: o.Key}}}, nil
}
