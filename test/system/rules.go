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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/hawser-io/hawser/test/apiserver"
)

// Rule is one verb on one resource, or on one URL, which a role of config/ grants.
type Rule struct{ Role, Verb, Group, Resource string }

// String is "role: verb resource.group".
func (r Rule) String() string {
	return strings.TrimSuffix(fmt.Sprintf("%s: %s %s.%s", r.Role, r.Verb, r.Resource, r.Group), ".")
}

// Rules are the rules of every Role and ClusterRole of config/, and the users that the roles are bound to.
type Rules struct {
	All   []Rule
	users map[string][]string
}

// document is a role or a binding.
type document struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Rules             []rbacv1.PolicyRule `json:"rules"`
	RoleRef           rbacv1.RoleRef      `json:"roleRef"`
	Subjects          []rbacv1.Subject    `json:"subjects"`
}

// ReadRules reads the rules.
func ReadRules() (*Rules, error) {
	rules := &Rules{users: map[string][]string{}}
	top := filepath.Join(apiserver.Root(), "config")
	return rules, filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := rules.read(text); err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
		return nil
	})
}

// read adds the roles and bindings among the documents of a file.
func (r *Rules) read(text []byte) error {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		d := document{}
		if err := decoder.Decode(&d); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if d.APIVersion != rbacv1.SchemeGroupVersion.String() {
			continue
		}
		for _, rule := range d.Rules {
			r.All = append(r.All, expand(d.Name, rule)...)
		}
		for _, subject := range d.Subjects {
			r.users[d.RoleRef.Name] = append(r.users[d.RoleRef.Name], user(namePrefix+subject.Name))
		}
	}
}

func expand(role string, rule rbacv1.PolicyRule) []Rule {
	var rules []Rule
	for _, verb := range rule.Verbs {
		for _, url := range rule.NonResourceURLs {
			rules = append(rules, Rule{Role: role, Verb: verb, Resource: url})
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				rules = append(rules, Rule{role, verb, group, resource})
			}
		}
	}
	return rules
}

// Unused returns the rules that none of these requests needed, in the order of their names.
func (r *Rules) Unused(requests []Request) []Rule {
	unused := slices.DeleteFunc(slices.Clone(r.All), func(rule Rule) bool {
		return slices.ContainsFunc(requests, func(request Request) bool { return r.needs(request, rule) })
	})
	slices.SortFunc(unused, func(a, b Rule) int { return strings.Compare(a.String(), b.String()) })
	return unused
}

// needs reports whether the request needed the rule. A request that was authorized did, whatever the answer was.
func (r *Rules) needs(request Request, rule Rule) bool {
	return slices.Contains(r.users[rule.Role], request.User.Username) && request.Verb == rule.Verb &&
		request.What() == rule.Resource && request.ObjectRef.Group == rule.Group &&
		request.Annotations["authorization.k8s.io/decision"] == "allow"
}
