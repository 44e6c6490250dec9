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
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
)

const (
	managerAccount  = "hawser-manager"
	agentAccount    = "hawser-agent"
	operatorAccount = "hawser-operator"

	inForceTimeout = 30 * time.Second
)

// installation is one API server with everything of config/standalone in it, shared by all tests of this package.
type installation struct {
	config     *rest.Config
	admin      client.WithWatch
	kubeconfig string
	// namespace that Hawser is installed in, and what an overlay put before every name.
	namespace, prefix string
}

// name that an object of config/standalone has in this installation.
func (in installation) name(base string) string { return in.prefix + base }

// user name of a service account of this installation.
func (in installation) user(account string) string {
	return "system:serviceaccount:" + in.namespace + ":" + in.name(account)
}

// TestAnInstallationOnARealAPIServer installs Hawser on an API server and checks what the server allows.
func TestAnInstallationOnARealAPIServer(t *testing.T) {
	testInstallation(t, volumesv1alpha1.InstallNamespace, "")
}

// TestAnInstallationUnderAnotherNamespaceAndName does the same with an overlay that sets only namespace and namePrefix.
func TestAnInstallationUnderAnotherNamespaceAndName(t *testing.T) {
	testInstallation(t, "storage-system", "acme-")
}

func testInstallation(t *testing.T, namespace, prefix string) {
	config, admin := apiserver.Start(t)
	in := installation{config: config, admin: admin, kubeconfig: apiserver.Kubeconfig(t, config),
		namespace: namespace, prefix: prefix}
	if !t.Run("the API server accepts config/standalone", in.testDefault) {
		return
	}
	in.awaitAdmission(t)
	t.Run("applying config/standalone again changes nothing", in.testDefaultAgain)
	t.Run("everything refers to this installation", in.testReferences)
	t.Run("the directories of the uninstall have the installation's objects", in.testDirectories)
	t.Run("the API server accepts config/samples", in.testSamples)
	t.Run("the API server accepts config/volumemanager", in.testVolumeManagers)
	t.Run("roles allow no more than each program needs", in.testRoles)
	t.Run("the manager creates neither workloads nor policies", in.testManagerCreates)
	t.Run("the manager changes only volumesAttached, labels of sets and its taint of a Node", in.testManagerNodes)
	t.Run("the manager changes only a claim's finalizer, node and size on it", in.testManagerClaims)
	t.Run("the manager changes no intent's spec", in.testManagerIntents)
	t.Run("the manager changes nothing that an agent reported", in.testManagerNodeStates)
	t.Run("the manager writes no ConfigMaps but the locks", in.testManagerConfigMaps)
	t.Run("a pod with an inline volume is gated at its creation", in.testPodsAreGated)
	t.Run("the manager changes only gate, affinity and condition of a gated pod", in.testManagerPods)
	t.Run("the manager writes accounts and roles of nodes where an administrator lets it", in.testNodeAccounts)
	t.Run("an agent gets tokens only of its own node's account", in.testAgentTokens)
	t.Run("the manager writes no other accounts and roles", in.testManagerSecrets)
	t.Run("a node's account reads only the Secrets of its node's volumes", in.testSecretsOfNodes)
	t.Run("only users with the verb may declare an attachment released", in.testDeclared)
	t.Run("the manager may forget gone nodes only with the component", in.testForgetGoneNodes)
	t.Run("a tenant's intents ask only for what the namespace allows", in.testTenant)
	t.Run("a set of intents asks only for what the namespace allows", in.testSets)
	t.Run("users of a namespace get the roles of its intents", in.testAggregation)
	t.Run("metrics are read only with the right to", in.testMetrics)
	t.Run("the API server accepts config/networkpolicy", in.testNetworkPolicy)
	// The tests below grant accounts more rights, so that only a policy can refuse them.
	t.Run("only the manager deletes an attachment with a hold", in.testHold)
	t.Run("only the manager sets, changes and removes a hold", in.testHoldAnnotation)
	t.Run("a claim that intents use is not deleted where its label or its namespace's asks for that", in.testClaimDeletion)
	t.Run("neither a name nor every right makes an account the manager", in.testImpostors)
	t.Run("accounts are recognized by what their names contain", in.testNames)
	t.Run("an intent gets the release finalizer if it needs it", in.testReleaseFinalizer)
	t.Run("only the manager writes the locks of exclusive volumes", in.testExclusiveLocks)
	t.Run("Hawser may not declare an attachment released", in.testDeclaredByHawser)
	t.Run("an agent reports only on its own node state", in.testAgentNodeState)
	t.Run("an agent reports only on intents of its own node", in.testAgentIntents)
	t.Run("an agent renews only its own Lease", in.testAgentLeases)
	t.Run("the token of an agent's pod names its node", in.testAgentToken)
	// Last, because they remove parts of the installation.
	t.Run("uninstalling removes the finalizers of claims", in.testUnprotectClaims)
}

func (in installation) testDefault(t *testing.T) {
	in.kubectl(t, "apply", "-k", in.overlay(t, "standalone"))
}

// overlay returns a directory with a base and components, as this installation has them.
func (in installation) overlay(t *testing.T, base string, components ...string) string {
	t.Helper()
	overlay := apiserver.Kustomization{Resources: []string{base}, Components: components, NamePrefix: in.prefix}
	if in.prefix != "" {
		overlay.Namespace = in.namespace
	}
	return overlay.Write(t)
}

