/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package config_test installs the manifests of this directory on a real API server. It then checks what the server
// allows.
package config_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
)

const (
	managerAccount = "hawser-manager"
	agentAccount   = "hawser-agent"
	accountPrefix  = "system:serviceaccount:" + volumesv1alpha1.InstallNamespace + ":"

	inForceTimeout = 30 * time.Second
)

// installation is one API server with everything of config/default in it, shared by all tests of this package.
type installation struct {
	config     *rest.Config
	admin      client.WithWatch
	kubeconfig string
}

// TestAnInstallationOnARealAPIServer starts one API server, installs Hawser and checks what the server allows.
func TestAnInstallationOnARealAPIServer(t *testing.T) {
	config, admin := apiserver.Start(t)
	in := installation{config: config, admin: admin, kubeconfig: apiserver.Kubeconfig(t, config)}
	if !t.Run("the API server accepts config/default", in.testDefault) {
		return
	}
	in.awaitAdmission(t)
	t.Run("applying config/default again changes nothing", in.testDefaultAgain)
	t.Run("the API server accepts config/samples", in.testSamples)
	t.Run("roles allow no more than each program needs", in.testRoles)
	t.Run("only users with the verb may declare an attachment released", in.testDeclared)
	t.Run("the manager may forget gone nodes only with the component", in.testForgetGoneNodes)
	t.Run("metrics are read only with the right to", in.testMetrics)
	t.Run("the API server accepts config/networkpolicy", in.testNetworkPolicy)
	// The tests below grant accounts more rights, so that only a policy can refuse them.
	t.Run("only the manager deletes an attachment with a hold", in.testHold)
	t.Run("only the manager sets, changes and removes a hold", in.testHoldAnnotation)
	t.Run("an intent gets the release finalizer if it needs it", in.testReleaseFinalizer)
	t.Run("only the manager writes the locks of exclusive volumes", in.testExclusiveLocks)
	t.Run("Hawser may not declare an attachment released", in.testDeclaredByHawser)
	t.Run("an agent reports only on its own node state", in.testAgentNodeState)
	t.Run("an agent reports only on intents of its own node", in.testAgentIntents)
	t.Run("an agent renews only its own Lease", in.testAgentLeases)
	// Last, because they remove parts of the installation.
	t.Run("uninstalling removes the finalizers of claims", in.testUnprotectClaims)
	t.Run("without its binding an agent reads only the Secrets of the documented roles", in.testNarrowedSecrets)
}

func (in installation) testDefault(t *testing.T) {
	in.kubectl(t, "apply", "-k", "default")
}

// testDefaultAgain fails if kubectl diff finds a change.
func (in installation) testDefaultAgain(t *testing.T) {
	in.kubectl(t, "diff", "-k", "default")
}

// testSamples applies the samples of the demo and the README. No program here carries out an intent.
func (in installation) testSamples(t *testing.T) {
	in.kubectl(t, "apply", "-k", "samples")
	in.kubectl(t, "apply", "-k", filepath.Join("samples", "move"))
	var intents volumesv1alpha1.VolumeAttachmentIntentList
	if err := in.admin.List(t.Context(), &intents, client.InNamespace("hawser-demo")); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, intent := range intents.Items {
		got[intent.Name] = intent.Spec.Volume.PersistentVolumeClaim.ClaimName + " on " + intent.Spec.NodeName
	}
	want := map[string]string{"data-on-node-a": "data on node-a", "raw-on-node-a": "raw on node-a",
		"data-on-node-b": "data on node-b"}
	for name, what := range want {
		if got[name] != what {
			t.Errorf("intent %s is %q, want %q", name, got[name], what)
		}
	}
}

// kubectl runs in this directory as an administrator and returns its output.
func (in installation) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return in.kubectlStdin(t, "", args...)
}

func (in installation) kubectlStdin(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	return apiserver.Kubectl(t, in.kubeconfig, stdin, args...)
}

