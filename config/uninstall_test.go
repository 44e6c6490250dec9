/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package config_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/config"
	"github.com/hawser-io/hawser/test/apiserver"
)

const (
	ours     = volumesv1alpha1.ClaimFinalizer
	upstream = "kubernetes.io/pvc-protection"
	another  = "example.com/other"
)

// TestThePoliciesOfAnOperatorGoWithoutIt reads the command of docs/remove.md that deletes them: config/admission, which
// the uninstall deletes, has none of them.
func TestThePoliciesOfAnOperatorGoWithoutIt(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(apiserver.Root(), "docs", "remove.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, command, _ := strings.Cut(string(page),
		"\n    kubectl delete validatingadmissionpolicybinding,validatingadmissionpolicy ")
	command, _, _ = strings.Cut(command, "\n")
	for _, directory := range []string{"draining", "foreign-namespace"} {
		policies, err := config.Load(config.Manifests, directory)
		if err != nil || len(policies) == 0 {
			t.Fatalf("policies of config/%s: %v, error %v; want some", directory, policies, err)
		}
		for _, policy := range policies {
			if !slices.Contains(strings.Fields(command), policy.GetName()) {
				t.Errorf("the command of docs/remove.md deletes %q, want %s %s of config/%s too", command, policy.GetKind(),
					policy.GetName(), directory)
			}
		}
	}
}

// testUnprotectClaims runs the script that docs/security.md documents for uninstalling.
func (in installation) testUnprotectClaims(t *testing.T) {
	mixed, first := in.claim(t, "mixed", upstream, ours, another), in.claim(t, "first", ours, upstream)
	racing, never := in.claim(t, "racing", upstream, ours), in.claim(t, "never", upstream, another)
	deleted := in.claim(t, "deleted", ours)
	if err := in.admin.Delete(t.Context(), deleted); err != nil {
		t.Fatal(err)
	}
	expect := func(claim *corev1.PersistentVolumeClaim, want ...string) {
		t.Helper()
		if err := in.admin.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
			t.Fatal(err)
		}
		expectFinalizers(t, claim, want...)
	}

	if err := in.admin.Create(t.Context(), newIntent("still-there", "node-a")); err != nil {
		t.Fatal(err)
	}
	if said, err := in.unprotect(t); err == nil || !strings.Contains(said, "there are still intents") {
		t.Errorf("with intents it ends with %v and prints: %s", err, said)
	}
	expect(mixed, upstream, ours, another)

	in.dropIntents(t)
	said, err := in.unprotect(t)
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	t.Log(said)
	expect(mixed, upstream, another)
	expect(first, upstream)
	expect(racing, another, upstream)
	expect(never, upstream, another)
	if err := in.admin.Get(t.Context(), client.ObjectKeyFromObject(deleted), deleted); !apierrors.IsNotFound(err) {
		t.Errorf("a claim that was deleted before is still there: %v", err)
	}
	if said, err := in.unprotect(t); err != nil || !strings.Contains(said, "no claim carries "+ours) {
		t.Errorf("the second time it ends with %v and prints: %s", err, said)
	}
}

// claim creates a claim with these finalizers. The API server adds its own at creation.
func (in installation) claim(t *testing.T, name string, finalizers ...string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	if err := in.admin.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	claim.Finalizers = finalizers
	if err := in.admin.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	return claim
}

// dropIntents removes the intents' finalizers, as a manager does once every volume is released.
func (in installation) dropIntents(t *testing.T) {
	t.Helper()
	var intents volumesv1alpha1.VolumeAttachmentIntentList
	if err := in.admin.List(t.Context(), &intents); err != nil {
		t.Fatal(err)
	}
	for i := range intents.Items {
		intent := &intents.Items[i]
		if err := in.admin.Delete(t.Context(), intent); err != nil {
			t.Fatal(err)
		}
		released := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		if err := client.IgnoreNotFound(in.admin.Patch(t.Context(), intent, released)); err != nil {
			t.Fatal(err)
		}
	}
}

// unprotect runs the script. Directly before its first patch, another client changes the finalizers of the claim
// "racing".
func (in installation) unprotect(t *testing.T) (string, error) {
	t.Helper()
	kubectl, err := filepath.Abs(filepath.Join(os.Getenv(apiserver.AssetsVariable), "kubectl"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	wrapper := fmt.Sprintf(`#!/bin/sh
if [ "$1" = patch ] && mkdir %[2]q 2>/dev/null; then
	%[1]q patch pvc racing --namespace=default --type=merge --patch='{"metadata":{"finalizers":["%[3]s","%[4]s","%[5]s"]}}'
fi
exec %[1]q "$@"
`, kubectl, filepath.Join(dir, "raced"), another, upstream, ours)
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(wrapper), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(apiserver.Root(), "hack", "unprotect-claims.sh"))
	cmd.Env = append(os.Environ(), "KUBECONFIG="+in.kubeconfig, "PATH="+dir+":"+os.Getenv("PATH"))
	said, err := cmd.CombinedOutput()
	return string(said), err
}
