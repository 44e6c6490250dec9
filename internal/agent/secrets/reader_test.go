/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package secrets

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const tokenPath = "/api/v1/namespaces/home/serviceaccounts/hawser-agent-node-a/token"

// server is an API server that gives tokens to the agent, and the Secret of a volume to the holder of the last token.
type server struct {
	*testing.T
	mu sync.Mutex
	// absent: the account does not exist. forbidden: it may not read the Secret.
	absent, forbidden bool
	// lifetime of tokens; the one asked for unless it is set.
	lifetime time.Duration
	tokens   int
	reads    []string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	user := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Method == http.MethodPost && r.URL.Path == tokenPath && user == "agent" && s.absent:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case r.Method == http.MethodPost && r.URL.Path == tokenPath && user == "agent":
		s.serveToken(w, r)
	case r.Method == http.MethodGet && r.URL.Path == "/api/v1/namespaces/storage/secrets/creds":
		s.serveSecret(w, user)
	default:
		s.Errorf("unexpected request by %q: %s %s", user, r.Method, r.URL)
	}
}

func (s *server) serveSecret(w http.ResponseWriter, user string) {
	s.reads = append(s.reads, user)
	switch {
	case user != s.token():
		refuse(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized)
	case s.forbidden:
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden)
	default:
		answer(w, &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			Data: map[string][]byte{"key": []byte("hush")}})
	}
}

// token is the one that is valid.
func (s *server) token() string { return fmt.Sprintf("token-%d", s.tokens) }

func (s *server) serveToken(w http.ResponseWriter, r *http.Request) {
	request := &authenticationv1.TokenRequest{}
	if err := json.NewDecoder(r.Body).Decode(request); err != nil {
		s.Errorf("reading a request for a token: %v", err)
		return
	}
	bound, seconds := request.Spec.BoundObjectRef, request.Spec.ExpirationSeconds
	if bound == nil || bound.Kind != "Node" || bound.Name != "a" || seconds == nil || *seconds != 600 {
		s.Errorf("the request is for a token bound to %v that is valid for %v seconds, want Node a and 600", bound, seconds)
		return
	}
	s.tokens++
	lifetime := time.Duration(*seconds) * time.Second
	if s.lifetime != 0 {
		lifetime = s.lifetime
	}
	request.APIVersion, request.Kind = "authentication.k8s.io/v1", "TokenRequest"
	request.Status.Token, request.Status.ExpirationTimestamp = s.token(), metav1.NewTime(time.Now().Add(lifetime))
	w.WriteHeader(http.StatusCreated)
	answer(w, request)
}

func answer(w http.ResponseWriter, o any) { _ = json.NewEncoder(w).Encode(o) }

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.WriteHeader(code)
	answer(w, &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Reason: reason, Code: int32(code)})
}

func newReader(t *testing.T, s *server, node string) *Reader {
	t.Helper()
	s.T = t
	http := httptest.NewServer(s)
	t.Cleanup(http.Close)
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"Secret", "ServiceAccount"} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	config := &rest.Config{Host: http.URL, BearerToken: "agent",
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}
	live, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	reader, err := NewReader(Options{Config: config, Live: live, Node: node, Namespace: "home"})
	if err != nil {
		t.Fatal(err)
	}
	return reader
}

func read(r *Reader, t *testing.T) (string, error) {
	t.Helper()
	secret := &corev1.Secret{}
	err := r.Get(t.Context(), client.ObjectKey{Namespace: "storage", Name: "creds"}, secret)
	return string(secret.Data["key"]), err
}

func expectRead(t *testing.T, r *Reader) {
	t.Helper()
	if got, err := read(r, t); err != nil || got != "hush" {
		t.Errorf("the Secret is %q with error %v, want hush", got, err)
	}
}

func expectRefused(t *testing.T, r *Reader, parts ...string) {
	t.Helper()
	_, err := read(r, t)
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("reading the Secret: %v, want an error with %q", err, part)
		}
	}
}

func (s *server) expect(tokens, reads int) {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens != tokens || len(s.reads) != reads {
		s.Errorf("the API server gave %d tokens and received %d reads (%q), want %d and %d", s.tokens, len(s.reads), s.reads,
			tokens, reads)
	}
}

func TestSecretsAreReadWithOneTokenOfTheNodesAccount(t *testing.T) {
	s := &server{}
	r := newReader(t, s, "a")
	s.expect(0, 0) // nothing is requested before a volume needs it
	expectRead(t, r)
	expectRead(t, r)
	s.expect(1, 2)
}

func TestATokenIsReplacedBeforeItEnds(t *testing.T) {
	s := &server{lifetime: margin}
	r := newReader(t, s, "a")
	expectRead(t, r)
	expectRead(t, r)
	if s.tokens < 2 {
		t.Errorf("two reads with tokens that end within %s took %d tokens, want one each", margin, s.tokens)
	}
}

func TestATokenThatIsNotAcceptedAnyMoreIsReplacedAtOnce(t *testing.T) {
	s := &server{}
	r := newReader(t, s, "a")
	expectRead(t, r)
	s.mu.Lock()
	s.tokens++ // another token is valid now
	s.mu.Unlock()
	expectRead(t, r)
	s.expect(3, 3)
}

func TestAMissingAccessIsReportedWithTheAccountAndTheWayOut(t *testing.T) {
	s := &server{absent: true}
	r := newReader(t, s, "a")
	expectRefused(t, r, "home/hawser-agent-node-a does not exist (yet)", "the manager creates it")
	s.expect(0, 0)
	s.mu.Lock()
	s.absent, s.forbidden = false, true
	s.mu.Unlock()
	expectRefused(t, r, "home/hawser-agent-node-a", "hawser-secret-granter")
	s.mu.Lock()
	s.forbidden = false
	s.mu.Unlock()
	expectRead(t, r)
}

func TestANodeWithATooLongNameRunsAnAgentWithoutSecrets(t *testing.T) {
	s := &server{}
	expectRefused(t, newReader(t, s, strings.Repeat("n", 236)), "longer than 235 characters")
	s.expect(0, 0)
}
