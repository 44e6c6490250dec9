/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/system"
)

// secretsNamespace contains the Secret that a driver needs on the nodes.
const secretsNamespace = "driver-secrets"

// TestAVolumeIsPublishedWithASecretThatOnlyItsNodeMayRead publishes a volume whose PersistentVolume names a Secret. The
// audit log shows which accounts have read it.
func TestAVolumeIsPublishedWithASecretThatOnlyItsNodeMayRead(t *testing.T) {
	t.Parallel()
	v := newSecretVolume(t)
	name := v.intent(nodeA)
	v.await(name, func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		c := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionStaged)
		return c != nil && c.Reason == volumesv1alpha1.ReasonSecretNotReadable
	})
	if _, err := sys.Kubectl(limited(t), "create", "rolebinding", "hawser-secret-granter", "--namespace="+secretsNamespace,
		"--clusterrole="+system.Name("hawser-secret-granter"), "--serviceaccount="+system.Account("hawser-manager"),
	); err != nil {
		t.Fatal(err)
	}
	v.ready(name)
	v.release(name)
	role := client.ObjectKey{Namespace: secretsNamespace, Name: "hawser-agent-node-" + nodeA}
	if _, err := system.Await(limited(t), sys, &rbacv1.RoleList{}, role,
		func(r *rbacv1.Role) bool { return r == nil }); err != nil {
		t.Errorf("Role %s after its volume has gone from the node: %v", role, err)
	}
	expectReaders(t)
}

// newSecretVolume creates a volume that needs a Secret for staging and publishing.
func newSecretVolume(t *testing.T) *volume {
	t.Helper()
	donor := newVolume(t)
	reference := &corev1.SecretReference{Namespace: secretsNamespace, Name: "node"}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: secretsNamespace}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secretsNamespace, Name: reference.Name},
			StringData: map[string]string{"user": "x"}},
		&corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "with-secret"},
			Spec: corev1.PersistentVolumeSpec{
				Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("32Mi")},
				AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
				StorageClassName:              "by-hand",
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
					Driver: system.DriverName, VolumeHandle: donor.handle, FSType: "ext4",
					NodeStageSecretRef: reference, NodePublishSecretRef: reference,
				}},
			},
		},
	} {
		if err := sys.Client.Create(limited(t), o); err != nil {
			t.Fatal(err)
		}
	}
	return newVolume(t, func(pvc *corev1.PersistentVolumeClaim) {
		pvc.Spec.StorageClassName, pvc.Spec.VolumeName = ptr.To("by-hand"), "with-secret"
	})
}

// expectReaders fails unless the account of node A, and no other account of Hawser's, has read the Secret.
func expectReaders(t *testing.T) {
	t.Helper()
	requests, err := sys.RequestsOn("secrets")
	if err != nil {
		t.Fatal(err)
	}
	read := false
	for _, r := range requests {
		switch user := r.User.Username; {
		case r.Verb == "get" && user == system.NodeUser(nodeA) && r.Node() == nodeA && r.ObjectRef.Name == "node" &&
			r.ObjectRef.Namespace == secretsNamespace:
			read = read || r.ResponseStatus.Code == 200
		case user == system.AgentUser || user == system.ManagerUser || user == system.NodeUser(nodeA) ||
			user == system.NodeUser(nodeB):
			t.Errorf("%s with a token of node %q has requested: %s %s", user, r.Node(), r.Verb, r.RequestURI)
		}
	}
	if !read {
		t.Errorf("%s has read no Secret, want that of the volume", system.NodeUser(nodeA))
	}
}
