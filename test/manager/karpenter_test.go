/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/cli"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/test/apiserver"
)

// karpenterVariable is the folder of Karpenter's module, which has its kinds.
const karpenterVariable = "HAWSER_TEST_KARPENTER"

// TestKarpenterRemovesNodesWithVolumes runs the real Karpenter with its provider of nodes that are none.
func TestKarpenterRemovesNodesWithVolumes(t *testing.T) {
	if os.Getenv(karpenterVariable) == "" {
		t.Skip("not asked for: make test-karpenter runs this test")
	}
	w := newWorldAlone(t)
	w.manage(t, managerOptions{})
	w.startKarpenter(t)
	t.Run("without a person", func(t *testing.T) { karpenterNeedsNoPerson(t, w) })
	t.Run("an intent that stays", func(t *testing.T) { karpenterWaitsForAnIntentThatStays(t, w) })
	t.Run("a time limit", func(t *testing.T) { karpenterWaitsNoLongerThanItsLimit(t, w) })
	t.Run("a dead agent", func(t *testing.T) { karpenterWaitsForADeadAgent(t, w) })
}

// startKarpenter runs it until the test ends.
func (w *world) startKarpenter(t *testing.T) {
	t.Helper()
	module := os.Getenv(karpenterVariable)
	kubectl := w.kubectl(t)
	kubectl("", "apply", "-f", filepath.Join(module, "kwok/apis/crds"), "-f", filepath.Join(module, "kwok/charts/crds"))
	kubectl("", "wait", "--for=condition=Established", "--timeout=60s", "crd", "nodeclaims.karpenter.sh",
		"nodepools.karpenter.sh", "kwoknodeclasses.karpenter.kwok.sh")
	var output bytes.Buffer
	karpenter := exec.Command(filepath.Join(os.Getenv(apiserver.AssetsVariable), "karpenter"))
	karpenter.Env = append(os.Environ(), "KUBECONFIG="+apiserver.Kubeconfig(t, w.config), "SYSTEM_NAMESPACE=default",
		"DISABLE_LEADER_ELECTION=true", "METRICS_PORT=0", "HEALTH_PROBE_PORT=0")
	karpenter.Stdout, karpenter.Stderr = &output, &output
	karpenter.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := karpenter.Start(); err != nil {
		t.Fatalf("starting Karpenter: %v", err)
	}
	t.Cleanup(func() {
		_ = karpenter.Process.Kill()
		_ = karpenter.Wait()
		if t.Failed() {
			t.Logf("Karpenter: %s", output.String())
		}
	})
	kubectl(`
apiVersion: karpenter.kwok.sh/v1alpha1
kind: KWOKNodeClass
metadata: {name: default}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  disruption: {consolidateAfter: Never}
  template:
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements:
      - {key: kubernetes.io/os, operator: In, values: [linux]}
`, "apply", "-f", "-")
}

// karpenterNode has Karpenter make a Node, with the driver and an agent on it. Its deletion takes no longer than limit;
// without one, than an hour.
func (w *world) karpenterNode(t *testing.T, pool string, limit ...string) (string, *agent) {
	t.Helper()
	w.kubectl(t)(fmt.Sprintf(`
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata:
  name: %[1]s
  labels: {karpenter.sh/nodepool: default, pool: %[1]s}
spec:
  terminationGracePeriod: %[2]s
  nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
  requirements:
  - {key: node.kubernetes.io/instance-type, operator: In, values: [c-1x-amd64-linux]}
  - {key: kubernetes.io/os, operator: In, values: [linux]}
`, pool, cmp.Or(strings.Join(limit, ""), "1h")), "create", "-f", "-")
	var name string
	w.awaitList(t, &corev1.NodeList{}, "Karpenter has made the Node of NodeClaim "+pool, func(o client.Object) bool {
		name = o.GetName()
		return o.GetLabels()["pool"] == pool && len(o.GetFinalizers()) > 0
	})
	node := nodeNamed(name)
	w.changeStatus(t, node, func() {
		node.Status.Conditions = []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
		}}
	})
	w.create(t, csiNode(name))
	return name, w.agent(t, name)
}

// why is what the plugin prints of the node.
func (w *world) why(t *testing.T, node string) string {
	t.Helper()
	var out bytes.Buffer
	cli.Run(t.Context(), []string{"why", "node", node, "--kubeconfig", apiserver.Kubeconfig(t, w.config)},
		genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out})
	return out.String()
}