// as returns a client of a service account of hawser-system, with a token that names these nodes.
func (in installation) as(t *testing.T, account string, nodes ...string) client.Client {
	t.Helper()
	config := apiserver.ServiceAccount(in.config, account, nodes...)
	c, err := client.New(config, client.Options{Scheme: apiserver.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// awaitAdmission waits until every policy refuses a probe. The API server enforces new policies after a delay.
// The probes are dry runs.
func (in installation) awaitAdmission(t *testing.T) {
	t.Helper()
	nowhere := in.as(t, agentAccount)
	state := newNodeState("probe")
	intent := newIntent("probe", "node-a")
	for _, object := range []client.Object{state, intent} {
		eventually(t, "kinds are served after their definitions were applied", func(ctx context.Context) bool {
			return in.admin.Create(ctx, object) == nil
		})
	}
	probes := map[string]func(context.Context) bool{
		"hawser-hold": func(ctx context.Context) bool {
			return apierrors.IsForbidden(in.admin.Create(ctx, newAttachment("probe", "since"), client.DryRunAll))
		},
		"hawser-declared": func(ctx context.Context) bool {
			declared := newNodeState("probe-declared")
			declared.Annotations = map[string]string{volumesv1alpha1.DeclaredReleasedPrefix + "probe": "probe"}
			return apierrors.IsForbidden(in.as(t, managerAccount).Create(ctx, declared, client.DryRunAll))
		},
		"hawser-exclusive-locks": func(ctx context.Context) bool {
			return apierrors.IsForbidden(in.admin.Create(ctx, newConfigMap(volumesv1alpha1.ExclusiveLocksPrefix+"probe"),
				client.DryRunAll))
		},
		"hawser-release-finalizer": func(ctx context.Context) bool {
			probe := newIntent("probe-finalizer", "node-a")
			return in.admin.Create(ctx, probe, client.DryRunAll) == nil && len(probe.Finalizers) == 1
		},
		"hawser-agent-node-state": func(ctx context.Context) bool {
			return apierrors.IsForbidden(nowhere.Status().Update(ctx, state.DeepCopy(), client.DryRunAll))
		},
		"hawser-agent-intents": func(ctx context.Context) bool {
			return apierrors.IsForbidden(nowhere.Status().Update(ctx, intent.DeepCopy(), client.DryRunAll))
		},
		"hawser-agent-leases": func(ctx context.Context) bool {
			return apierrors.IsForbidden(nowhere.Create(ctx, newLease("hawser-agent-probe"), client.DryRunAll))
		},
	}
	if !apiserver.MutatingPolicies(t) {
		delete(probes, "hawser-release-finalizer")
	}
	for name, inForce := range probes {
		eventually(t, "policy "+name+" acts", inForce)
	}
}

// eventually waits until the API server's own caches are current.
func eventually(t *testing.T, what string, holds func(context.Context) bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, inForceTimeout, true,
		func(ctx context.Context) (bool, error) { return holds(ctx), nil })
	if err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}

// expectForbidden fails unless the request was refused with a message that contains every part.
func expectForbidden(t *testing.T, err error, parts ...string) {
	t.Helper()
	if !apierrors.IsForbidden(err) {
		t.Fatalf("want it forbidden, got: %v", err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the message does not contain %q: %v", part, err)
		}
	}
}

func expectAllowed(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("want it allowed, got: %v", err)
	}
}

func newLease(name string) *coordinationv1.Lease {
	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name = volumesv1alpha1.InstallNamespace, name
	return lease
}

func newNodeState(name string) *volumesv1alpha1.NodeVolumeState {
	state := &volumesv1alpha1.NodeVolumeState{}
	state.Name = name
	return state
}

func newIntent(name, node string) *volumesv1alpha1.VolumeAttachmentIntent {
	intent := &volumesv1alpha1.VolumeAttachmentIntent{}
	intent.Namespace, intent.Name = "default", name
	intent.Spec.NodeName = node
	intent.Spec.Volume.PersistentVolumeClaim = &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "data"}
	return intent
}
