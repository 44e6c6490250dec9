/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/system"
)

// The tests of this file run with the real attach/detach controller of kube-controller-manager.

func readWriteMany(pvc *corev1.PersistentVolumeClaim) {
	pvc.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	pvc.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
}

// pod creates a pod that is bound to the node and uses the claim. No kubelet runs it; upstream attaches its volume.
func (v *volume) pod(node string) *corev1.Pod {
	v.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: v.name + "-"},
		Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}, AutomountServiceAccountToken: ptr.To(false),
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.name},
			}}},
		},
	}
	if err := sys.Client.Create(limited(v.t), pod); err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { v.endPod(pod) })
	return pod
}

// endPod removes the pod, as a node does after its containers have ended.
func (v *volume) endPod(pod *corev1.Pod) {
	v.t.Helper()
	err := sys.Client.Delete(limited(v.t), pod, client.GracePeriodSeconds(0))
	if client.IgnoreNotFound(err) != nil {
		v.t.Error(err)
	}
}

// listed waits until the Node lists the volume as attached, or does not.
func (v *volume) listed(node string, want bool) {
	v.t.Helper()
	_, err := system.Await(limited(v.t), sys, &corev1.NodeList{}, client.ObjectKey{Name: node}, func(n *corev1.Node) bool {
		return n != nil && want == slices.ContainsFunc(n.Status.VolumesAttached, func(a corev1.AttachedVolume) bool {
			return string(a.Name) == uniqueName(v.handle)
		})
	})
	if err != nil {
		v.t.Fatal(err)
	}
}

// attachmentUID waits until the volume's attachment to the node is attached.
func (v *volume) attachmentUID(name string) types.UID {
	v.t.Helper()
	va, err := system.Await(limited(v.t), sys, &storagev1.VolumeAttachmentList{}, client.ObjectKey{Name: name},
		func(a *storagev1.VolumeAttachment) bool {
			return a != nil && a.Status.Attached && a.DeletionTimestamp == nil
		})
	if err != nil {
		v.t.Fatal(err)
	}
	return va.UID
}

// restartUpstream stops kube-controller-manager, starts it again and waits until its attach/detach controller has
// processed the existing objects: a volume that is created after the restart is attached.
func restartUpstream(t *testing.T) {
	t.Helper()
	ctx := limited(t)
	if err := sys.StopProcess(ctx, system.ControllerManager); err != nil {
		t.Fatal(err)
	}
	if err := sys.StartAgain(ctx, system.ControllerManager); err != nil {
		t.Fatal(err)
	}
	canary := newVolume(t)
	pod := canary.pod(nodeB)
	canary.listed(nodeB, true)
	canary.endPod(pod)
	canary.listed(nodeB, false)
}

// TestAPodAndAnIntentShareAVolumeInEveryOrder runs all orders at once, so that they share the restarts of upstream.
func TestAPodAndAnIntentShareAVolumeInEveryOrder(t *testing.T) {
	var all []*sharing
	for _, order := range []struct {
		name                       string
		podComesFirst, podGoesLast bool
	}{
		{"the pod comes first and goes first", true, false},
		{"the pod comes first and goes last", true, true},
		{"the intent comes first and goes first", false, true},
		{"the intent comes first and goes last", false, false},
	} {
		for name, kind := range map[string]func(*corev1.PersistentVolumeClaim){
			"exclusive": func(*corev1.PersistentVolumeClaim) {}, "shared": readWriteMany,
		} {
			v := newVolume(t, kind)
			t.Logf("%s, %s: claim %s, volume %s", order.name, name, v.name, v.handle)
			all = append(all, &sharing{volume: v, podComesFirst: order.podComesFirst, podGoesLast: order.podGoesLast})
		}
	}
	for _, s := range all {
		s.come()
	}
	restartUpstream(t)
	for _, s := range all {
		s.stays("both used it")
		s.ready(s.intent)
		s.oneGoes()
	}
	restartUpstream(t)
	for _, s := range all {
		s.stays("one used it")
		s.otherGoes()
	}
	judge(t)
}