func karpenterNeedsNoPerson(t *testing.T, w *world) {
	w.volume(t, "k-set", shared())
	w.volume(t, "k-goes", shared())
	w.volume(t, "k-pod", volumeOptions{})
	node, _ := w.karpenterNode(t, "k-all")
	set, goes := newSet("k-set", "k-all", "k-set"), newIntent("k-goes", node, "k-goes")
	goes.Spec.ReadOnly, goes.Spec.OnNodeDeletion = true, volumesv1alpha1.OnNodeDeletionRelease
	pod := inlinePod("k-pod", node, "k-pod")
	w.create(t, set, goes, pod)
	w.awaitSet(t, set, 1)
	until(t, w, goes, "the intent is Ready", isReady)
	w.attached(t, w.inlineIntent(t, pod, "k-pod"))
	w.run(t, pod, true)

	begun := time.Now()
	w.delete(t, nodeNamed(node))
	until(t, w, pod, "Karpenter evicts the pod", func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	w.run(t, pod, false)
	w.kill(t, pod)
	gone(t, w, nodeNamed(node))
	t.Logf("a set, an intent with onNodeDeletion: Release and a pod with a claim: the Node is gone after %s",
		time.Since(begun).Round(100*time.Millisecond))
}

func karpenterWaitsForAnIntentThatStays(t *testing.T, w *world) {
	w.volume(t, "k-stays", volumeOptions{})
	node, _ := w.karpenterNode(t, "k-one")
	stays := w.intent(t, "k-stays", node, "k-stays")
	until(t, w, stays, "the intent is Ready", isReady)
	w.delete(t, nodeNamed(node))
	w.karpenterWaits(t, node)
	if out := w.why(t, node); !strings.Contains(out, "default/k-stays") {
		t.Errorf("why node %s, which waits for intent default/k-stays: %s; want the intent named", node, out)
	}
	begun := time.Now()
	w.delete(t, stays)
	gone(t, w, nodeNamed(node))
	t.Logf("the intent deleted: the Node is gone after %s", time.Since(begun).Round(100*time.Millisecond))
}

// karpenterWaits until Karpenter reports that it waits for VolumeAttachments.
func (w *world) karpenterWaits(t *testing.T, node string) {
	t.Helper()
	w.awaitList(t, &corev1.EventList{}, "Karpenter waits for the volumes of node "+node, func(o client.Object) bool {
		e := o.(*corev1.Event)
		return e.InvolvedObject.Name == node && strings.Contains(e.Reason, "AwaitingVolumeDetachment")
	})
}

// awaitList waits until one of the objects is as wanted.
func (w *world) awaitList(t *testing.T, list client.ObjectList, what string, ok func(client.Object) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := w.awaitAll(ctx, list, func(all []client.Object) bool { return slices.ContainsFunc(all, ok) })
	if err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}

// karpenterWaitsNoLongerThanItsLimit: the agent is dead, and no one does anything.
func karpenterWaitsNoLongerThanItsLimit(t *testing.T, w *world) {
	w.volume(t, "k-limit", volumeOptions{})
	node, agent := w.karpenterNode(t, "k-limit", "5s")
	intent := newIntent("k-limit", node, "k-limit")
	intent.Spec.OnNodeDeletion = volumesv1alpha1.OnNodeDeletionRelease
	w.create(t, intent)
	until(t, w, intent, "the intent is Ready", isReady)
	w.powersOff(t, agent)
	begun := time.Now()
	w.delete(t, nodeNamed(node))
	gone(t, w, nodeNamed(node))
	t.Logf("a dead agent, terminationGracePeriod 5s: the Node is gone after %s",
		time.Since(begun).Round(100*time.Millisecond))
	until(t, w, attachmentOf("k-limit", node), "the volume is attached until there is evidence", exists)
}

func karpenterWaitsForADeadAgent(t *testing.T, w *world) {
	w.volume(t, "k-dead", volumeOptions{})
	node, agent := w.karpenterNode(t, "k-dead")
	intent := newIntent("k-dead", node, "k-dead")
	intent.Spec.OnNodeDeletion = volumesv1alpha1.OnNodeDeletionRelease
	w.create(t, intent)
	until(t, w, intent, "the intent is Ready", isReady)
	w.powersOff(t, agent)
	until(t, w, stateOf(node), "the agent, which is silent, counts as silent", unreachable)
	w.delete(t, nodeNamed(node))
	w.karpenterWaits(t, node)
	if out := w.why(t, node); !strings.Contains(out, corev1.TaintNodeOutOfService) {
		t.Errorf("why node %s, whose agent is dead: %s; want the taint that declares the machine off", node, out)
	}
	w.putOutOfService(t, node)
	name := volume.AttachmentName(driverName, "vol-k-dead", node)
	forcedAway := func(va *storagev1.VolumeAttachment) bool {
		return exists(va) && slices.Equal(va.Finalizers, []string{volumesv1alpha1.ForcedAwayFinalizer})
	}
	va := until(t, w, attachmentOf("k-dead", node), "the volume is forced away", forcedAway)
	if out := w.why(t, node); !strings.Contains(out, "declare-released") {
		t.Errorf("why node %s, which waits for VolumeAttachment %s: %s; want declare-released", node, name, out)
	}
	begun := time.Now()
	w.declare(t, node, va.UID)
	gone(t, w, nodeNamed(node))
	t.Logf("the attachment declared released: the Node is gone after %s", time.Since(begun).Round(100*time.Millisecond))
}
