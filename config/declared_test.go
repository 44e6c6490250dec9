/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package config_test

import (
	"context"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
)

const declaredKey = volumesv1alpha1.DeclaredReleasedPrefix + "8d3f2b1c-0000-0000-0000-000000000001"

// userWith returns a client of a user with these verbs on every NodeVolumeState.
func (in installation) userWith(t *testing.T, name string, verbs ...string) client.Client {
	t.Helper()
	role := &rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"volumes.hawser.io"}, Resources: []string{"nodevolumestates"},
		Verbs: append([]string{"get"}, verbs...),
	}}}
	role.Name = "test-" + name
	in.grant(t, role.Name, name, role)
	return in.person(t, name)
}

// grant binds a cluster role to a user, and creates the objects of the role first.
func (in installation) grant(t *testing.T, role, name string, objects ...client.Object) {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}},
	}
	binding.Name = "test-" + name
	for _, o := range append(objects, binding) {
		expectAllowed(t, in.admin.Create(t.Context(), o))
	}
}

// holds is true once each user may change a NodeVolumeState. The authorizer sees new roles after a delay.
func (in installation) holds(people ...client.Client) func(context.Context) bool {
	return func(ctx context.Context) bool {
		for _, c := range people {
			before := newNodeState("declared")
			if err := in.admin.Get(ctx, client.ObjectKeyFromObject(before), before); err != nil {
				return false
			}
			after := before.DeepCopy()
			after.Labels = map[string]string{"probe": "probe"}
			if c.Patch(ctx, after, client.MergeFrom(before), client.DryRunAll) != nil {
				return false
			}
		}
		return true
	}
}

