/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/system"
)

const role = "hawser-operator"

// rights collects what the operator's requests needed of its roles.
type rights struct {
	mu   sync.Mutex
	used map[system.Rule]bool
	// after is called with each request that was answered, and with its answer. The operator waits for it.
	after func(*http.Request, *http.Response)
}

func (r *rights) wrap(next http.RoundTripper) http.RoundTripper {
	return recorder{rights: r, next: next}
}

type recorder struct {
	rights *rights
	next   http.RoundTripper
}

func (r recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	if err == nil && r.rights.after != nil {
		r.rights.after(request, response)
	}
	if err == nil && response.StatusCode != http.StatusForbidden {
		r.rights.note(request, response.StatusCode)
	}
	return response, err
}

func (r *rights) note(request *http.Request, status int) {
	rule, named := parse(request.URL.Path)
	verbs := map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch",
		http.MethodDelete: "delete", http.MethodGet: "list"}
	rule.Verb = verbs[request.Method]
	switch {
	case request.URL.Query().Get("watch") != "":
		rule.Verb = "watch"
	case request.Method == http.MethodGet && named:
		rule.Verb = "get"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used[rule] = true
	if request.Method == http.MethodPatch && status == http.StatusCreated {
		rule.Verb = "create"
		r.used[rule] = true
	}
}

// parse reads group and resource from a path, and whether it names an object.
func parse(path string) (rule system.Rule, named bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	rule.Role = role
	if parts[0] == "apis" && len(parts) > 2 {
		rule.Group, parts = parts[1], parts[3:]
	} else if parts[0] == "api" && len(parts) > 1 {
		parts = parts[2:]
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) == 0 {
		return rule, false
	}
	rule.Resource = parts[0]
	if len(parts) > 2 {
		rule.Resource += "/" + parts[2]
	}
	return rule, len(parts) > 1
}

// elsewhere are the rules that no request of this test needs.
func elsewhere(r system.Rule) bool {
	switch {
	case r.Verb == "list": // an API server that streams what there is at the beginning of a watch needs none
	case r.Verb == "escalate", r.Verb == "bind": // part of the requests that apply roles and bindings
	case r.Resource == "tokenreviews", r.Resource == "leases" && r.Verb != "delete":
		// cmd/operator TestTheOperatorOnARealAPIServer
	case r.Resource == "events" && (r.Group == "" || r.Verb == "patch"): // leader election; a series of events
	default:
		return false
	}
	return true
}

func (s server) testRights(t *testing.T) {
	rules, err := system.ReadRules()
	check(t, err)
	s.rights.mu.Lock()
	defer s.rights.mu.Unlock()
	count := 0
	for _, rule := range rules.All {
		mutating := strings.HasPrefix(rule.Resource, "mutatingadmissionpolic")
		if rule.Role != role || mutating && !apiserver.MutatingPolicies(t) {
			continue
		}
		count++
		if !s.rights.used[rule] && !elsewhere(rule) {
			t.Errorf("no request needed the rule %q", rule)
		}
		if s.rights.used[rule] && elsewhere(rule) && !slices.Contains([]string{"list", "patch"}, rule.Verb) {
			t.Errorf("the rule %q is an exception, but a request needed it", rule)
		}
	}
	if count == 0 {
		t.Errorf("there is no role %s", role)
	}
}
