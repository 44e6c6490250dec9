/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package secretaccess

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// A StorageClass may let the author of a claim name its Secret, so an author may name thousands in one namespace.
func TestTheSecretsOfOneAuthorDoNotKeepARoleFromBeingWritten(t *testing.T) {
	const crowd = mostEarly + 100
	named := func(name string) func(*corev1.CSIPersistentVolumeSource) {
		return func(csi *corev1.CSIPersistentVolumeSource) { csi.NodeStageSecretRef = ref("storage", name) }
	}
	var objects []client.Object
	for k := range crowd {
		name := fmt.Sprintf("crowd-%04d", k)
		i := intent(name)
		i.UID = types.UID(name)
		objects = append(append(objects, bound(name, named(strings.Repeat("s", 240)+name))...), i)
	}
	victim := intent("victim", func(i *anIntent) { i.UID = "victim" })
	victim.CreationTimestamp = metav1.Unix(1<<31, 0) // the youngest
	f := newFixture(t, append(append(objects, bound("victim", named("of-the-victim"))...), victim)...)
	names := func() []string {
		t.Helper()
		_, err := f.reconcile()
		f.must(err)
		role := &rbacv1.Role{}
		f.must(f.api.Live.Get(t.Context(), client.ObjectKey{Namespace: "storage", Name: account}, role))
		return role.Rules[0].ResourceNames
	}
	if got := names(); len(got) != mostEarly {
		t.Errorf("the Role names %d Secrets of %d volumes that are not attached, want %d", len(got), crowd, mostEarly)
	}

	const volume = "kubernetes.io/csi/csi.example.com^victim"
	pinned := &volumesv1alpha1.VolumeAttachmentIntent{}
	f.must(f.api.Live.Get(t.Context(), client.ObjectKeyFromObject(victim), pinned))
	pinned.Status.UniqueVolumeName, pinned.Status.ClaimUID = volume, "claim-victim"
	f.must(f.api.Live.Update(t.Context(), pinned))
	state := &volumesv1alpha1.NodeVolumeState{}
	f.must(f.api.Live.Get(t.Context(), client.ObjectKey{Name: "node"}, state))
	state.Spec.Attachments = []volumesv1alpha1.NodeAttachment{{VolumeName: volume,
		State: volumesv1alpha1.AttachmentAttached, NodeStageSecretRef: ref("storage", "of-the-victim")}}
	f.must(f.api.Live.Update(t.Context(), state))
	if got := names(); !slices.Contains(got, "of-the-victim") || len(got) != mostEarly {
		t.Errorf("the Role names %d Secrets, that of the attached volume among them: %t; want %d and true", len(got),
			slices.Contains(got, "of-the-victim"), mostEarly)
	}
}
