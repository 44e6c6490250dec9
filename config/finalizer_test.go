/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package config_test

import (
	"context"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
)

const withoutFinalizer = `
apiVersion: volumes.hawser.io/v1alpha1
kind: VolumeAttachmentIntent
metadata: {name: finalizer, namespace: default}
spec:
  nodeName: node-a
  readOnly: true
  volume: {persistentVolumeClaim: {claimName: data}}
`

func (in installation) testReleaseFinalizer(t *testing.T) {
	if !apiserver.MutatingPolicies(t) {
		t.Skip("the API server has no mutating policies; the manager sets the finalizer")
	}
	in.kubectl(t, "label", "namespace", "default", "volumes.hawser.io/allow-force-detach=true",
		"volumes.hawser.io/allow-publisher-kubelet=true")
	eventually(t, "the namespace allows everything", func(ctx context.Context) bool {
		return in.admin.Create(ctx, forced(byKubelet(newIntent("probe-labels", "node-a"))), client.DryRunAll) == nil
	})
	intent := newIntent("finalizer", "node-a")
	expectAllowed(t, in.admin.Create(t.Context(), intent))
	expectFinalizers(t, intent, volumesv1alpha1.ReleaseFinalizer)

	in.kubectlStdin(t, withoutFinalizer, "replace", "-f", "-")
	expectAllowed(t, in.admin.Get(t.Context(), client.ObjectKeyFromObject(intent), intent))
	if !intent.Spec.ReadOnly {
		t.Fatal("the replace did not arrive")
	}
	expectFinalizers(t, intent, volumesv1alpha1.ReleaseFinalizer)

	intent.Finalizers = []string{"example.com/other"}
	expectAllowed(t, in.admin.Update(t.Context(), intent))
	expectFinalizers(t, intent, "example.com/other", volumesv1alpha1.ReleaseFinalizer)

	forKubelet := newIntent("for-kubelet", "node-a")
	forKubelet.Spec.Publisher, forKubelet.Spec.DesiredState = volumesv1alpha1.PublisherKubelet,
		volumesv1alpha1.DesiredAttached
	expectAllowed(t, in.admin.Create(t.Context(), forKubelet))
	expectFinalizers(t, forKubelet)
	forKubelet = newIntent("for-kubelet-with-policy", "node-a")
	forKubelet.Spec.Publisher, forKubelet.Spec.DesiredState = volumesv1alpha1.PublisherKubelet,
		volumesv1alpha1.DesiredAttached
	forKubelet.Spec.DetachPolicy = &volumesv1alpha1.DetachPolicy{ForceAfter: metav1.Duration{Duration: time.Minute}}
	expectAllowed(t, in.admin.Create(t.Context(), forKubelet))
	expectFinalizers(t, forKubelet, volumesv1alpha1.ReleaseFinalizer)

	in.testFinalizerOfAttached(t)

	expectAllowed(t, in.admin.Delete(t.Context(), intent))
	expectAllowed(t, in.admin.Get(t.Context(), client.ObjectKeyFromObject(intent), intent))
	intent.Finalizers = []string{"example.com/other"}
	expectAllowed(t, in.admin.Update(t.Context(), intent))
	expectFinalizers(t, intent, "example.com/other")

	intent.Finalizers = nil
	expectAllowed(t, in.admin.Update(t.Context(), intent))
	expectGone(t, in, intent)
}

// testFinalizerOfAttached checks an intent that is raised above Attached. Admission does not add the finalizer: the
// manager does, after it has protected the claim. The intent keeps it when its desired state is lowered.
func (in installation) testFinalizerOfAttached(t *testing.T) {
	intent := newIntent("only-attached", "node-a")
	intent.Spec.DesiredState = volumesv1alpha1.DesiredAttached
	expectAllowed(t, in.admin.Create(t.Context(), intent))
	expectFinalizers(t, intent)
	intent.Finalizers = []string{"example.com/other"}
	expectAllowed(t, in.admin.Update(t.Context(), intent))
	expectFinalizers(t, intent, "example.com/other")

	for _, desired := range []volumesv1alpha1.DesiredState{
		volumesv1alpha1.DesiredStaged, volumesv1alpha1.DesiredPublished,
	} {
		raised := newIntent("raised", "node-a")
		raised.Spec.DesiredState = volumesv1alpha1.DesiredAttached
		expectAllowed(t, in.admin.Create(t.Context(), raised))
		expectFinalizers(t, raised)
		raised.Spec.DesiredState = desired
		expectAllowed(t, in.admin.Update(t.Context(), raised))
		expectFinalizers(t, raised)
		raised.Finalizers = []string{volumesv1alpha1.ReleaseFinalizer}
		expectForbidden(t, in.admin.Update(t.Context(), raised), volumesv1alpha1.ReleaseFinalizer, "hawser-manager may add")
		expectAllowed(t, in.as(t, managerAccount).Patch(t.Context(), raised, client.RawPatch(types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":["`+volumesv1alpha1.ReleaseFinalizer+`"]}}`))))
		expectFinalizers(t, raised, volumesv1alpha1.ReleaseFinalizer)

		raised.Spec.DesiredState = volumesv1alpha1.DesiredAttached
		expectAllowed(t, in.admin.Update(t.Context(), raised))
		expectFinalizers(t, raised, volumesv1alpha1.ReleaseFinalizer)
		raised.Finalizers = nil
		expectAllowed(t, in.admin.Update(t.Context(), raised))
		expectFinalizers(t, raised, volumesv1alpha1.ReleaseFinalizer)

		expectAllowed(t, in.admin.Delete(t.Context(), raised))
		expectAllowed(t, in.admin.Get(t.Context(), client.ObjectKeyFromObject(raised), raised))
		raised.Finalizers = nil
		expectAllowed(t, in.admin.Update(t.Context(), raised))
		expectGone(t, in, raised)
	}

	intent.Finalizers = nil
	expectAllowed(t, in.admin.Update(t.Context(), intent))
	expectFinalizers(t, intent)
	intent.Spec.DetachPolicy = &volumesv1alpha1.DetachPolicy{ForceAfter: metav1.Duration{Duration: time.Minute}}
	expectAllowed(t, in.admin.Update(t.Context(), intent))
	expectFinalizers(t, intent)

	unbound := newIntent("gone-at-once", "node-a")
	unbound.Spec.DesiredState = volumesv1alpha1.DesiredAttached
	expectAllowed(t, in.admin.Create(t.Context(), unbound))
	expectAllowed(t, in.admin.Delete(t.Context(), unbound))
	expectGone(t, in, unbound)
}

func expectGone(t *testing.T, in installation, intent *volumesv1alpha1.VolumeAttachmentIntent) {
	t.Helper()
	if err := in.admin.Get(t.Context(), client.ObjectKeyFromObject(intent), intent); !apierrors.IsNotFound(err) {
		t.Errorf("intent %s must be deleted: %v", intent.Name, err)
	}
}

func expectFinalizers(t *testing.T, object client.Object, want ...string) {
	t.Helper()
	if got := object.GetFinalizers(); !slices.Equal(got, want) {
		t.Errorf("finalizers %q, want %q", got, want)
	}
}
