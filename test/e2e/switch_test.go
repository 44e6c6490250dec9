/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/system"
)

// setMode follows docs/attach-modes.md: upstream's controller never runs together with a Hawser in Replace.
func setMode(t *testing.T, replace bool) {
	t.Helper()
	upstream := func() error { return sys.SetAttachDetach(limited(t), !replace) }
	hawser := func() error { return sys.SetManagerArgs(limited(t)) }
	steps := []func() error{hawser, upstream}
	if replace {
		hawser = func() error { return sys.SetManagerArgs(limited(t), "--attach-mode=Replace") }
		steps = []func() error{upstream, hawser}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
}

// kubeletUses writes the volumes in use to the Node, as the kubelet would.
func kubeletUses(t *testing.T, node string, volumes ...*volume) {
	t.Helper()
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	names := []corev1.UniqueVolumeName{}
	for _, v := range volumes {
		names = append(names, corev1.UniqueVolumeName(uniqueName(v.handle)))
	}
	patch := client.MergeFrom(object.DeepCopy())
	object.Status.VolumesInUse = names
	if len(names) == 0 {
		patch = client.RawPatch("application/merge-patch+json", []byte(`{"status":{"volumesInUse":null}}`))
	}
	if err := sys.Client.Status().Patch(limited(t), object, patch); err != nil {
		t.Fatal(err)
	}
}

// isHeld waits until the attachment has the hold.
func (v *volume) isHeld(name string) {
	v.t.Helper()
	_, err := system.Await(limited(v.t), sys, &storagev1.VolumeAttachmentList{}, client.ObjectKey{Name: name},
		func(a *storagev1.VolumeAttachment) bool {
			return a != nil && a.Annotations[volumesv1alpha1.HoldAnnotation] != ""
		})
	if err != nil {
		v.t.Fatal(err)
	}
}

// podIntents waits until the pod has the wanted number of intents, all Attached.
func podIntents(t *testing.T, pod *corev1.Pod, want int) {
	t.Helper()
	ctx := limited(t)
	selector := client.MatchingLabels{volumesv1alpha1.PodUIDLabel: string(pod.UID)}
	watcher,
		err := sys.Client.Watch(ctx, &volumesv1alpha1.VolumeAttachmentIntentList{}, client.InNamespace(namespace), selector)
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	for {
		list := &volumesv1alpha1.VolumeAttachmentIntentList{}
		if err := sys.Client.List(ctx, list, client.InNamespace(namespace), selector); err != nil {
			t.Fatalf("listing the intents of pod %s, of which %d are wanted: %v", pod.Name, want, err)
		}
		attached := 0
		for i := range list.Items {
			if meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, volumesv1alpha1.ConditionAttached) {
				attached++
			}
		}
		if attached == want && len(list.Items) == want {
			return
		}
		select {
		case <-watcher.ResultChan():
		case <-ctx.Done():
			t.Fatalf("intents of pod %s: %d, %d of them attached; want %d", pod.Name, len(list.Items), attached, want)
		}
	}
}

func TestASwitchToReplaceAndBackDetachesNothing(t *testing.T) {
	byIntent, byPod := newVolume(t), newVolume(t)
	intent := byIntent.intent(nodeA)
	path := byIntent.ready(intent)
	pod := byPod.pod(nodeA)
	byPod.listed(nodeA, true)
	kubeletUses(t, nodeA, byPod)
	names := map[*volume]string{byIntent: byIntent.attachment(), byPod: byPod.attachment()}
	uids := map[*volume]string{}
	for v, name := range names {
		uids[v] = string(v.attachmentUID(name))
	}
	same := func(when string) {
		t.Helper()
		for v, name := range names {
			if uid := string(v.attachmentUID(name)); uid != uids[v] {
				t.Errorf("attachment of volume %s %s: UID %s, want %s", v.name, when, uid, uids[v])
			}
			v.isHeld(name)
		}
		byPod.listed(nodeA, true)
		byIntent.ready(intent)
		write(t, path)
	}

	setMode(t, true)
	t.Cleanup(func() {
		if !sys.AttachDetach {
			setMode(t, false)
		}
	})
	podIntents(t, pod, 1)
	same("in Replace")
	inReplace := newVolume(t)
	second := inReplace.pod(nodeB)
	inReplace.listed(nodeB, true)

	setMode(t, false)
	podIntents(t, pod, 0)
	podIntents(t, second, 0)
	inReplace.listed(nodeB, true)
	same("back in Coexist")
	inCoexist := newVolume(t)
	third := inCoexist.pod(nodeB)
	inCoexist.listed(nodeB, true)

	kubeletUses(t, nodeA)
	for v, p := range map[*volume]*corev1.Pod{byPod: pod, inReplace: second, inCoexist: third} {
		name := v.attachment()
		v.endPod(p)
		if err := sys.AwaitAttachmentGone(limited(t), name); err != nil {
			t.Error(err)
		}
	}
	byPod.listed(nodeA, false)
	byIntent.ready(intent)
	byIntent.release(intent)
	byIntent.isDetached(names[byIntent])
	judge(t)
}
