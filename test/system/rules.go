/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package system

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/hawser-io/hawser/test/apiserver"
)

// Rule is one verb on one resource, which a role of config/ grants.
type Rule struct{ Role, Verb, Group, Resource string }

// String is "role: verb resource.group".
func (r Rule) String() string {
	if r.Group == "" {
		return fmt.Sprintf("%s: %s %s", r.Role, r.Verb, r.Resource)
	}
	return fmt.Sprintf("%s: %s %s.%s", r.Role, r.Verb, r.Resource, r.Group)
}

// account that the role is bound to, or "" for the roles of users.
func (r Rule) account() string {
	switch r.Role {
	case "hawser-agent", "hawser-agent-secrets":
		return AgentUser
	case "hawser-manager", "hawser-leader-election", "hawser-replace", "hawser-forget-gone-nodes":
		return ManagerUser
	}
	return ""
}

// usedBy reports whether the request needed the rule. A request that was authorized needed it, whatever the answer was.
func (r Rule) usedBy(request Request) bool {
	return request.User.Username == r.account() && request.Verb == r.Verb && request.What() == r.Resource &&
		request.ObjectRef.Group == r.Group && request.Annotations["authorization.k8s.io/decision"] == "allow"
}

// Rules lists every rule of every Role and ClusterRole of config/.
func Rules() ([]Rule, error) {
	var rules []Rule
	top := filepath.Join(apiserver.Root(), "config")
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found, err := rulesOf(text)
		if err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
		rules = append(rules, found...)
		return nil
	})
	return rules, err
}

// rulesOf reads the roles among the documents of a file.
func rulesOf(text []byte) ([]Rule, error) {
	var rules []Rule
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		role := &rbacv1.ClusterRole{}
		switch err := decoder.Decode(role); {
		case errors.Is(err, io.EOF):
			return rules, nil
		case err != nil:
			return nil, err
		case strings.HasSuffix(role.Kind, "Role"):
			rules = append(rules, expand(role)...)
		}
	}
}

func expand(role *rbacv1.ClusterRole) []Rule {
	var rules []Rule
	for _, rule := range role.Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					rules = append(rules, Rule{role.Name, verb, group, resource})
				}
			}
		}
	}
	return rules
}

// Unused returns the rules that none of these requests needed, in the order of their names.
func Unused(rules []Rule, requests []Request) []Rule {
	unused := slices.DeleteFunc(slices.Clone(rules), func(rule Rule) bool {
		return slices.ContainsFunc(requests, rule.usedBy)
	})
	slices.SortFunc(unused, func(a, b Rule) int { return strings.Compare(a.String(), b.String()) })
	return unused
}
