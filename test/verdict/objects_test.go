/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package verdict

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/test/csiloop/faults"
	"github.com/hawser-io/hawser/test/system"
)

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	t.Cleanup(cancel)
	return ctx
}

func create(t *testing.T, object client.Object) {
	t.Helper()
	if err := sys.Client.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, object client.Object) {
	t.Helper()
	if err := client.IgnoreNotFound(sys.Client.Delete(t.Context(), object)); err != nil {
		t.Fatal(err)
	}
}

// claim creates a claim. One test's claims and pods have a name of the test's own.
func claim(t *testing.T, name, class string) *corev1.PersistentVolumeClaim {
	t.Helper()
	return sized(t, name, class, "32Mi")
}

func sized(t *testing.T, name, class, size string) *corev1.PersistentVolumeClaim {
	t.Helper()
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class,
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}}}}
	create(t, c)
	return c
}

// bound creates a claim, and returns the handle of its volume.
func bound(t *testing.T, name string) (c *corev1.PersistentVolumeClaim, handle string) {
	t.Helper()
	return becomesBound(t, claim(t, name, class))
}

// becomesBound waits until a claim is bound, and returns the handle of its volume.
func becomesBound(t *testing.T, c *corev1.PersistentVolumeClaim) (bound *corev1.PersistentVolumeClaim, handle string) {
	t.Helper()
	c, err := sys.AwaitClaim(limited(t), namespace, c.Name, func(c *corev1.PersistentVolumeClaim) bool {
		return c != nil && c.Status.Phase == corev1.ClaimBound
	})
	if err != nil {
		t.Fatal(err)
	}
	pv := &corev1.PersistentVolume{}
	if err := sys.Client.Get(t.Context(), client.ObjectKey{Name: c.Spec.VolumeName}, pv); err != nil {
		t.Fatal(err)
	}
	return c, pv.Spec.CSI.VolumeHandle
}

// pod creates a pod that the scheduler puts on a node.
func pod(t *testing.T, name, claim, node string) *corev1.Pod {
	t.Helper()
	p := podOf(name, claim)
	p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	create(t, p)
	return p
}

// onNode creates a pod that is on its node without the scheduler, which might wait for what is broken.
func onNode(t *testing.T, name, node string) {
	t.Helper()
	p := podOf(name, name)
	p.Spec.NodeName = node
	create(t, p)
}

func podOf(name, claim string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{
		HostNetwork:        true,
		EnableServiceLinks: ptr.To(false), AutomountServiceAccountToken: ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To[int64](2),
		Containers: []corev1.Container{{Name: "waits", Image: system.Image, ImagePullPolicy: corev1.PullNever,
			Args: []string{"pause"}, VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}}}
}

// runs waits until a pod has its volume.
func runs(t *testing.T, name string) {
	t.Helper()
	_, err := system.Await(limited(t), sys, &corev1.PodList{}, client.ObjectKey{Namespace: namespace, Name: name},
		func(p *corev1.Pod) bool {
			return p != nil && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].Ready
		})
	if err != nil {
		t.Fatal(err)
	}
}

// fault makes a call of the driver fail for one volume. It returns how to end that.
func fault(t *testing.T, f faults.Fault) (repair func()) {
	t.Helper()
	f.Action = faults.Error
	id, err := faults.Add(sys.BackingDir(), f)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := faults.Remove(sys.BackingDir(), id); err != nil {
			t.Error(err)
		}
	}
}

// stopped stops a program. It returns how to start it again.
func stopped(t *testing.T, program string) (again func()) {
	t.Helper()
	if err := sys.StopProcess(t.Context(), program); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := sys.StartAgain(t.Context(), program); err != nil {
			t.Error(err)
		}
	}
}