// person returns a client of a user that is not a service account.
func (in installation) person(t *testing.T, name string) client.Client {
	t.Helper()
	config := rest.CopyConfig(in.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:authenticated"}}
	c, err := client.New(config, client.Options{Scheme: apiserver.Scheme()})
	expectAllowed(t, err)
	return c
}

// testDeclared checks which users may declare an attachment released.
func (in installation) testDeclared(t *testing.T) {
	const name, verb = "declared", "the verb declare on nodevolumestates.volumes.hawser.io"
	expectAllowed(t, in.admin.Create(t.Context(), newNodeState(name)))
	in.grant(t, "cluster-admin", "cluster-administrator")
	clusterAdmin, declarer := in.person(t, "cluster-administrator"), in.userWith(t, "declarer", "patch", "declare")
	editor, manager := in.userWith(t, "editor", "patch", "update", "create"), in.as(t, managerAccount)
	eventually(t, "the grants hold", in.holds(editor, declarer, clusterAdmin))

	put := func(c client.Client, why ...string) error {
		before := newNodeState(name)
		expectAllowed(t, in.admin.Get(t.Context(), client.ObjectKeyFromObject(before), before))
		after := before.DeepCopy()
		after.Annotations = map[string]string{"other": strings.Join(why, " ")}
		if len(why) > 0 {
			after.Annotations[declaredKey] = why[0]
		}
		return c.Patch(t.Context(), after, client.MergeFrom(before))
	}
	update := func(c client.Client, change func(*volumesv1alpha1.NodeVolumeState)) error {
		state := newNodeState(name)
		expectAllowed(t, in.admin.Get(t.Context(), client.ObjectKeyFromObject(state), state))
		change(state)
		return c.Update(t.Context(), state)
	}

	expectForbidden(t, put(editor, "why not"), verb, declaredKey, "editor does not have")
	expectForbidden(t, update(manager, func(s *volumesv1alpha1.NodeVolumeState) {
		s.Annotations = map[string]string{declaredKey: "to help myself"}
	}), verb)
	expectForbidden(t, put(in.as(t, agentAccount, name), "I am done"))
	expectForbidden(t, put(in.namespaceAdmin(t), "my volume"))
	created := newNodeState("created-declared")
	created.Annotations = map[string]string{declaredKey: "from the start"}
	expectForbidden(t, editor.Create(t.Context(), created), verb)

	for _, why := range []string{"", "  ", strings.Repeat("x", 1025)} {
		if err := put(clusterAdmin, why); !apierrors.IsInvalid(err) ||
			!strings.Contains(err.Error(), "must be the reason why") {
			t.Errorf("a declaration that gives %d characters as its reason: %v", len(why), err)
		}
	}
	in.kubectl(t, "annotate", "nvs", name, declaredKey+"=the machine was scrapped")
	expectForbidden(t, put(editor, "another reason"), verb)
	expectForbidden(t, put(editor), "is removed by Hawser")
	expectAllowed(t, put(declarer, "the machine was scrapped, ticket 4711"))

	in.kubectl(t, "create", "clusterrole", "hawser-declarer", "--verb=get,list,patch,declare",
		"--resource=nodevolumestates.volumes.hawser.io", "--dry-run=server")

	// A user without the verb may still write the object's other annotations.
	expectAllowed(t, put(editor, "the machine was scrapped, ticket 4711"))
	expectAllowed(t, update(manager, func(s *volumesv1alpha1.NodeVolumeState) { s.Spec.Protocol.Fences++ }))
	in.reportBesideDeclaration(t, name)

	expectAllowed(t, update(manager, func(s *volumesv1alpha1.NodeVolumeState) { delete(s.Annotations, declaredKey) }))
	expectAllowed(t, put(declarer, "once more"))
	expectAllowed(t, put(declarer))
	in.testFindingUIDs(t, name)

	excuse := func(restore string) func(*volumesv1alpha1.NodeVolumeState) {
		return func(s *volumesv1alpha1.NodeVolumeState) {
			s.Annotations = map[string]string{volumesv1alpha1.ExcusedFromRestoreAnnotation: restore}
		}
	}
	expectForbidden(t, update(editor, excuse("a-restore")), verb, "excused-from-restore", "editor does not have")
	expectForbidden(t, update(manager, excuse("a-restore")), verb)
	in.kubectl(t, "annotate", "nvs", name, volumesv1alpha1.ExcusedFromRestoreAnnotation+"=a-restore")
	expectForbidden(t, update(editor, excuse("another-restore")), verb)
	expectAllowed(t, update(editor, func(s *volumesv1alpha1.NodeVolumeState) { s.Annotations["other"] = "x" }))
}

// testFindingUIDs runs the queries that docs/operate.md documents.
func (in installation) testFindingUIDs(t *testing.T, name string) {
	t.Helper()
	state := newNodeState(name)
	expectAllowed(t, in.admin.Get(t.Context(), client.ObjectKeyFromObject(state), state))
	state.Spec.Attachments = []volumesv1alpha1.NodeAttachment{
		{VolumeName: "v1", AttachmentUID: "uid-1", State: volumesv1alpha1.AttachmentDetaching}}
	expectAllowed(t, in.admin.Update(t.Context(), state))
	state.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: "v2", AttachmentUID: "uid-2", InUse: true},
		{VolumeName: "v3", AttachmentUID: "uid-3"}}
	expectAllowed(t, in.admin.Status().Update(t.Context(), state))
	for path, want := range map[string]string{
		`{range .spec.attachments[*]}{.attachmentUID}{"  "}` +
			`{.state}{"  "}{.volumeName}{"\n"}{end}`: "uid-1  Detaching  v1\n",
		`{range .status.volumes[?(@.inUse==true)]}{.attachmentUID}` +
			`{"  in use  "}{.volumeName}{"\n"}{end}`: "uid-2  in use  v2\n",
	} {
		if got := in.kubectl(t, "get", "nvs", name, "-o", "jsonpath="+path); got != want {
			t.Errorf("%s shows %q, want %q", path, got, want)
		}
	}
}

