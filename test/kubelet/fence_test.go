/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/install"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/csiloop/ledger"
	"github.com/hawser-io/hawser/test/system"
)

// fencePreset is the directory of the preset that these tests use.
var fencePreset = filepath.Join(apiserver.Root(), "config", "fencing", "fence-agents-remediation")

// remediation is the kind of medik8s by which a machine was powered off.
var remediation = schema.GroupVersionKind{
	Group: "fence-agents-remediation.medik8s.io", Version: "v1alpha1", Kind: "FenceAgentsRemediation",
}

// TestThePodsOfAFencedMachineRunElsewhereAndNothingOfTheOldMountIsLeft: a machine loses its power, and the object of a
// program that fences it proves that. With upstream alone a person sets the taint at that moment.
func TestThePodsOfAFencedMachineRunElsewhereAndNothingOfTheOldMountIsLeft(t *testing.T) {
	reportsOften(t)
	fenced, unfenced := func() { outOfService(t, nodeA, true) }, func() { outOfService(t, nodeA, false) }
	none := func() (moved func(since time.Time)) { return func(time.Time) {} }
	move, take := none, none
	if os.Getenv(attachVariable) == hawser {
		trustsFences(t)
		fenced, unfenced = func() { fence(t, nodeA) }, func() { unfence(t, nodeA) }
		move, take = movedByIntent(t), takenOver(t)
	}
	v := newVolume(t, corev1.PersistentVolumeFilesystem)
	first := v.pod(nodeA, v.write("kept"))
	runs(t, first)
	if err := sys.Kill(system.Machine(nodeA)); err != nil {
		t.Fatal(err)
	}
	died := time.Now()
	if err := ledger.NoteReboot(sys.BackingDir(), nodeA); err != nil {
		t.Fatal(err)
	}
	second := v.pod(nodeB, v.read("kept"), v.write("KEPT"))
	v.refused(second)
	moved, taken := move(), take()
	awaitNotReady(t, nodeA)
	if nodes := v.attachedTo(); !slices.Equal(nodes, []string{nodeA}) {
		t.Errorf("volume %s is attached to %v, want %s alone before it is fenced", v.handle, nodes, nodeA)
	}
	t.Cleanup(unfenced)
	fenced()
	since := time.Now()
	if expires := leaseExpires(t, nodeA); expires.After(since) {
		since = expires
	}
	runs(t, second)
	report(t, "no power for %.1f s; volume elsewhere %.1f s after the proof and the end of the agent's Lease",
		since.Sub(died).Seconds(), time.Since(since).Seconds())
	moved(since)
	taken(since)
	gone(t, first)
	report(t, "the pod of the dead node is gone %.1f s after that", time.Since(since).Seconds())

	startMachine(t, nodeA)
	awaitReady(t, nodeA)
	unfenced()
	if _, err := awaitNode(t, nodeA, func(n *corev1.Node) bool { return handshake.OutOfService(n) == nil }); err != nil {
		t.Fatal(err)
	}
	if os.Getenv(attachVariable) == hawser {
		settledOn(t, nodeA)
	}
	remove(t, second)
	runs(t, v.pod(nodeA, v.read("KEPT")))
}

