/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator_test

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const sources = `{"fencing":{"sources":[
	{"name":"hosts","group":"example.com","version":"v1","resource":"hosts","nodeName":"object.metadata.name",
		"holds":"object.spec.off","proves":"PowerOff"},
	{"name":"nodes","version":"v1","resource":"nodes","nodeName":"object.metadata.name","holds":"false",
		"proves":"PowerOff"}]}}`

// flags are the names of the sources in the flags of the manager.
func flags(args []string) string {
	var names []string
	for _, arg := range args {
		if text, is := strings.CutPrefix(arg, `--fence-source={"name":"`); is {
			name, _, _ := strings.Cut(text, `"`)
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

func (s server) awaitSources(t *testing.T, want string) {
	t.Helper()
	s.args(t, deployment, "hawser-manager", "it has the fence sources "+want,
		func(args []string) bool { return flags(args) == want })
}

// testFenceSources has an administrator add a source before its kind, and its kind before the right to read it.
func (s server) testFenceSources(t *testing.T) {
	s.change(t, sources)
	s.awaitSources(t, "hosts nodes")
	s.awaitCondition(t, "FenceSourcesReady", "False", "FenceSourceMissing",
		"source hosts: the API server does not serve hosts.example.com in version v1")
	s.awaitEvent(t, "FenceSourceMissing", "source hosts")

	s.kubectl(t, "apply", "-f", "../internal/operator/testdata/hosts.yaml")
	const account = "system:serviceaccount:hawser-system:hawser-manager"
	s.awaitCondition(t, "FenceSourcesReady", "False", "FenceSourceForbidden",
		"source hosts: "+account+" may not get hosts.example.com")

	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "fence-hosts"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"example.com"}, Resources: []string{"hosts"}, Verbs: []string{"get", "list"}}}}
	check(t, s.admin.Create(t.Context(), role))
	check(t, s.admin.Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "fence-hosts"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "fence-hosts"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "hawser-manager"}}}))
	s.awaitCondition(t, "FenceSourcesReady", "False", "FenceSourceForbidden", "may not watch hosts.example.com")
	role.Rules[0].Verbs = append(role.Rules[0].Verbs, "watch")
	check(t, s.admin.Update(t.Context(), role))
	s.awaitCondition(t, "FenceSourcesReady", "True", "AsExpected", "")

	// The manager would not start with an expression that does not compile.
	s.change(t, strings.Replace(sources, "object.spec.off", "object.", 1))
	s.awaitSources(t, "nodes")
	s.awaitCondition(t, "FenceSourcesReady", "False", "FenceSourceBroken", `source hosts: holds "object."`)

	s.change(t, sources)
	s.awaitCondition(t, "FenceSourcesReady", "True", "AsExpected", "")
	s.kubectl(t, "delete", "crd", "hosts.example.com")
	s.awaitCondition(t, "FenceSourcesReady", "False", "FenceSourceMissing", "source hosts")

	s.change(t, `{"fencing":null}`)
	s.awaitSources(t, "")
	s.await(t, volumeManager, "", "cluster", "it has no condition FenceSourcesReady",
		func(o *unstructured.Unstructured) bool {
			vm := asVolumeManager(t, o)
			return !slices.ContainsFunc(vm.Status.Conditions,
				func(c metav1.Condition) bool { return c.Type == "FenceSourcesReady" })
		})
	s.settle(t)
}
