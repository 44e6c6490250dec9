/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/secrets"
	"github.com/hawser-io/hawser/internal/controller/policy"
	"github.com/hawser-io/hawser/test/apiserver"
)

// The manager and the agents have their own accounts here, with the roles and admission policies of an installation.
func TestAnAgentReadsTheSecretsOfItsNodesVolumesOnly(t *testing.T) {
	w := newWorld(t)
	kubectl := w.kubectl(t)
	kubectl("", "apply", "-k", "rbac")
	kubectl("", "apply", "-k", "admission")
	w.manage(t, managerOptions{policies: policy.New(clock.RealClock{})})
	w.node(t, "here")
	w.node(t, "there")
	w.secretVolume(t, "data", "of-data")
	w.secretVolume(t, "more", "of-more")
	here, there := w.reader(t, "here"), w.reader(t, "there")

	// The namespace is not opened to the manager, so the agent gets no access. The volume is attached all the same.
	data := w.intent(t, "data", "here", "data")
	w.attached(t, data)
	w.refusedEvent(t, "here")
	w.refused(t, here, "of-data", "hawser-secret-granter")
	kubectl("", "create", "rolebinding", "opened", "--namespace=secrets", "--clusterrole=hawser-secret-granter",
		"--serviceaccount="+volumesv1alpha1.InstallNamespace+":hawser-manager")
	w.readable(t, here, "of-data")
	w.refused(t, here, "of-more", "cannot get resource")
	w.refused(t, there, "of-data", "hawser-agent-node-there does not exist (yet)")

	// The access is there before the volume is attached.
	w.attacher.set("pv-more", "", true)
	more := w.intent(t, "more", "there", "more")
	w.readable(t, there, "of-more")
	w.reason(t, more, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonAttaching)
	w.refused(t, there, "of-data", "cannot get resource")
	w.refused(t, here, "of-more", "cannot get resource")

	w.delete(t, data)
	gone(t, w, data)
	w.unreadable(t, here, "of-data")
	w.readable(t, there, "of-more")
}

// TestAVolumeWithoutSecretsNeedsNoAccess counts what the manager writes for accounts and roles.
func TestAVolumeWithoutSecretsNeedsNoAccess(t *testing.T) {
	w := newWorld(t)
	requests, _ := w.manage(t, managerOptions{})
	w.node(t, "here")
	w.volume(t, "data", volumeOptions{})
	data := w.intent(t, "data", "here", "data")
	w.attached(t, data)
	w.delete(t, data)
	gone(t, w, data)
	for _, what := range []string{"serviceaccounts", "roles", "rolebindings"} {
		for _, method := range []string{"POST ", "PUT ", "PATCH ", "DELETE ", "GET "} {
			if n := requests.count(method + what); n != 0 {
				t.Errorf("a volume without Secrets: %d requests %s%s, want none", n, method, what)
			}
		}
	}
}

// secretVolume creates a Secret, in a namespace for Secrets, and a claim whose volume needs it for staging.
func (w *world) secretVolume(t *testing.T, name, secret string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "secrets"}}
	if err := w.client.Create(t.Context(), namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatalf("creating namespace %s: %v", namespace.Name, err)
	}
	w.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: secret}})
	claim := newClaim(name, volumeOptions{})
	w.create(t, claim)
	pv := newVolume(claim, volumeOptions{})
	pv.Spec.CSI.NodeStageSecretRef = &corev1.SecretReference{Namespace: namespace.Name, Name: secret}
	w.create(t, pv)
	w.bind(t, claim)
}

// reader reads Secrets as the agent of a node does, beginning with the agent's account.
func (w *world) reader(t *testing.T, node string) *secrets.Reader {
	t.Helper()
	config := apiserver.ServiceAccount(w.config, volumesv1alpha1.InstallNamespace, "hawser-agent", node)
	live, err := client.New(config, client.Options{Scheme: apiserver.Scheme(), Mapper: w.client.RESTMapper()})
	if err != nil {
		t.Fatalf("creating the client of the agent of %s: %v", node, err)
	}
	reader, err := secrets.NewReader(
		secrets.Options{Config: config, Live: live, Node: node, Namespace: volumesv1alpha1.InstallNamespace})
	if err != nil {
		t.Fatalf("creating the reader of node %s: %v", node, err)
	}
	return reader
}

func read(ctx context.Context, reader *secrets.Reader, name string) error {
	return reader.Get(ctx, client.ObjectKey{Namespace: "secrets", Name: name}, &corev1.Secret{})
}

// readable waits until the manager has allowed it and the API server's authorizer knows, which no event shows.
func (w *world) readable(t *testing.T, reader *secrets.Reader, name string) {
	t.Helper()
	w.awaitRead(t, reader, name, "is read", func(err error) bool { return err == nil })
}

func (w *world) unreadable(t *testing.T, reader *secrets.Reader, name string) {
	t.Helper()
	w.awaitRead(t, reader, name, "is refused", apierrors.IsForbidden)
}

func (w *world) awaitRead(t *testing.T, reader *secrets.Reader, name, what string, ok func(error) bool) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			last = read(ctx, reader, name)
			return ok(last), nil
		})
	if err != nil {
		t.Fatalf("it did not come about that Secret %s %s; last answer: %v", name, what, last)
	}
}

func (w *world) refused(t *testing.T, reader *secrets.Reader, name, message string) {
	t.Helper()
	if err := read(t.Context(), reader, name); err == nil || !strings.Contains(err.Error(), message) {
		t.Errorf("reading Secret %s: %v, want it refused with %q", name, err, message)
	}
}

// refusedEvent waits for the event with which the manager reports that it may not allow the access.
func (w *world) refusedEvent(t *testing.T, node string) {
	t.Helper()
	err := w.awaitAll(t.Context(), &corev1.EventList{}, func(events []client.Object) bool {
		for _, o := range events {
			event := o.(*corev1.Event)
			if event.Reason == "SecretAccessRefused" && event.InvolvedObject.Name == node {
				return true
			}
		}
		return false
	})
	if err != nil {
		t.Errorf("waiting for an event SecretAccessRefused on the state of node %s: %v", node, err)
	}
	role := &rbacv1.Role{}
	key := client.ObjectKey{Namespace: "secrets", Name: "hawser-agent-node-" + node}
	if err := w.client.Get(t.Context(), key, role); !apierrors.IsNotFound(err) {
		t.Errorf("Role %s in a namespace that is closed to the manager: %v, want that it does not exist", key, err)
	}
}
