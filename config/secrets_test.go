/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package config_test

import (
	"context"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/install"
	"github.com/hawser-io/hawser/test/apiserver"
)

const (
	nodeA, nodeB = "secrets-a", "secrets-b"
	accountA     = "hawser-agent-node-" + nodeA
	accountB     = "hawser-agent-node-" + nodeB
	storage      = "secrets-storage"
)

// testNodeAccounts plays the manager: an administrator opens a namespace to it, it creates the accounts of two nodes,
// and lets each read one Secret.
func (in installation) testNodeAccounts(t *testing.T) {
	for _, object := range []client.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeA}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeB}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: storage}},
		newSecret("of-a"), newSecret("of-b"), newSecret("of-none"),
	} {
		expectAllowed(t, in.admin.Create(t.Context(), object))
	}
	manager := in.as(t, managerAccount)
	expectForbidden(t, manager.Create(t.Context(), newRole(accountA, "of-a")), "cannot create resource")
	in.openToManager(t, storage)
	for account, secret := range map[string]string{accountA: "of-a", accountB: "of-b"} {
		expectAllowed(t, manager.Create(t.Context(), in.newAccount(account)))
		expectAllowed(t, manager.Create(t.Context(), newRole(account, secret)))
		expectAllowed(t, manager.Create(t.Context(), in.newBinding(account)))
	}
}

// openToManager binds the role as the documentation does, and returns once that is in force.
func (in installation) openToManager(t *testing.T, namespace string) {
	t.Helper()
	in.kubectl(t, "create", "rolebinding", "hawser-secret-granter", "--namespace="+namespace,
		"--clusterrole="+in.name("hawser-secret-granter"), "--serviceaccount="+in.namespace+":"+in.name(managerAccount))
	roles := permission{group: rbacv1.GroupName, resource: "roles", namespace: namespace}
	eventually(t, "the manager may write Roles in "+namespace, func(context.Context) bool {
		return in.allowed(t, managerAccount, "escalate", roles, "")
	})
}

// testAgentTokens requests tokens as the agents of two nodes do.
func (in installation) testAgentTokens(t *testing.T) {
	agent := in.as(t, agentAccount, nodeA)
	in.grantRules(t, "hawser-agent-pool", "tokens",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"*"}})
	const own, bound = "the agent of node " + nodeA + " may request only tokens of the service account ",
		"must be bound to the Node " + nodeA
	for name, c := range map[string]struct {
		agent            client.Client
		namespace, named string
		change           func(*authenticationv1.TokenRequestSpec)
		message          string
	}{
		"of another node":       {agent: agent, named: accountB, message: own + in.namespace + "/" + accountA},
		"of the manager":        {agent: agent, named: in.name(managerAccount), message: own},
		"of all agents":         {agent: agent, named: in.name(agentAccount), message: own},
		"of another namespace":  {agent: agent, namespace: "default", named: "default", message: "cannot create resource"},
		"without a node":        {agent: in.as(t, agentAccount), named: accountA, message: noNode},
		"with two nodes":        {agent: in.as(t, agentAccount, nodeA, nodeB), named: accountA, message: noNode},
		"as a pool's agent":     {agent: in.as(t, "hawser-agent-pool", nodeA), named: accountB, message: own},
		"as the node's account": {agent: in.asNamed(t, accountA, nodeA), named: accountA, message: "cannot create resource"},
		"as the manager":        {agent: in.as(t, managerAccount), named: accountA, message: "cannot create resource"},
		"bound to nothing": {agent: agent, named: accountA, message: bound,
			change: func(s *authenticationv1.TokenRequestSpec) { s.BoundObjectRef = nil }},
		"bound to another node": {agent: agent, named: accountA, message: bound,
			change: func(s *authenticationv1.TokenRequestSpec) { s.BoundObjectRef.Name = nodeB }},
		"bound to a pod": {agent: agent, named: accountA, message: bound,
			change: func(s *authenticationv1.TokenRequestSpec) { s.BoundObjectRef.Kind = "Pod" }},
		"for longer": {agent: agent, named: accountA, message: "600 seconds at most",
			change: func(s *authenticationv1.TokenRequestSpec) { s.ExpirationSeconds = ptr.To[int64](601) }},
		"for the default time": {agent: agent, named: accountA, message: "600 seconds at most",
			change: func(s *authenticationv1.TokenRequestSpec) { s.ExpirationSeconds = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			request := newTokenRequest(nodeA)
			if c.change != nil {
				c.change(&request.Spec)
			}
			account := in.newAccount(c.named)
			if c.namespace != "" {
				account.Namespace = c.namespace
			}
			expectForbidden(t, c.agent.SubResource("token").Create(t.Context(), account, request), c.message)
		})
	}
	// Kubelets and administrators request other tokens as before.
	request := &authenticationv1.TokenRequest{}
	expectAllowed(t, in.admin.SubResource("token").Create(t.Context(), in.newAccount(in.name(managerAccount)), request))
}