// TestUpstreamsTimerDetachesFromADeadMachine is for the comparison: a person deletes the pod of a dead machine by
// force, and upstream waits six minutes for an unmount.
func TestUpstreamsTimerDetachesFromADeadMachine(t *testing.T) {
	if os.Getenv(attachVariable) != upstream {
		t.Skip("Hawser has no such timer by default: it waits for evidence")
	}
	reportsOften(t)
	v := newVolume(t, corev1.PersistentVolumeFilesystem)
	byForce = append(byForce, v.handle)
	first := v.pod(nodeA, v.write("kept"))
	runs(t, first)
	if err := sys.Kill(system.Machine(nodeA)); err != nil {
		t.Fatal(err)
	}
	if err := ledger.NoteReboot(sys.BackingDir(), nodeA); err != nil {
		t.Fatal(err)
	}
	second := v.pod(nodeB, v.read("kept"))
	v.refused(second)
	awaitNotReady(t, nodeA)
	if err := sys.Client.Delete(limited(t), first, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	since := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if _, err := system.Await(ctx, sys, &corev1.PodList{}, client.ObjectKeyFromObject(second),
		func(p *corev1.Pod) bool { return p != nil && isReady(p) }); err != nil {
		dump(t)
		t.Fatal(err)
	}
	report(t, "volume elsewhere %.0f s after the pod was deleted by force", time.Since(since).Seconds())
	startMachine(t, nodeA)
	awaitReady(t, nodeA)
}

// takenOver publishes a volume that several nodes may use on node A, and stages it on node B. take has the writer of
// node B begin once that of node A cannot write any more, because its volume is detached.
func takenOver(t *testing.T) (take func() (taken func(since time.Time))) {
	t.Helper()
	v := newSharedVolume(t)
	from := v.intent(nodeA)
	to := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v.claim + "-standby"}, Spec: from.Spec}
	to.Spec.NodeName, to.Spec.DesiredState = nodeB, volumesv1alpha1.DesiredStaged
	create(t, to)
	if _, err := sys.AwaitReady(limited(t), namespace, to.Name); err != nil {
		dump(t)
		t.Fatal(err)
	}
	return func() func(time.Time) {
		t.Cleanup(func() { v.release(to) }) // before the claims of the test go, which wait for all attachments
		if err := sys.Client.Delete(limited(t), from); err != nil {
			t.Fatal(err)
		}
		ctx := limited(t)
		return awaited(t, "the volume that was staged elsewhere before is published there", func() error {
			if err := sys.AwaitGone(ctx, namespace, from.Name); err != nil {
				return err
			}
			patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"desiredState":"Published"}}`))
			if err := sys.Client.Patch(ctx, to, patch); err != nil {
				return err
			}
			_, err := sys.AwaitReady(ctx, namespace, to.Name)
			return err
		})
	}
}

// awaited reports how long after a moment something was there that is awaited meanwhile.
func awaited(t *testing.T, what string, await func() error) (there func(since time.Time)) {
	type end struct {
		at  time.Time
		err error
	}
	ends := make(chan end, 1)
	go func() {
		err := await()
		ends <- end{time.Now(), err}
	}()
	return func(since time.Time) {
		e := <-ends
		if e.err != nil {
			t.Errorf("%s: %v", what, e.err)
		}
		report(t, "%s %.2f s after the proof and the end of the agent's Lease", what, e.at.Sub(since).Seconds())
	}
}

// movedByIntent publishes a volume on node A by an intent. move has it published on node B instead.
func movedByIntent(t *testing.T) (move func() (moved func(since time.Time))) {
	t.Helper()
	v := newVolume(t, corev1.PersistentVolumeFilesystem)
	from := v.intent(nodeA)
	return func() func(time.Time) {
		if err := sys.Client.Delete(limited(t), from); err != nil {
			t.Fatal(err)
		}
		to := &volumesv1alpha1.VolumeAttachmentIntent{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v.claim + "-moved"}, Spec: from.Spec}
		to.Spec.NodeName = nodeB
		create(t, to)
		t.Cleanup(func() { v.release(to) })
		ctx := limited(t)
		return awaited(t, "the volume of an intent is published elsewhere", func() error {
			_, err := sys.AwaitReady(ctx, namespace, to.Name)
			return err
		})
	}
}

// trustsFences runs the manager with the preset's source, and has it manage the taint.
func trustsFences(t *testing.T) {
	t.Helper()
	crd := filepath.Join(apiserver.Root(), "config", "testdata", "fencing", "fenceagentsremediations.yaml")
	for _, file := range []string{crd, filepath.Join(fencePreset, "role.yaml")} {
		if _, err := sys.Kubectl(limited(t), "apply", "--server-side", "-f", file); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := sys.Kubectl(limited(t), "wait", "--for=condition=Established", "-f", crd); err != nil {
		t.Fatal(err)
	}
	create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "fence-"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: "hawser-fence-fence-agents-remediation"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: system.ManagerUser}},
	})
	args := sys.ManagerArgs
	restart := func(args []string) {
		if err := sys.StopProcess(limited(t), system.Manager); err != nil {
			t.Fatal(err)
		}
		sys.ManagerArgs = args
		if err := sys.StartManager(limited(t)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { restart(args) })
	restart(append(slices.Clone(args), "--manage-out-of-service-taint", "--fence-source="+presetSource(t)))
}

// presetSource is the source of the preset as the operator passes it to the manager.
func presetSource(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(fencePreset, "volumemanager.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	manager := &volumesv1alpha1.VolumeManager{}
	if err := yaml.UnmarshalStrict(text, manager); err != nil {
		t.Fatal(err)
	}
	source, err := json.Marshal(manager.Spec.Fencing.Sources[0])
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

func remediationOf(node string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(remediation)
	o.SetNamespace(namespace)
	o.SetName(node)
	return o
}

// fence has the node's machine powered off, as the object shows it that medik8s creates for that.
func fence(t *testing.T, node string) {
	t.Helper()
	o := remediationOf(node)
	o.Object["spec"] = map[string]any{"agent": "fence_ipmilan"}
	create(t, o)
	o.Object["status"] = map[string]any{"conditions": []any{map[string]any{
		"type": "FenceAgentActionSucceeded", "status": "True", "reason": "FenceAgentSucceeded", "message": "",
		"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	}}}
	if err := sys.Client.Status().Update(limited(t), o); err != nil {
		t.Fatal(err)
	}
}

// unfence deletes the object, as medik8s does once the Node is healthy.
func unfence(t *testing.T, node string) {
	t.Helper()
	if err := client.IgnoreNotFound(sys.Client.Delete(limited(t), remediationOf(node))); err != nil {
		t.Error(err)
	}
}

func awaitNotReady(t *testing.T, node string) {
	t.Helper()
	if _, err := awaitNode(t, node, func(n *corev1.Node) bool {
		return nodeReady(n) == corev1.ConditionUnknown
	}); err != nil {
		t.Fatal(err)
	}
}

// leaseExpires is when the Lease of a node's agent does; the zero time where there is none.
func leaseExpires(t *testing.T, node string) time.Time {
	t.Helper()
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: install.Namespace(), Name: volumesv1alpha1.AgentLeasePrefix + node}
	err := sys.Client.Get(limited(t), key, lease)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if err != nil {
		return time.Time{}
	}
	return lease.Spec.RenewTime.Add(time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second)
}

// settledOn checks that nothing of what was forced away is left on the node, and that no fence had to be contradicted.
func settledOn(t *testing.T, node string) {
	t.Helper()
	state := &volumesv1alpha1.NodeVolumeState{}
	if err := sys.Client.Get(limited(t), client.ObjectKey{Name: node}, state); err != nil {
		t.Fatal(err)
	}
	n := &corev1.Node{}
	if err := sys.Client.Get(limited(t), client.ObjectKey{Name: node}, n); err != nil {
		t.Fatal(err)
	}
	if !handshake.Settled(state, n) {
		t.Errorf("state of node %s once its taint is gone: %+v; want nothing left", node, state.Status.Volumes)
	}
}

// report a measurement, also where the test passes.
func report(t *testing.T, format string, args ...any) {
	t.Helper()
	fmt.Printf("measured, %s: %s\n", os.Getenv(attachVariable), fmt.Sprintf(format, args...))
}