// sharing is a volume that a pod and an intent use on one node.
type sharing struct {
	*volume
	podComesFirst, podGoesLast bool

	pod    *corev1.Pod
	intent string
	// name and uid of the attachment.
	name string
	uid  types.UID
}

func (s *sharing) come() {
	s.t.Helper()
	come := []func(){
		func() { s.pod = s.volume.pod(nodeA); s.listed(nodeA, true) },
		func() { s.intent = s.volume.intent(nodeA); s.ready(s.intent) },
	}
	if !s.podComesFirst {
		slices.Reverse(come)
	}
	come[0]()
	s.name = s.attachment()
	s.uid = s.attachmentUID(s.name)
	come[1]()
}

func (s *sharing) stays(because string) {
	s.t.Helper()
	if s.attachmentUID(s.name) != s.uid {
		s.t.Errorf("attachment %s of volume %s has another UID than %s, want the same, as %s", s.name, s.handle, s.uid,
			because)
	}
}

func (s *sharing) oneGoes() {
	s.t.Helper()
	if s.podGoesLast {
		s.release(s.intent)
	} else {
		s.endPod(s.pod)
	}
}

func (s *sharing) otherGoes() {
	s.t.Helper()
	if s.podGoesLast {
		s.endPod(s.pod)
	} else {
		s.ready(s.intent)
		s.release(s.intent)
	}
	s.isDetached(s.name)
}

// isDetached waits until nothing is left of the attachment, including in the node's lists.
func (v *volume) isDetached(name string) {
	v.t.Helper()
	if err := sys.AwaitAttachmentGone(limited(v.t), name); err != nil {
		v.t.Fatal(err)
	}
	v.listed(nodeA, false)
	_, err := sys.AwaitNode(limited(v.t), nodeA, func(nvs *volumesv1alpha1.NodeVolumeState) bool {
		return !slices.ContainsFunc(nvs.Spec.Attachments,
			func(a volumesv1alpha1.NodeAttachment) bool { return a.VolumeName == uniqueName(v.handle) })
	})
	if err != nil {
		v.t.Fatal(err)
	}
}

func TestAnIntentThatReturnsWhileAPodUsesTheVolumeDoesNotWaitForThePod(t *testing.T) {
	t.Parallel()
	v := newVolume(t)
	pod := v.pod(nodeA)
	v.listed(nodeA, true)
	first := v.intent(nodeA)
	v.ready(first)
	uid := v.attachmentUID(v.attachment())
	v.release(first)
	v.ready(v.intent(nodeA))
	if v.attachmentUID(v.attachment()) != uid {
		t.Errorf("attachment of volume %s has another UID than %s, want the same while pod %s uses it", v.handle, uid,
			pod.Name)
	}
	v.endPod(pod)
	judge(t)
}

func TestAPodGetsAnIntentsExclusiveVolumeOnAnotherNodeAfterTheIntent(t *testing.T) {
	t.Parallel()
	v := newVolume(t)
	intent := v.intent(nodeA)
	v.ready(intent)
	pod := v.pod(nodeB)
	if err := sys.AwaitEvent(limited(t), namespace, pod.Name, "FailedAttachVolume"); err != nil {
		t.Fatal(err)
	}
	v.ready(intent)
	v.release(intent)
	v.listed(nodeB, true)
	judge(t)
}

func TestAnIntentThatWaitsForAPodsExclusiveVolumeNamesThePodAndGetsItAfterwards(t *testing.T) {
	t.Parallel()
	v := newVolume(t)
	pod := v.pod(nodeA)
	v.listed(nodeA, true)
	intent := v.intent(nodeB)
	names := func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return system.HasReason(volumesv1alpha1.ConditionAttached, volumesv1alpha1.ReasonVolumeInUse)(i) && shows(i, pod.Name)
	}
	v.await(intent, names)
	v.explained(intent, names, volumesv1alpha1.ReasonVolumeInUse)
	v.endPod(pod)
	v.ready(intent)
	judge(t)
}
