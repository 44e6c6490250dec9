/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package observe

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hawser-io/hawser/test/apiserver"
)

const account = "system:serviceaccount:hawser-observer:hawser-observer"

// patience with an examination. Nothing that passes waits for its end.
const patience = time.Minute

// TestWhatDoctorFindsBecomesMetricsAsItComesAndGoes in a cluster without Hawser, with the rights of config/observer.
func TestWhatDoctorFindsBecomesMetricsAsItComesAndGoes(t *testing.T) {
	config, c := apiserver.StartBare(t, nil)
	apiserver.Kubectl(t, apiserver.Kubeconfig(t, config), "", "apply", "-k",
		filepath.Join(apiserver.Root(), "config", "observer"))
	o, err := New(apiserver.ServiceAccount(config, "hawser-observer", "hawser-observer"))
	if err != nil {
		t.Fatal(err)
	}
	examined := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	o.between = 0
	o.examined = func() {
		select {
		case examined <- struct{}{}:
		case <-ctx.Done():
		}
	}
	if err := o.Ready(nil); err == nil || testutil.CollectAndCount(o) > 0 {
		t.Errorf("before an examination: ready, or with %d series; want neither", testutil.CollectAndCount(o))
	}
	ended := make(chan error)
	go func() { ended <- o.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	// until waits for an examination after which the findings are as wanted.
	until := func(want ...string) {
		t.Helper()
		text := ""
		if len(want) > 0 {
			text = "# HELP hawser_findings " + help + "\n# TYPE hawser_findings gauge\n" + strings.Join(want, "\n") + "\n"
		}
		late := time.After(patience)
		for {
			select {
			case <-examined:
			case <-late:
				t.Fatalf("metrics: %v", testutil.CollectAndCompare(o, strings.NewReader(text), "hawser_findings"))
			}
			if testutil.CollectAndCompare(o, strings.NewReader(text), "hawser_findings") == nil {
				return
			}
		}
	}
	until()
	if err := o.Ready(nil); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"one", "two"} {
		if err := c.Create(t.Context(), persistent(name)); err != nil {
			t.Fatal(err)
		}
	}
	until(`hawser_findings{code="HWS931",reason="VolumeHandleShared",severity="Notice"} 2`)
	if err := c.Delete(t.Context(), persistent("two")); err != nil {
		t.Fatal(err)
	}
	until()
	if n := testutil.CollectAndCount(o, "hawser_observer_unread"); n > 0 {
		t.Errorf("%d kinds could not be read, want the rights to all", n)
	}
}

const help = "Objects that have a finding of kubectl hawser doctor, by its code. No series of what is not found."

// persistent volumes of one handle.
func persistent(name string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.example.com", VolumeHandle: "shared"}}}}
}

func TestAnObserverWritesNothingAndReadsNoSecrets(t *testing.T) {
	config, c := apiserver.StartBare(t, nil)
	apiserver.Kubectl(t, apiserver.Kubeconfig(t, config), "", "apply", "-k",
		filepath.Join(apiserver.Root(), "config", "observer"))
	may := func(verb, group, resource string) bool {
		t.Helper()
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: account,
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:hawser-observer",
				"system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource}}}
		if err := c.Create(t.Context(), review); err != nil {
			t.Fatal(err)
		}
		return review.Status.Allowed
	}
	if !may("list", "", "pods") {
		t.Error("the observer may not list pods, want that it may")
	}
	for group, resources := range map[string]string{
		"": "pods persistentvolumeclaims persistentvolumes nodes events configmaps secrets " +
			"namespaces",
		"storage.k8s.io":            "storageclasses csidrivers csinodes volumeattachments",
		"volumes.hawser.io":         "volumeattachmentintents nodevolumestates volumemanagers",
		"coordination.k8s.io":       "leases",
		"apps":                      "deployments daemonsets",
		"rbac.authorization.k8s.io": "clusterroles clusterrolebindings",
	} {
		for _, of := range strings.Fields(resources) {
			for _, verb := range []string{"create", "update", "patch", "delete", "deletecollection"} {
				if may(verb, group, of) {
					t.Errorf("the observer may %s %s, want that it only reads", verb, of)
				}
			}
		}
	}
	for _, verb := range []string{"get", "list", "watch"} {
		if may(verb, "", "secrets") {
			t.Errorf("the observer may %s secrets", verb)
		}
	}
}
