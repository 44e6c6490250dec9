/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package advice

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/csiloop/faults"
	"github.com/hawser-io/hawser/test/system"
)

func (s *story) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *story) create(object client.Object) {
	s.t.Helper()
	s.must(s.sys.Client.Create(s.limited(), object))
}

// remove deletes an object, at once if it is a pod, and does not wait.
func (s *story) remove(object client.Object) {
	s.t.Helper()
	s.must(client.IgnoreNotFound(s.sys.Client.Delete(s.limited(), object, client.GracePeriodSeconds(0))))
}

func (s *story) patch(object client.Object, patch string) {
	s.t.Helper()
	s.must(s.sys.Client.Patch(s.limited(), object, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// await watches an object until done is true of it.
func await[T client.Object](s *story, list client.ObjectList, object T, done func(T) bool) T {
	s.t.Helper()
	found, err := system.Await(s.limited(), s.sys, list, client.ObjectKeyFromObject(object), done)
	s.must(err)
	return found
}

func awaitGone[T client.Object](s *story, list client.ObjectList, object T) {
	s.t.Helper()
	awaitRemoved := func(found T) bool { return any(found) == any(*new(T)) }
	await(s, list, object, awaitRemoved)
}

// claimOf is a claim that is not created yet.
func claimOf(name string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To(class),
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("32Mi")}}}}
	for _, c := range change {
		c(claim)
	}
	return claim
}

func ofClass(name string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To(name) }
}

func ofVolume(name string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.StorageClassName, c.Spec.VolumeName = ptr.To(byHand), name
	}
}

func asBlock(c *corev1.PersistentVolumeClaim) {
	c.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
}

// claim creates a claim.
func (s *story) claim(name string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	s.t.Helper()
	claim := claimOf(name, change...)
	s.create(claim)
	return claim
}

// bound waits until a claim is bound, and returns its volume.
func (s *story) bound(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	s.t.Helper()
	claim = await(s, &corev1.PersistentVolumeClaimList{}, claim, func(c *corev1.PersistentVolumeClaim) bool {
		return c != nil && c.Status.Phase == corev1.ClaimBound
	})
	pv := &corev1.PersistentVolume{}
	s.must(s.sys.Client.Get(s.limited(), client.ObjectKey{Name: claim.Spec.VolumeName}, pv))
	return pv
}

// volume is a claim of the story's name that is bound.
func (s *story) volume(change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolume {
	s.t.Helper()
	return s.bound(s.claim(s.name, change...))
}

// handmade creates a PersistentVolume of another one's storage, and a claim of the story's name for it.
func (s *story) handmade(change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	s.t.Helper()
	donor := s.bound(s.claim(s.name + "-donor"))
	pv := s.pv(donor.Spec.CSI.VolumeHandle)
	change(pv)
	s.create(pv)
	return s.bound(s.claim(s.name, ofVolume(pv.Name), func(c *corev1.PersistentVolumeClaim) {
		c.Spec.AccessModes = pv.Spec.AccessModes
	}))
}

// pv is a PersistentVolume of the story's name that is not created yet.
func (s *story) pv(handle string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("32Mi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, StorageClassName: byHand,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: system.DriverName, VolumeHandle: handle, FSType: "ext4"}}}}
}

type intent = volumesv1alpha1.VolumeAttachmentIntent

func intentOf(name, claim, node string, change ...func(*intent)) *intent {
	i := &intent{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{NodeName: node, Volume: volumesv1alpha1.VolumeSource{
			PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: claim}}}}
	for _, c := range change {
		c(i)
	}
	return i
}

// wants creates an intent of the story's name for the claim of that name, and returns the question about it.
func (s *story) wants(node string, change ...func(*intent)) question {
	s.t.Helper()
	return s.wantsAs(s.name, s.name, node, change...)
}

// wantsAs creates an intent that is then the story's.
func (s *story) wantsAs(name, claim, node string, change ...func(*intent)) question {
	s.t.Helper()
	s.intent = name
	s.create(intentOf(name, claim, node, change...))
	s.t.Cleanup(func() { s.release(name) })
	return why("intent", name)
}

// release deletes an intent and waits until it has gone.
func (s *story) release(name string) {
	s.t.Helper()
	s.remove(intentOf(name, "", ""))
	s.gone(name)
}

// dropped deletes an intent and does not wait.
func (s *story) dropped(name string) { s.remove(intentOf(name, "", "")) }

func (s *story) gone(name string) {
	s.t.Helper()
	s.must(s.sys.AwaitGone(s.limited(), namespace, name))
}

// ready waits until the story's intent is Ready.
func (s *story) ready() { s.t.Helper(); s.path() }

// path waits until the story's intent is Ready, and returns its path.
func (s *story) path() string { s.t.Helper(); return s.pathOf(s.intent) }

func (s *story) pathOf(name string) string {
	s.t.Helper()
	i, err := s.sys.AwaitReady(s.limited(), namespace, name)
	s.must(err)
	return i.Status.Path
}

// isGone waits until the story's intent has gone.
func (s *story) isGone() { s.t.Helper(); s.gone(s.intent) }

// another uses another claim, as an intent's volume and node cannot change.
func (s *story) another(node string, change ...func(*intent)) {
	s.t.Helper()
	s.release(s.intent)
	s.bound(s.claim(s.name + "-another"))
	s.wantsAs(s.name+"-another", s.name+"-another", node, change...)
}

// again replaces the intent by one with other fields.
func (s *story) again(node string, change ...func(*intent)) {
	s.t.Helper()
	s.release(s.intent)
	s.wants(node, change...)
}

// fails puts a fault on a driver's calls for a volume. s.end ends it.
func (s *story) fails(f faults.Fault) {
	s.t.Helper()
	if f.Action == "" {
		f.Action = faults.Error
	}
	id, err := faults.Add(s.sys.BackingDir(), f)
	s.must(err)
	s.end = func() { s.must(faults.Remove(s.sys.BackingDir(), id)) }
	s.t.Cleanup(func() { s.must(faults.Remove(s.sys.BackingDir(), id)) })
}

// stops a program. s.end starts it again.
func (s *story) stops(program string) {
	s.t.Helper()
	s.must(s.sys.StopProcess(s.limited(), program))
	s.end = func() { s.must(s.sys.StartAgain(s.limited(), program)) }
}

func repaired(s *story) { s.end() }

// pod creates a pod with a claim, for the scheduler, or on a node.
func (s *story) pod(name, claim, node string, change ...func(*corev1.Pod)) *corev1.Pod {
	s.t.Helper()
	pod := podOf(s.namespace, name, claim, node, change...)
	s.create(pod)
	s.t.Cleanup(func() { s.remove(pod) })
	return pod
}

// scheduled waits until the scheduler has bound the story's pod.
func scheduled(s *story) {
	s.t.Helper()
	await(s, &corev1.PodList{}, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name}},
		func(p *corev1.Pod) bool { return p != nil && p.Spec.NodeName != "" })
}
