/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/test/csiloop/ledger"
)

func TestPodsWriteAndReadAFilesystemAndABlockVolumeOnBothNodes(t *testing.T) {
	reportsOften(t)
	for _, mode := range []corev1.PersistentVolumeMode{corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock} {
		t.Run(string(mode), func(t *testing.T) {
			v := newVolume(t, mode)
			begin := time.Now()
			first := v.pod(nodeA, v.write("from a"), v.read("from a"))
			runs(t, first)
			mounted := v.last("NodePublishVolume")

			deleted := time.Now()
			remove(t, first)
			runs(t, v.pod(nodeB, v.read("from a"), v.write("from b"), v.read("from b")))
			t.Logf("pod created -> mounted %.1f s; pod deleted -> unstaged %.1f s, detached %.1f s",
				mounted.Sub(begin).Seconds(), v.last("NodeUnstageVolume").Sub(deleted).Seconds(),
				v.last("ControllerUnpublishVolume").Sub(deleted).Seconds())
		})
	}
}

// last is when the driver last ended a call for the volume.
func (v *volume) last(method string) time.Time {
	v.t.Helper()
	entries, err := ledger.Read(sys.BackingDir())
	if err != nil {
		v.t.Fatal(err)
	}
	var at time.Time
	for _, e := range entries {
		if e.Volume == v.handle && e.Method == method && e.Phase == ledger.Effect && e.Code == "OK" {
			at = e.Time
		}
	}
	if at.IsZero() {
		v.t.Errorf("ledger has no effect of %s for volume %s, want one", method, v.handle)
	}
	return at
}

// TestAStatefulSetMovesItsExclusiveVolumeToAnotherNode moves the pod as an update of the set does. The new pod
// is created when the old one is gone from the API. The old pod's volume is detached later.
func TestAStatefulSetMovesItsExclusiveVolumeToAnotherNode(t *testing.T) {
	reportsOften(t)
	labels := map[string]string{"app": "moving"}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "moving"},
		Spec: appsv1.StatefulSetSpec{
			ServiceName: "moving",
			Selector:    &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       podSpec(nodeA, false, []string{"pause"}, []string{"append", "/data/file", "$(NODE)."}),
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: claimSpec(corev1.PersistentVolumeFilesystem),
			}},
		},
	}
	create(t, set)
	v := &volume{t: t, claim: "data-moving-0", meanwhile: []string{"pause"}}
	t.Cleanup(func() {
		remove(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v.claim}})
		settle(t)
	})
	t.Cleanup(func() { v.scaleDown(set) })

	v.settledOn(nodeA)
	v.move(set, nodeB)
	v.move(set, nodeA)
	v.scaleDown(set)
	runs(t, v.pod(nodeB, v.read("node-a.node-b.node-a.")))
}

// move changes the node in the set's template and waits until the pod runs there.
func (v *volume) move(set *appsv1.StatefulSet, node string) {
	v.t.Helper()
	before := set.DeepCopy()
	set.Spec.Template.Spec.NodeName = node
	if err := sys.Client.Patch(limited(v.t), set, client.MergeFrom(before)); err != nil {
		v.t.Fatal(err)
	}
	v.settledOn(node)
}

func (v *volume) settledOn(node string) {
	v.t.Helper()
	_,
		err := awaitPod(v.t, "moving-0",
		func(p *corev1.Pod) bool { return p != nil && p.Spec.NodeName == node && isReady(p) })
	if err != nil {
		dump(v.t)
		v.t.Fatal(err)
	}
}

// scaleDown deletes the set with its pods.
func (v *volume) scaleDown(set *appsv1.StatefulSet) {
	v.t.Helper()
	if err := client.IgnoreNotFound(sys.Client.Delete(limited(v.t), set)); err != nil {
		v.t.Error(err)
	}
	if _, err := awaitPod(v.t, "moving-0", func(p *corev1.Pod) bool { return p == nil }); err != nil {
		v.t.Error(err)
	}
}