// testDefaultAgain fails if kubectl diff finds a change.
func (in installation) testDefaultAgain(t *testing.T) {
	in.kubectl(t, "diff", "-k", in.overlay(t, "standalone"))
}

// testReferences checks what kustomize does not know by itself, and that no text contains the default namespace.
func (in installation) testReferences(t *testing.T) {
	rendered := in.kubectl(t, "kustomize", in.overlay(t, "standalone"))
	if in.namespace != volumesv1alpha1.InstallNamespace && strings.Contains(rendered, volumesv1alpha1.InstallNamespace) {
		t.Errorf("the manifests contain %s", volumesv1alpha1.InstallNamespace)
	}
	monitored := in.kubectl(t, "kustomize", in.overlay(t, "standalone", "monitoring"))
	if in.prefix != "" && strings.Contains(monitored, "name: "+scraperAccount) {
		t.Errorf("the component monitoring names an account %s, which is not here", scraperAccount)
	}
	programs := []string{in.name(managerAccount), in.name(agentAccount)}
	for name, want := range map[string][]string{"hawser": programs, "hawser-leases": append(programs, operatorAccount)} {
		schema := &flowcontrolv1.FlowSchema{}
		expectAllowed(t, in.admin.Get(t.Context(), client.ObjectKey{Name: in.name(name)}, schema))
		level := &flowcontrolv1.PriorityLevelConfiguration{}
		level.Name = schema.Spec.PriorityLevelConfiguration.Name
		expectAllowed(t, in.admin.Get(t.Context(), client.ObjectKeyFromObject(level), level))
		var users []string
		for _, subject := range schema.Spec.Rules[0].Subjects {
			account := &corev1.ServiceAccount{}
			key := client.ObjectKey{Namespace: subject.ServiceAccount.Namespace, Name: subject.ServiceAccount.Name}
			if key != (client.ObjectKey{Namespace: in.namespace, Name: operatorAccount}) { // it is not part of standalone
				expectAllowed(t, in.admin.Get(t.Context(), key, account))
			}
			users = append(users, key.Name)
		}
		if !slices.Equal(users, want) {
			t.Errorf("FlowSchema %s is for %v, want %v", schema.Name, users, want)
		}
	}
}

// testSamples applies the samples of the demo and the README. No program here carries out an intent.
func (in installation) testSamples(t *testing.T) {
	in.kubectl(t, "apply", "-k", "samples")
	in.kubectl(t, "apply", "-k", filepath.Join("samples", "move"))
	in.kubectl(t, "apply", "-k", filepath.Join("samples", "pods"))
	in.kubectl(t, "apply", "-k", filepath.Join("samples", "gitops"))
	in.testQuota(t)
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

// asNamed is as for an account that no overlay has renamed.
func (in installation) asNamed(t *testing.T, account string, nodes ...string) client.Client {
	t.Helper()
	in.prefix = ""
	return in.as(t, account, nodes...)
}

// as returns a client of a service account of this installation, with a token that names these nodes.
func (in installation) as(t *testing.T, account string, nodes ...string) client.Client {
	t.Helper()
	config := apiserver.ServiceAccount(in.config, in.namespace, in.name(account), nodes...)
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
	attached := newIntent("probe-attached", "node-a")
	attached.Spec.DesiredState = volumesv1alpha1.DesiredAttached
	for _, object := range []client.Object{state, intent, attached} {
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
			return apierrors.IsForbidden(in.admin.Create(ctx, in.newConfigMap(volumesv1alpha1.ExclusiveLocksPrefix+"probe"),
				client.DryRunAll))
		},
		"hawser-release-finalizer": func(ctx context.Context) bool {
			probe := newIntent("probe-finalizer", "node-a")
			return in.admin.Create(ctx, probe, client.DryRunAll) == nil && len(probe.Finalizers) == 1
		},
		"hawser-intent-finalizers": func(ctx context.Context) bool {
			probe := attached.DeepCopy()
			probe.Finalizers = []string{volumesv1alpha1.ReleaseFinalizer}
			return apierrors.IsForbidden(in.admin.Update(ctx, probe, client.DryRunAll))
		},
		"hawser-pod-placement": func(ctx context.Context) bool {
			probe := inlinePod("probe", volumesv1alpha1.AttributeClaim)
			return in.admin.Create(ctx, probe, client.DryRunAll) == nil && len(probe.Spec.SchedulingGates) == 1
		},
		"hawser-agent-node-state": func(ctx context.Context) bool {
			return apierrors.IsForbidden(nowhere.Status().Update(ctx, state.DeepCopy(), client.DryRunAll))
		},
		"hawser-agent-intents": func(ctx context.Context) bool {
			return apierrors.IsForbidden(nowhere.Status().Update(ctx, intent.DeepCopy(), client.DryRunAll))
		},
		"hawser-intent-authors": func(ctx context.Context) bool {
			return apierrors.IsForbidden(in.admin.Create(ctx, forced(newIntent("probe-force", "node-a")), client.DryRunAll))
		},
		"hawser-agent-leases": func(ctx context.Context) bool {
			return apierrors.IsForbidden(nowhere.Create(ctx, in.newLease("hawser-agent-elsewhere"), client.DryRunAll))
		},
	}
	if !apiserver.MutatingPolicies(t) {
		delete(probes, "hawser-release-finalizer")
		delete(probes, "hawser-pod-placement")
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

func (in installation) newLease(name string) *coordinationv1.Lease {
	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name = in.namespace, name
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