// testSecretsOfNodes reads Secrets with a real token.
func (in installation) testSecretsOfNodes(t *testing.T) {
	agent := in.as(t, agentAccount, nodeA)
	request := newTokenRequest(nodeA)
	expectAllowed(t, agent.SubResource("token").Create(t.Context(), in.newAccount(accountA), request))
	config := rest.AnonymousClientConfig(in.config)
	config.BearerToken = request.Status.Token
	reader, err := client.New(config, client.Options{Scheme: apiserver.Scheme()})
	expectAllowed(t, err)
	read := func(c client.Client, namespace, name string) error {
		return c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &corev1.Secret{})
	}
	eventually(t, "the node's account may read the Secret of the node's volume", func(context.Context) bool {
		return read(reader, storage, "of-a") == nil
	})
	expectForbidden(t, read(reader, storage, "of-b"), accountA)
	expectForbidden(t, read(reader, storage, "of-none"), accountA)
	expectForbidden(t, read(reader, in.namespace, "of-a"), accountA)
	expectForbidden(t, reader.List(t.Context(), &corev1.SecretList{}, client.InNamespace(storage)), accountA)
	for _, account := range []string{agentAccount, managerAccount} {
		expectForbidden(t, read(in.as(t, account, nodeA), storage, "of-a"), in.name(account))
	}
	expectForbidden(t, reader.Status().Update(t.Context(), newNodeState(nodeA)), accountA)

	// The volume is gone from the node, and the manager has observed that.
	expectAllowed(t, in.as(t, managerAccount).Delete(t.Context(), newRole(accountA, "of-a")))
	expectAllowed(t, in.as(t, managerAccount).Delete(t.Context(), in.newBinding(accountA)))
	eventually(t, "the Secret is refused after its volume has gone", func(context.Context) bool {
		return apierrors.IsForbidden(read(reader, storage, "of-a"))
	})

	// The token ends with the Node that it is bound to.
	expectAllowed(t, in.admin.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeA}}))
	eventually(t, "the token of a Node that is gone is refused", func(context.Context) bool {
		return apierrors.IsUnauthorized(read(reader, storage, "of-a"))
	})
}