// reportBesideDeclaration checks that an agent's report cannot change a declaration.
func (in installation) reportBesideDeclaration(t *testing.T, name string) {
	t.Helper()
	state := newNodeState(name)
	expectAllowed(t, in.admin.Get(t.Context(), client.ObjectKeyFromObject(state), state))
	why := state.Annotations[declaredKey]
	state.Status.Protocol.Reports++
	state.Annotations[declaredKey] = "changed by a report"
	state.Annotations[volumesv1alpha1.DeclaredReleasedPrefix+"another"] = "set by a report"
	if err := in.as(t, agentAccount, name).Status().Update(t.Context(), state); err != nil && !apierrors.IsForbidden(err) {
		t.Fatal(err)
	}
	expectAllowed(t, in.admin.Get(t.Context(), client.ObjectKeyFromObject(state), state))
	if len(state.Annotations) != 2 || state.Annotations[declaredKey] != why {
		t.Errorf("a report changed the declaration: %v", state.Annotations)
	}
	state.Status.Protocol.Reports++
	expectAllowed(t, in.as(t, agentAccount, name).Status().Update(t.Context(), state))
}

// testDeclaredByHawser checks that Hawser's own accounts may not declare, even with the verb.
func (in installation) testDeclaredByHawser(t *testing.T) {
	for _, account := range []string{managerAccount, "hawser-agent-pool"} {
		in.grantEverything(t, account)
		state := newNodeState("declared-by-" + account)
		state.Annotations = map[string]string{declaredKey: "to help myself"}
		expectForbidden(t, in.as(t, account, state.Name).Create(t.Context(), state))
		state.Annotations = map[string]string{volumesv1alpha1.ExcusedFromRestoreAnnotation: "a-restore"}
		expectForbidden(t, in.as(t, account, state.Name).Create(t.Context(), state))
	}
	state := newNodeState("declared-by-policy")
	state.Annotations = map[string]string{declaredKey: volumesv1alpha1.ForgetGoneReason + "24h0m0s: gone"}
	expectForbidden(t, in.as(t, "hawser-agent-pool", state.Name).Create(t.Context(), state.DeepCopy()))
	expectAllowed(t, in.as(t, managerAccount).Create(t.Context(), state))
}

// testForgetGoneNodes checks that the manager may declare only with the component, and only because of its flag.
func (in installation) testForgetGoneNodes(t *testing.T) {
	state := newNodeState("forgotten-gone")
	state.Annotations = map[string]string{declaredKey: volumesv1alpha1.ForgetGoneReason + "24h0m0s: gone"}
	manager := in.as(t, managerAccount)
	expectForbidden(t, manager.Create(t.Context(), state.DeepCopy()),
		"the verb declare on nodevolumestates.volumes.hawser.io")
	all := in.kubectl(t, "kustomize", in.overlay(t, "standalone", "forget-gone-nodes"))
	if !strings.Contains(all, "- --forget-gone-nodes-after=24h\n") {
		t.Error("the component does not set the manager's flag")
	}
	role := in.overlay(t, "rbac", "forget-gone-nodes")
	in.kubectl(t, "apply", "-k", role)
	defer in.kubectl(t, "delete", "clusterrole,clusterrolebinding", in.name("hawser-forget-gone-nodes"))
	eventually(t, "the manager may declare because of its flag", func(ctx context.Context) bool {
		return manager.Create(ctx, state.DeepCopy()) == nil
	})
	state.Name, state.Annotations[declaredKey] = "forgotten-for-no-reason", "to help myself"
	expectForbidden(t, manager.Create(t.Context(), state))
}

// namespaceAdmin returns a client of a user that administers a namespace.
func (in installation) namespaceAdmin(t *testing.T) client.Client {
	t.Helper()
	binding := &rbacv1.RoleBinding{
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "namespace-administrator"}},
	}
	binding.Namespace, binding.Name = "default", "namespace-administrator"
	expectAllowed(t, in.admin.Create(t.Context(), binding))
	return in.person(t, "namespace-administrator")
}
