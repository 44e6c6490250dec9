/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package config_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/hawser-io/hawser/internal/metrics/endpoint"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/endpoints"
)

const scraperAccount = "hawser-metrics-scraper"

// testMetrics serves the metrics with the rights of each program, and reads them as several clients.
func (in installation) testMetrics(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("monitoring", "scraper.yaml"))
	expectAllowed(t, err)
	scraper := in.renamed(string(text))
	in.kubectlStdin(t, scraper, "apply", "-f", "-")
	defer in.kubectlStdin(t, scraper, "delete", "-f", "-")
	stranger := &corev1.ServiceAccount{}
	stranger.Namespace, stranger.Name = in.namespace, in.name("stranger")
	expectAllowed(t, in.admin.Create(t.Context(), stranger))
	// A refusal is cached for half a minute.
	eventually(t, "the scraper's role is in force", func(context.Context) bool {
		return in.mayScrape(t, scraperAccount)
	})
	if in.mayScrape(t, managerAccount) || in.mayScrape(t, agentAccount) || in.mayScrape(t, "default") {
		t.Error("an account has the right to read metrics without need")
	}
	tokens := map[string]string{
		"none": "", "forged": "forged",
		"without the right": in.token(t, "stranger"), "with it": in.token(t, scraperAccount),
	}
	for _, program := range []string{managerAccount, agentAccount} {
		address := in.serveMetrics(t, program)
		for _, request := range []struct {
			token, method, path string
			want                int
		}{
			{"none", http.MethodGet, "/metrics", http.StatusUnauthorized},
			{"without the right", http.MethodGet, "/metrics", http.StatusForbidden},
			{"with it", http.MethodGet, "/metrics", http.StatusOK},
			{"with it", http.MethodPost, "/metrics", http.StatusForbidden},
			{"with it", http.MethodGet, "/debug/pprof/", http.StatusNotFound},
			// controller-runtime reports a token that the API server does not know as a failure of its own.
			{"forged", http.MethodGet, "/metrics", http.StatusInternalServerError},
		} {
			status, body := endpoints.Send(t, request.method, "https://"+address+request.path, tokens[request.token])
			told := strings.Contains(body, "certwatcher_read_certificate_total")
			if status != request.want || told != (request.want == http.StatusOK) {
				t.Errorf("%s: %s %s with token %q: status %d, want %d; %.100s",
					program, request.method, request.path, request.token, status, request.want, body)
			}
		}
	}
}

// mayScrape is the answer of the API server's authorizer.
func (in installation) mayScrape(t *testing.T, account string) bool {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:                  in.user(account),
		Groups:                []string{"system:serviceaccounts", "system:authenticated"},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/metrics"},
	}}
	expectAllowed(t, in.admin.Create(t.Context(), review))
	return review.Status.Allowed
}

// token returns a real token of a service account of this installation.
func (in installation) token(t *testing.T, account string) string {
	t.Helper()
	object := &corev1.ServiceAccount{}
	object.Namespace, object.Name = in.namespace, in.name(account)
	request := &authenticationv1.TokenRequest{}
	expectAllowed(t, in.admin.SubResource("token").Create(t.Context(), object, request))
	return request.Status.Token
}

// serveMetrics serves the metrics of this process, as the program with that account does.
func (in installation) serveMetrics(t *testing.T, account string) string {
	t.Helper()
	options, _, err := endpoint.Endpoint{Address: "127.0.0.1:0"}.Open()
	expectAllowed(t, err)
	config := apiserver.ServiceAccount(in.config, in.namespace, in.name(account))
	httpClient, err := rest.HTTPClientFor(config)
	expectAllowed(t, err)
	server, err := metricsserver.NewServer(options, config, httpClient)
	expectAllowed(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		expectAllowed(t, <-ended)
	})
	bound := server.(interface{ GetBindAddr() string })
	eventually(t, "the endpoint listens", func(context.Context) bool { return bound.GetBindAddr() != "" })
	return bound.GetBindAddr()
}
