/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package config_test

import (
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// newAttachment returns an attachment with a hold since the given time, or without a hold if that is empty.
func newAttachment(name, since string) *storagev1.VolumeAttachment {
	attachment := &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{
		Attacher: "loop.csi.hawser.io", NodeName: "node-a",
		Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("pv")},
	}}
	attachment.Name = name
	attachment.Labels = map[string]string{"test": "hold"}
	if since != "" {
		attachment.Annotations = map[string]string{volumesv1alpha1.HoldAnnotation: since}
	}
	return attachment
}

func (in installation) testHold(t *testing.T) {
	const since = "2026-01-02T03:04:05Z"
	in.grantEverything(t, managerAccount)
	manager := in.as(t, managerAccount)
	held, free := newAttachment("held", since), newAttachment("free", "")
	expectAllowed(t, manager.Create(t.Context(), held))
	expectAllowed(t, in.admin.Create(t.Context(), free))

	parts := []string{"volumes.hawser.io/hold since " + since, "on node node-a", "Delete those intents",
		"kubectl get vai -A"}
	expectForbidden(t, in.admin.Delete(t.Context(), held.DeepCopy()), parts...)

	set := kubernetes.NewForConfigOrDie(in.config)
	err := set.StorageV1().VolumeAttachments().DeleteCollection(t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: "test=hold"})
	expectForbidden(t, err, parts...)
	expectAllowed(t, in.admin.Get(t.Context(), client.ObjectKeyFromObject(held), held))

	// The attacher can still update an attachment with a hold.
	held.Status.Attached = true
	expectAllowed(t, in.admin.Status().Update(t.Context(), held))
	held.Finalizers = []string{"external-attacher/loop-csi-hawser-io"}
	expectAllowed(t, in.admin.Update(t.Context(), held))
	held.Finalizers = nil
	expectAllowed(t, in.admin.Update(t.Context(), held))

	// Only the manager may delete an attachment with a hold.
	again := newAttachment("held-again", since)
	expectAllowed(t, manager.Create(t.Context(), again))
	expectAllowed(t, manager.Delete(t.Context(), again))

	delete(held.Annotations, volumesv1alpha1.HoldAnnotation)
	expectAllowed(t, manager.Update(t.Context(), held))
	expectAllowed(t, in.admin.Delete(t.Context(), held))
	if err := in.admin.Delete(t.Context(), free); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if err := in.admin.Get(t.Context(), client.ObjectKeyFromObject(held), held); !apierrors.IsNotFound(err) {
		t.Errorf("the attachment without a hold must be deleted: %v", err)
	}
}

func (in installation) testHoldAnnotation(t *testing.T) {
	const name, onlyTheManager = "annotated",
		"only Hawser's service account hawser-manager may set, change or remove"
	in.grantEverything(t, managerAccount)
	manager := in.as(t, managerAccount)
	expectForbidden(t, in.admin.Create(t.Context(), newAttachment(name, "t1")), volumesv1alpha1.HoldAnnotation,
		onlyTheManager)

	attachment := newAttachment(name, "")
	expectAllowed(t, in.admin.Create(t.Context(), attachment))
	annotate := func(c client.Client, since string) error {
		changed := attachment.DeepCopy()
		changed.Annotations = map[string]string{"other": "since " + since}
		if since != "" {
			changed.Annotations[volumesv1alpha1.HoldAnnotation] = since
		}
		return c.Patch(t.Context(), changed, client.MergeFrom(attachment))
	}
	reread := func() {
		expectAllowed(t, in.admin.Get(t.Context(), client.ObjectKeyFromObject(attachment), attachment))
	}

	expectForbidden(t, annotate(in.admin, "t1"), volumesv1alpha1.HoldAnnotation, onlyTheManager)
	expectAllowed(t, annotate(manager, "t1"))
	reread()
	expectForbidden(t, annotate(in.admin, "t2"), onlyTheManager)
	expectForbidden(t, annotate(in.admin, ""), onlyTheManager)
	expectAllowed(t, annotate(manager, "t2"))
	reread()

	other := attachment.DeepCopy()
	other.Annotations["other"] = "a change next to the hold"
	expectAllowed(t, in.admin.Update(t.Context(), other))
	reread()

	expectAllowed(t, annotate(manager, ""))
	reread()
	if _, held := attachment.Annotations[volumesv1alpha1.HoldAnnotation]; held {
		t.Error("the manager removed the hold, and it is still there")
	}
	expectAllowed(t, in.admin.Delete(t.Context(), attachment))
}

// testImpostors checks the accounts that have either the manager's name or its verb, but not both.
func (in installation) testImpostors(t *testing.T) {
	since := newAttachment("held-for-impostors", "t1")
	expectAllowed(t, in.as(t, managerAccount).Create(t.Context(), since))
	in.grantEverything(t, "deployer")
	in.grantClusterAdmin(t, "cluster-deployer")
	elsewhere := in
	elsewhere.namespace, elsewhere.prefix = "default", ""
	elsewhere.grantStorage(t, managerAccount)
	for who, c := range map[string]client.Client{
		"an account with every right on Hawser's kinds": in.as(t, "deployer"),
		"an account with every right":                   in.as(t, "cluster-deployer"),
		"an account of the manager's name elsewhere":    elsewhere.as(t, managerAccount),
	} {
		t.Run(who, func(t *testing.T) {
			expectForbidden(t, c.Delete(t.Context(), since.DeepCopy()), "ValidatingAdmissionPolicy", "Delete those intents")
		})
	}
	expectAllowed(t, in.as(t, managerAccount).Delete(t.Context(), since))
}
