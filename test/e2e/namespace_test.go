/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/csiloop/ledger"
	"github.com/hawser-io/hawser/test/csiloop/store"
	"github.com/hawser-io/hawser/test/system"
)

// tenant is a namespace with everything of one volume, including the Secret that its driver needs to attach and detach.
type tenant struct {
	t            *testing.T
	name, handle string
	// attachment is its VolumeAttachment.
	attachment string
}

// newTenant creates a tenant whose intent is Ready on a node.
func newTenant(t *testing.T, name string) *tenant {
	t.Helper()
	ctx, donor := limited(t), newVolume(t)
	n := &tenant{t: t, name: name, handle: donor.handle}
	n.settle()
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("32Mi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			StorageClassName:              "by-hand",
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: system.DriverName, VolumeHandle: donor.handle, FSType: "ext4",
				ControllerPublishSecretRef: &corev1.SecretReference{Namespace: name, Name: "publish"},
			}},
		},
	}
	t.Cleanup(func() {
		if err := sys.Client.Delete(limited(t), pv); err != nil {
			t.Error(err)
		}
		if err := sys.AwaitVolumeGone(limited(t), pv.Name); err != nil {
			t.Error(err)
		}
	})
	for _, o := range []client.Object{pv,
		&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "data"},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: ptr.To("by-hand"), VolumeName: name, AccessModes: pv.Spec.AccessModes,
				Resources: corev1.VolumeResourceRequirements{Requests: pv.Spec.Capacity},
			},
		},
		&volumesv1alpha1.VolumeAttachmentIntent{
			ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "data"},
			Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{
				NodeName: nodeA,
				Volume: volumesv1alpha1.VolumeSource{
					PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "data"}},
			},
		},
	} {
		if err := sys.Client.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := sys.AwaitReady(ctx, name, "data"); err != nil {
		t.Fatal(err)
	}
	return n
}

// settle creates the namespace with the Secret.
func (n *tenant) settle() {
	n.t.Helper()
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.name}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: n.name, Name: "publish"},
			StringData: map[string]string{"user": "x"}},
	} {
		if err := sys.Client.Create(limited(n.t), o); err != nil {
			n.t.Fatal(err)
		}
	}
}

// leave deletes the namespace and waits until it is gone. It deletes the Secret first: the namespace controller
// deletes in any order, and a detach may be faster.
func (n *tenant) leave() {
	n.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: n.name, Name: "publish"}}
	if err := sys.Client.Delete(limited(n.t), secret); err != nil {
		n.t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.name}}
	if err := sys.Client.Delete(limited(n.t), ns); err != nil {
		n.t.Fatal(err)
	}
	if _, err := system.Await(limited(n.t), sys, &corev1.NamespaceList{}, client.ObjectKeyFromObject(ns),
		func(ns *corev1.Namespace) bool { return ns == nil }); err != nil {
		n.t.Fatal(err)
	}
}

// undetached waits until the node's state reports that the detach fails without the Secret.
func (n *tenant) undetached() {
	n.t.Helper()
	if _, err := sys.AwaitNode(limited(n.t), nodeA, func(s *volumesv1alpha1.NodeVolumeState) bool {
		i := slices.IndexFunc(s.Spec.Attachments,
			func(e volumesv1alpha1.NodeAttachment) bool { return e.VolumeHandle == n.handle })
		if i < 0 || s.Spec.Attachments[i].State != volumesv1alpha1.AttachmentDetaching {
			return false
		}
		n.attachment = s.Spec.Attachments[i].AttachmentName
		return strings.Contains(s.Spec.Attachments[i].DetachError, n.name+"/publish")
	}); err != nil {
		n.t.Fatal(err)
	}
	if err := sys.AwaitEvent(limited(n.t), "default", nodeA, "FailedDetachVolume"); err != nil {
		n.t.Error(err)
	}
}

// forgotten waits until nothing is left of the attachment.
func (n *tenant) forgotten() {
	n.t.Helper()
	if err := sys.AwaitAttachmentGone(limited(n.t), n.attachment); err != nil {
		n.t.Fatal(err)
	}
	if _, err := sys.AwaitNode(limited(n.t), nodeA, func(s *volumesv1alpha1.NodeVolumeState) bool {
		return !slices.ContainsFunc(s.Spec.Attachments,
			func(e volumesv1alpha1.NodeAttachment) bool { return e.VolumeHandle == n.handle })
	}); err != nil {
		n.t.Error(err)
	}
}

// TestANamespaceDrainsThoughTheSecretOfItsVolumeIsGone also checks the solution that docs/operate.md describes.
func TestANamespaceDrainsThoughTheSecretOfItsVolumeIsGone(t *testing.T) {
	t.Parallel()
	t.Run("the Secret is created again", func(t *testing.T) {
		t.Parallel()
		n := newTenant(t, "tenant-with-secret")
		n.leave()
		n.undetached()
		n.settle()
		n.forgotten()
		n.leave()
		entries, err := ledger.Read(sys.BackingDir())
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(entries, func(e ledger.Entry) bool {
			return e.Method == "ControllerUnpublishVolume" && e.Volume == n.handle && e.Phase == ledger.End && e.Code == "OK"
		}) {
			t.Errorf("ledger has no ControllerUnpublishVolume of volume %s, want one that succeeded", n.handle)
		}
	})
	t.Run("the content of the Secret is lost", func(t *testing.T) {
		t.Parallel()
		n := newTenant(t, "tenant-without-secret")
		n.leave()
		n.undetached()
		// The administrator detaches the volume in the backend, and then removes the finalizer.
		n.detachInBackend()
		va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: n.attachment}}
		if err := sys.Client.Patch(limited(t), va, client.RawPatch(types.JSONPatchType, []byte(`[
			{"op":"test","path":"/metadata/finalizers/0","value":"external-attacher/loop-csi-hawser-io"},
			{"op":"remove","path":"/metadata/finalizers/0"}]`))); err != nil {
			t.Fatal(err)
		}
		n.forgotten()
	})
}

func (n *tenant) detachInBackend() {
	n.t.Helper()
	backend, err := store.Open(sys.BackingDir(), 0)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := backend.Unpublish(limited(n.t), n.handle, nodeA); err != nil {
		n.t.Fatal(err)
	}
}