// testManagerSecrets tries what RBAC allows the manager in a namespace that is open to it, and in all namespaces.
func (in installation) testManagerSecrets(t *testing.T) {
	manager := in.as(t, managerAccount)
	const names, secrets, binds = "only the service accounts, Roles and RoleBindings hawser-agent-node-*",
		"may allow only to get Secrets that it names", "may bind only the Role of its own name"
	for name, c := range map[string]struct {
		object  client.Object
		message string
	}{
		"another name":     {newRole("other", "of-a"), names},
		"every Secret":     {newRole("hawser-agent-node-c"), secrets},
		"another verb":     {changedRole(func(r *rbacv1.PolicyRule) { r.Verbs = []string{"get", "list"} }), secrets},
		"every verb":       {changedRole(func(r *rbacv1.PolicyRule) { r.Verbs = []string{"*"} }), secrets},
		"another resource": {changedRole(func(r *rbacv1.PolicyRule) { r.Resources[0] = "pods" }), secrets},
		"a resource beside": {changedRole(func(r *rbacv1.PolicyRule) { r.Resources = append(r.Resources, "pods") }),
			secrets},
		"every resource": {changedRole(func(r *rbacv1.PolicyRule) { r.Resources[0] = "*" }), secrets},
		"another group":  {changedRole(func(r *rbacv1.PolicyRule) { r.APIGroups = []string{"", "apps"} }), secrets},
		"a second rule":  {secondRule(), secrets},
		"a user":         {in.changedBinding(func(b *rbacv1.RoleBinding) { b.Subjects[0] = newUser() }), binds},
		"a user beside": {in.changedBinding(func(b *rbacv1.RoleBinding) { b.Subjects = append(b.Subjects, newUser()) }),
			binds},
		"another account": {in.changedBinding(func(b *rbacv1.RoleBinding) { b.Subjects[0].Name = accountB }), binds},
		"itself": {in.changedBinding(func(b *rbacv1.RoleBinding) { b.Subjects[0].Name = in.name(managerAccount) }),
			binds},
		"another namespace's account": {
			in.changedBinding(func(b *rbacv1.RoleBinding) { b.Subjects[0].Namespace = storage }), binds},
		"another Role": {
			in.changedBinding(func(b *rbacv1.RoleBinding) { b.RoleRef.Name = accountB }), binds},
		"another account in its namespace": {in.newAccount("other"), names},
	} {
		t.Run(name, func(t *testing.T) { expectForbidden(t, manager.Create(t.Context(), c.object), c.message) })
	}
	role := newRole(accountB, "of-b")
	expectForbidden(t, patched(t, manager, in.newAccount(accountB), `{"secrets":[{"name":"s"}]}`), "cannot patch resource")
	role.Rules[0].ResourceNames = nil
	expectForbidden(t, manager.Update(t.Context(), role), secrets)
	cluster := in.changedBinding(func(b *rbacv1.RoleBinding) {
		b.RoleRef.Kind, b.RoleRef.Name = "ClusterRole", "cluster-admin"
	})
	expectForbidden(t, manager.Create(t.Context(), cluster), "attempting to grant RBAC permissions not currently held")
	expectForbidden(t, manager.Delete(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{
		Namespace: storage, Name: "hawser-secret-granter"}}), names)

	// Other namespaces are not open to it, and the policy does not depend on its roles.
	elsewhere := newRole(accountB, "of-b")
	elsewhere.Namespace = "default"
	expectForbidden(t, manager.Create(t.Context(), elsewhere), "cannot create resource")
	in.grantRules(t, managerAccount, "roles",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"*"}},
		rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"*"}, Verbs: []string{"*"}})
	const clusters = "neither ClusterRoles nor ClusterRoleBindings"
	meta := metav1.ObjectMeta{Name: accountB}
	expectForbidden(t, manager.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta}), clusters)
	expectForbidden(t, manager.Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: meta,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}}), clusters)
	expectForbidden(t, manager.Create(t.Context(), cluster), binds)
	away := in.newAccount("hawser-agent-node-away")
	away.Namespace = storage
	expectForbidden(t, manager.Create(t.Context(), away), "only in its own namespace")
	expectAllowed(t, manager.Delete(t.Context(), newRole(accountB, "of-b")))
	expectAllowed(t, manager.Delete(t.Context(), in.newBinding(accountB)))
}

func newTokenRequest(node string) *authenticationv1.TokenRequest {
	return &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To[int64](600),
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: node},
	}}
}

func newSecret(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: storage, Name: name}}
}

func (in installation) newAccount(name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: in.namespace, Name: name}}
}

func newRole(name string, secrets ...string) *rbacv1.Role {
	return &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: storage, Name: name,
			Labels: map[string]string{install.NodeAccountLabel: "true"}},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: secrets,
			Verbs: []string{"get"}}},
	}
}

func changedRole(change func(*rbacv1.PolicyRule)) *rbacv1.Role {
	role := newRole("hawser-agent-node-c", "of-a")
	change(&role.Rules[0])
	return role
}

func secondRule() *rbacv1.Role {
	role := newRole("hawser-agent-node-c", "of-a")
	role.Rules = append(role.Rules, newRole("", "of-b").Rules[0])
	role.Rules[1].ResourceNames = nil
	return role
}

func (in installation) newBinding(name string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: storage, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: in.namespace, Name: name}},
	}
}

func (in installation) changedBinding(change func(*rbacv1.RoleBinding)) *rbacv1.RoleBinding {
	binding := in.newBinding("hawser-agent-node-c")
	change(binding)
	return binding
}

func newUser() rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "a-user"}
}
