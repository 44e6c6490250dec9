/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package endpoint serves the metrics of a program over TLS, to clients that may read them.
//
// The API server decides who may: a TokenReview tells whose bearer token it is, a SubjectAccessReview whether that user
// may get the path /metrics. Both programs serve their metrics so. None serves them in plain HTTP.
package endpoint

import (
	"crypto/tls"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// The filter asks the API server under the account of the program. config/rbac/metrics has the rights for it.

// Endpoint is where a program serves its metrics.
type Endpoint struct {
	// Address to listen on; 0 for none.
	Address string
	// CertDir contains the certificate (tls.crt) and its key (tls.key), as a Secret of type kubernetes.io/tls has them.
	// Empty: the program creates a self-signed certificate at its start.
	CertDir string
}

// Open returns the options of the metrics server, and what the manager has to run beside it. It fails if CertDir has no
// certificate: a self-signed one in its place would be refused by clients that expect the other.
func (e Endpoint) Open() (metricsserver.Options, []manager.Runnable, error) {
	options := metricsserver.Options{
		BindAddress:    e.Address,
		SecureServing:  true,
		FilterProvider: filters.WithAuthenticationAndAuthorization,
		TLSOpts:        []func(*tls.Config){withoutHTTP2},
	}
	if e.CertDir == "" || e.Address == "0" {
		return options, nil, nil
	}
	watcher, err := certwatcher.New(
		filepath.Join(e.CertDir, corev1.TLSCertKey), filepath.Join(e.CertDir, corev1.TLSPrivateKeyKey),
	)
	if err != nil {
		return options, nil, fmt.Errorf("reading the certificate of the metrics endpoint: %w", err)
	}
	options.TLSOpts = append(options.TLSOpts, func(c *tls.Config) { c.GetCertificate = watcher.GetCertificate })
	return options, []manager.Runnable{watcher}, nil
}

// withoutHTTP2: a scraper sends one request at a time. HTTP/2 would only let clients without a token cause work by
// streams that they open and reset (CVE-2023-44487).
func withoutHTTP2(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }
