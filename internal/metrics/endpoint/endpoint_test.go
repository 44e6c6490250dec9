/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package endpoint

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// patience is longer than any machine needs for a handshake.
const patience = 30 * time.Second

func TestACertificateThatIsReplacedIsServedWithoutARestart(t *testing.T) {
	for name, replace := range map[string]func(t *testing.T, dir, host string){
		"file by file":                 writeCertificate,
		"as the kubelet does a Secret": swapCertificate,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			replace(t, dir, "first.example")
			address := serve(t, Endpoint{Address: "127.0.0.1:0", CertDir: dir})
			if got := servedName(t, address); got != "first.example" {
				t.Fatalf("served certificate is of %s, want first.example", got)
			}
			replace(t, dir, "second.example")
			eventually(t, "the new certificate is served", func() bool {
				return servedName(t, address) == "second.example"
			})
		})
	}
}

func TestWithoutADirectoryTheCertificateIsSelfSigned(t *testing.T) {
	address := serve(t, Endpoint{Address: "127.0.0.1:0"})
	certificate := served(t, address)
	if err := certificate.VerifyHostname("localhost"); err != nil || certificate.NotAfter.Before(time.Now()) {
		t.Errorf("self-signed certificate of %v until %s: error %v, want one of localhost in force", certificate.DNSNames,
			certificate.NotAfter, err)
	}
}

func TestAMissingCertificateIsRefusedAtTheStart(t *testing.T) {
	_, _, err := Endpoint{Address: ":8443", CertDir: t.TempDir()}.Open()
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "tls.crt") {
		t.Errorf("opening an endpoint without its certificate: error %v, want one that names tls.crt", err)
	}
	if _, _, err := (Endpoint{Address: "0", CertDir: t.TempDir()}).Open(); err != nil {
		t.Errorf("opening no endpoint without a certificate: error %v, want none", err)
	}
}

func TestPlainHTTPIsRefused(t *testing.T) {
	request, err := http.NewRequestWithContext(
		t.Context(), http.MethodGet, "http://"+serve(t, Endpoint{Address: "127.0.0.1:0"})+"/metrics", http.NoBody,
	)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return
	}
	defer response.Body.Close() //nolint:errcheck // nothing is read
	if response.StatusCode != http.StatusBadRequest {
		t.Errorf("plain HTTP: status %s, want a refusal or %d", response.Status, http.StatusBadRequest)
	}
}

// serve starts the metrics server, and whatever runs beside it, until the test ends. It returns the server's address.
// The API server of its filter does not exist.
func serve(t *testing.T, e Endpoint) string {
	t.Helper()
	options, besides, err := e.Open()
	if err != nil {
		t.Fatal(err)
	}
	server, err := metricsserver.NewServer(options, &rest.Config{Host: "127.0.0.1:1"}, http.DefaultClient)
	if err != nil {
		t.Fatal(err)
	}
	start(t, server.Start)
	for _, runnable := range besides {
		start(t, runnable.Start)
	}
	bound := server.(interface{ GetBindAddr() string })
	eventually(t, "the server listens", func() bool { return bound.GetBindAddr() != "" })
	return bound.GetBindAddr()
}

func start(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func served(t *testing.T, address string) *x509.Certificate {
	t.Helper()
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the test looks at what is served
	connection, err := dialer.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close() //nolint:errcheck // nothing was written
	return connection.(*tls.Conn).ConnectionState().PeerCertificates[0]
}

func servedName(t *testing.T, address string) string {
	t.Helper()
	return served(t, address).DNSNames[0]
}

// writeCertificate writes the files in place, the key first.
func writeCertificate(t *testing.T, dir, host string) {
	t.Helper()
	certificate, key, err := certutil.GenerateSelfSignedCertKeyWithFixtures(host, []net.IP{}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"tls.crt": certificate, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// swapCertificate replaces a symbolic link to a directory with the files, and removes the old directory.
func swapCertificate(t *testing.T, dir, host string) {
	t.Helper()
	data := filepath.Join(dir, "..data")
	before, _ := os.Readlink(data) // the first time there is none
	next := filepath.Join(dir, "..of-"+host)
	steps := []func() error{
		func() error { return os.Mkdir(next, 0o700) },
		func() error { writeCertificate(t, next, host); return nil },
		func() error { return os.Symlink(filepath.Base(next), data+"_tmp") },
		func() error { return os.Rename(data+"_tmp", data) },
	}
	for _, name := range []string{"tls.crt", "tls.key"} {
		if before == "" {
			steps = append(steps, func() error { return os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)) })
			continue
		}
		steps = append(steps, func() error { return os.Remove(filepath.Join(dir, before, name)) })
	}
	for _, step := range steps {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
}

// eventually waits for what nothing announces.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true,
		func(context.Context) (bool, error) { return holds(), nil })
	if err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}
