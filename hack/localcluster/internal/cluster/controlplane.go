/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hawser-io/hawser/hack/localcluster/internal/pki"
	"github.com/hawser-io/hawser/hack/localcluster/internal/process"
)

const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	nodeParts         = "node-parts"

	probeInterval = 50 * time.Millisecond
	startTimeout  = 5 * time.Minute

	// auditPolicy records the user, verb and object of every request that was answered. A watch has two lines:
	// ResponseStarted and, at its end, ResponseComplete.
	auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`
)

// program finds an executable: first in the given directory, then in the tests' directory.
func (o Options) program(name string) (string, error) {
	for _, directory := range []string{o.Bin, os.Getenv("KUBEBUILDER_ASSETS")} {
		if directory == "" {
			continue
		}
		path, err := filepath.Abs(filepath.Join(directory, name))
		if err != nil {
			return "", fmt.Errorf("resolving %s: %w", directory, err)
		}
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "",
		fmt.Errorf("%s is neither in %s nor in KUBEBUILDER_ASSETS; hack/build-control-plane.sh builds it", name, o.Bin)
}

func etcdArgs(l Layout, p Ports, durable bool) []string {
	client := fmt.Sprintf("http://127.0.0.1:%d", p.EtcdClient)
	peer := fmt.Sprintf("http://127.0.0.1:%d", p.EtcdPeer)
	args := []string{
		"--data-dir=" + l.etcdData(),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=default=" + peer,
	}
	if !durable {
		args = append(args, "--unsafe-no-fsync")
	}
	return args
}

func apiServerArgs(l Layout, p Ports, a *pki.Authority, audit bool) []string {
	args := []string{
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", p.EtcdClient),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", p.APIServer),
		"--endpoint-reconciler-type=none", // a loopback address is not a valid endpoint
		"--service-cluster-ip-range=10.0.0.0/24",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--client-ca-file=" + a.CertificateFile(),
		"--tls-cert-file=" + a.File("apiserver.crt"),
		"--tls-private-key-file=" + a.File("apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-signing-key-file=" + a.File("service-account.key"),
		"--service-account-key-file=" + a.File("service-account.pub"),
	}
	if audit {
		args = append(args,
			"--audit-policy-file="+l.auditPolicy(),
			"--audit-log-path="+l.AuditLog(),
			"--audit-log-format=json",
			"--audit-log-maxsize=100000", // MiB: programs that count requests would miss a rotated log
		)
	}
	return args
}

func controllerManagerArgs(l Layout, p Ports, a *pki.Authority, controllers string) []string {
	return []string{
		"--kubeconfig=" + l.Kubeconfig(controllerManager),
		"--authentication-kubeconfig=" + l.Kubeconfig(controllerManager),
		"--authorization-kubeconfig=" + l.Kubeconfig(controllerManager),
		"--controllers=" + controllers,
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + a.File("service-account.key"),
		"--root-ca-file=" + a.CertificateFile(),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", p.ControllerManager),
		"--tls-cert-file=" + a.File("apiserver.crt"),
		"--tls-private-key-file=" + a.File("apiserver.key"),
	}
}

// start runs a program of the control plane and waits until it answers at the URL.
func (o Options) start(ctx context.Context, name, health string, args []string) error {
	program, err := o.program(name)
	if err != nil {
		return err
	}
	return startAndWait(ctx, o.Layout, process.Spec{Name: name, Program: program, Args: args, Health: health})
}

// startAndWait starts a program and, if it has an address for that, waits until it is ready.
func startAndWait(ctx context.Context, l Layout, spec process.Spec) error {
	spec.Log = l.Log(spec.Name)
	if spec.Notifies {
		ctx, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		return l.Processes().StartAndAwait(ctx, spec)
	}
	ended, err := l.Processes().Start(spec)
	if err != nil || spec.Health == "" {
		return err
	}
	authority, err := pki.Open(l.pki())
	if err != nil {
		return err
	}
	if err := probe(ctx, spec.Health, authority.Certificate(), ended); err != nil {
		return fmt.Errorf("waiting for %s (see %s): %w", spec.Name, spec.Log, err)
	}
	return nil
}

// probe asks until the answer is 200 OK, the process has ended, or the time is over. It polls because the
// program offers no other signal.
func probe(ctx context.Context, url string, roots []byte, ended <-chan error) error {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(roots)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 5 * time.Second}

	last := errors.New("no answer")
	err := wait.PollUntilContextTimeout(ctx, probeInterval, startTimeout, true, func(ctx context.Context) (bool, error) {
		select {
		case err := <-ended:
			return false, fmt.Errorf("it ended: %w", errors.Join(err, errors.New("before it was ready")))
		default:
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false, fmt.Errorf("asking %s: %w", url, err)
		}
		response, err := client.Do(request)
		if err != nil {
			last = err
			return false, nil
		}
		_ = response.Body.Close() // only the code is needed
		last = errors.New(response.Status)
		return response.StatusCode == http.StatusOK, nil
	})
	if wait.Interrupted(err) {
		return errors.Join(err, last)
	}
	return err
}
