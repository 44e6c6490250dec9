/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/cached"
	"github.com/hawser-io/hawser/internal/controller/volume"
)

type podScenario struct {
	name     string
	scenario func(*testing.T, *world)
}

// TestPodIntents runs every scenario of pods on one control plane.
func TestPodIntents(t *testing.T) {
	w := newWorld(t)
	t.Run("a manager runs", func(t *testing.T) {
		w.manage(t, withPods(true))
		for _, s := range []podScenario{
			{"a pod that fails or succeeds releases its volumes", aPodThatTerminatesReleasesItsVolumes},
			{"a pod that waits or whose containers are unknown keeps its volumes until it is deleted",
				aPodThatDoesNotRunKeepsItsVolumes},
			{"a pod deleted with force releases its volumes", aPodDeletedWithForceReleasesItsVolumes},
			{"a pod of the same name is another pod", aPodOfTheSameNameIsAnotherPod},
			{"a pod that is not bound to a node waits", aPodThatIsNotBoundWaits},
			{"a static pod gets its volumes", aStaticPodGetsItsVolumes},
			{"a node becomes managed and unmanaged", aNodeBecomesManagedAndUnmanaged},
			{"pods keep their intents when their Node is deleted", podsKeepTheirIntentsWhenTheirNodeIsDeleted},
			{"volumes that need no attach get no intent", volumesThatNeedNoAttachGetNoIntent},
			{"a claim that a pod names twice is attached once", aClaimThatAPodNamesTwiceIsAttachedOnce},
			{"a claim is attached once it is bound", aClaimIsAttachedOnceItIsBound},
			{"a claim that waits for its first consumer is left to the scheduler",
				aClaimThatWaitsForItsFirstConsumerIsLeftToTheScheduler},
			{"a missing claim is reported, and attached once it exists", aMissingClaimIsReported},
			{"a claim deleted before its pod is created is refused", aClaimDeletedBeforeItsPodIsRefused},
			{"a claim deleted while its pod uses it is attached", aClaimDeletedWhileItsPodUsesItIsAttached},
			{"a volume of another claim is refused", aVolumeOfAnotherClaimIsRefused},
			{"an intent does not switch to another volume of its claim", anIntentDoesNotSwitchToAnotherVolumeOfItsClaim},
			{"an ephemeral claim has to be the pod's own", anEphemeralClaimHasToBeThePodsOwn},
			{"a handle may have any character and any length", aHandleMayHaveAnyCharacterAndAnyLength},
			{"of two volumes with one handle the second is refused", ofTwoVolumesWithOneHandleTheSecondIsRefused},
			{"an intent of a pod that a user deletes is created again", anIntentOfAPodThatAUserDeletesIsCreatedAgain},
			{"a name conflict is reported", aNameConflictIsReported},
		} {
			t.Run(s.name, func(t *testing.T) { s.scenario(t, w) })
		}
	})
	for _, s := range []podScenario{
		{"a pod gets its volumes attached and releases them when it no longer runs", aPodGetsItsVolumesAndReleasesThem},
		{"changes while no manager ran are handled", changesWhileNoManagerRanAreHandled},
		{"a restarted manager writes nothing where nothing changed", aRestartedManagerWritesNothing},
		{"the intents of pods are deleted when they are switched off", intentsOfPodsAreDeletedWhenSwitchedOff},
		{"many pods cost one create and one delete for each volume", manyPodsCostOneCreateAndOneDeleteEach},
	} {
		t.Run(s.name, func(t *testing.T) { s.scenario(t, w) })
	}
}

// withPods is a manager that makes intents for pods or, switched off, takes them back.
func withPods(enabled bool) managerOptions {
	return managerOptions{podIntents: enabled, forceDetachAfter: 6 * time.Minute}
}

// managedNode is a node whose kubelet leaves attaching to a controller.
func (w *world) managedNode(t *testing.T, name string) *agent {
	t.Helper()
	a := w.node(t, name)
	w.manageNode(t, name, "true")
	return a
}

func (w *world) manageNode(t *testing.T, name, value string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	w.change(t, node, func() {
		delete(node.Annotations, cached.ManagedNodeAnnotation)
		if value != "" {
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, cached.ManagedNodeAnnotation, value)
		}
	})
}

// newPod is a pod that is bound to the node and names the claims, one volume each, named v0, v1 and so on.
func newPod(name, node string, claims ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}, AutomountServiceAccountToken: ptr.To(false),
		},
	}
	for i, claim := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{
			Name: "v" + string(rune('0'+i)),
			VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			},
		})
	}
	return p
}

func (w *world) pod(t *testing.T, name, node string, claims ...string) *corev1.Pod {
	t.Helper()
	p := newPod(name, node, claims...)
	w.create(t, p)
	return p
}

// run says that the pod's container runs, or that it has ended.
func (w *world) run(t *testing.T, p *corev1.Pod, runs bool) {
	t.Helper()
	state := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	if runs {
		state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	}
	w.changeStatus(t, p, func() {
		p.Status.Phase = corev1.PodRunning
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: state}}
	})
}

// kill removes the pod at once, as a user does that is sure that it does not run.
func (w *world) kill(t *testing.T, p *corev1.Pod) {
	t.Helper()
	if err := w.client.Delete(t.Context(), p, client.GracePeriodSeconds(0)); err != nil {
		t.Fatalf("killing pod %s: %v", p.Name, err)
	}
}

// podIntents waits until the pod has exactly so many intents that are not on their way out, and returns them by name
// of claim.
func (w *world) podIntents(t *testing.T, p *corev1.Pod, claims ...string) []*volumesv1alpha1.VolumeAttachmentIntent {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	slices.Sort(claims)
	var names []string
	for {
		list := &volumesv1alpha1.VolumeAttachmentIntentList{}
		watcher, err := w.client.Watch(ctx, list, client.InNamespace(p.Namespace))
		if err != nil {
			t.Fatalf("watching intents: %v", err)
		}
		for open := true; open; _, open = <-watcher.ResultChan() {
			if err := w.client.List(ctx, list, client.InNamespace(p.Namespace),
				client.MatchingLabels{volumesv1alpha1.PodUIDLabel: string(p.UID)}); err != nil {
				break
			}
			var intents []*volumesv1alpha1.VolumeAttachmentIntent
			names = nil
			for i := range list.Items {
				if in := &list.Items[i]; in.DeletionTimestamp.IsZero() {
					intents, names = append(intents, in), append(names, claimOf(in))
				}
			}
			slices.Sort(names)
			if slices.Equal(names, claims) {
				watcher.Stop()
				return intents
			}
		}
		watcher.Stop()
		if ctx.Err() != nil {
			t.Fatalf("claims that pod %s has intents for: %q, want %q", p.Name, names, claims)
		}
	}
}

// podEvent waits until an event of this reason is recorded for the pod whose note holds all the words.
func (w *world) podEvent(t *testing.T, p *corev1.Pod, reason string, words ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	watcher, err := w.client.Watch(ctx, &eventsv1.EventList{}, client.InNamespace(p.Namespace))
	if err != nil {
		t.Fatalf("watching events: %v", err)
	}
	defer watcher.Stop()
	var notes []string
	for e := range watcher.ResultChan() {
		event, ok := e.Object.(*eventsv1.Event)
		if !ok || event.Regarding.UID != p.UID || event.Regarding.Kind != "Pod" || event.Reason != reason {
			continue
		}
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(event.Note, word) }) {
			return
		}
		notes = append(notes, event.Note)
	}
	t.Fatalf("events %s of pod %s: %q, want one with %q", reason, p.Name, notes, words)
}

// noPodIntents fails if the pod has an intent at a time when a pod that came after it has its own already.
func (w *world) noPodIntents(t *testing.T, p *corev1.Pod) {
	t.Helper()
	marker := p.Name + "-marker"
	w.managedNode(t, marker)
	w.volume(t, marker, volumeOptions{})
	w.podIntents(t, w.pod(t, marker, marker, marker), marker)
	w.podIntents(t, p)
}

// claimOf names the intent's claim, or the volume in the pod itself.
func claimOf(intent *volumesv1alpha1.VolumeAttachmentIntent) string {
	if v := intent.Spec.Volume.PodVolume; v != nil {
		return volume.InlineClaim(v.PodName, v.VolumeName)
	}
	return intent.Spec.Volume.PersistentVolumeClaim.ClaimName
}

func aPodGetsItsVolumesAndReleasesThem(t *testing.T, w *world) {
	requests, _ := w.manage(t, withPods(true))
	w.managedNode(t, "pod-simple")
	w.volume(t, "pod-simple-a", volumeOptions{})
	w.volume(t, "pod-simple-b", volumeOptions{})
	until(t, w, stateOf("pod-simple"), "the agent has reported", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return exists(s) && s.Status.Protocol.ObservedUID == s.UID
	})
	requests.reset()
	p := w.pod(t, "pod-simple", "pod-simple", "pod-simple-a", "pod-simple-b")
	w.run(t, p, true)
	for _, intent := range w.podIntents(t, p, "pod-simple-a", "pod-simple-b") {
		w.attached(t, intent)
		owner := metav1.GetControllerOf(intent)
		if owner == nil || owner.UID != p.UID || owner.Kind != "Pod" || ptr.Deref(owner.BlockOwnerDeletion, true) ||
			!slices.Contains(intent.Finalizers, volumesv1alpha1.ReleaseFinalizer) {
			t.Errorf("metadata of intent %s: %s; want pod %s as owner, and the release finalizer", intent.Name,
				dump(intent.ObjectMeta), p.Name)
		}
		spec := intent.Spec
		if spec.NodeName != "pod-simple" || spec.Publisher != volumesv1alpha1.PublisherKubelet ||
			spec.DesiredState != volumesv1alpha1.DesiredAttached ||
			spec.DetachPolicy == nil || spec.DetachPolicy.ForceAfter.Duration != 6*time.Minute {
			t.Errorf("spec of intent %s: %s; want Attached for the kubelet of pod-simple, forced after 6m",
				intent.Name, dump(spec))
		}
	}
	if n := requests.count("POST volumeattachmentintents"); n != 2 {
		t.Errorf("%d intents were created for pod %s with two volumes, want 2", n, p.Name)
	}

	// While its container runs, a pod that is being deleted keeps its volumes.
	w.delete(t, p)
	w.pod(t, "pod-simple-marker", "pod-simple", "pod-simple-b")
	w.podIntents(t, p, "pod-simple-a", "pod-simple-b")
	requests.reset()
	w.run(t, p, false)
	w.podIntents(t, p)
	gone(t, w, attachmentOf("pod-simple-a", "pod-simple"))
	if n := requests.count("DELETE volumeattachmentintents"); n != 2 {
		t.Errorf("%d deletes of the intents of pod %s with two volumes, want 2", n, p.Name)
	}
	w.kill(t, p)
}

func aPodThatTerminatesReleasesItsVolumes(t *testing.T, w *world) {
	w.managedNode(t, "pod-ends")
	for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		name := "pod-" + strings.ToLower(string(phase))
		w.volume(t, name, volumeOptions{})
		p := w.pod(t, name, "pod-ends", name)
		w.attached(t, w.podIntents(t, p, name)[0])
		w.changeStatus(t, p, func() { p.Status.Phase = phase })
		w.podIntents(t, p)
		gone(t, w, attachmentOf(name, "pod-ends"))
		// It stays ended for later readers.
		w.kill(t, p)
	}
}

func aPodThatDoesNotRunKeepsItsVolumes(t *testing.T, w *world) {
	w.managedNode(t, "pod-waits")
	w.volume(t, "pod-waits", volumeOptions{})
	p := newPod("pod-waits", "pod-waits", "pod-waits")
	p.Finalizers = []string{"test.hawser.io/keep"}
	w.create(t, p)
	w.attached(t, w.podIntents(t, p, "pod-waits")[0])
	w.changeStatus(t, p, func() {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}},
		}
	})
	w.podIntents(t, p, "pod-waits")
	w.changeStatus(t, p, func() { p.Status.ContainerStatuses[0].State = corev1.ContainerState{} })
	w.delete(t, p)
	until(t, w, p, "the pod is being deleted", func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	w.podIntents(t, p, "pod-waits")
	w.run(t, p, false)
	w.podIntents(t, p)
	w.change(t, p, func() { p.Finalizers = nil })
}

func aPodDeletedWithForceReleasesItsVolumes(t *testing.T, w *world) {
	w.managedNode(t, "pod-killed")
	w.volume(t, "pod-killed", volumeOptions{})
	p := w.pod(t, "pod-killed", "pod-killed", "pod-killed")
	w.run(t, p, true)
	w.attached(t, w.podIntents(t, p, "pod-killed")[0])
	w.kill(t, p)
	w.podIntents(t, p)
	gone(t, w, attachmentOf("pod-killed", "pod-killed"))
}

func aPodOfTheSameNameIsAnotherPod(t *testing.T, w *world) {
	w.managedNode(t, "pod-set-a")
	w.managedNode(t, "pod-set-b")
	w.volume(t, "pod-set", volumeOptions{})
	first := w.pod(t, "pod-set", "pod-set-a", "pod-set")
	w.attached(t, w.podIntents(t, first, "pod-set")[0])
	w.kill(t, first)
	second := w.pod(t, "pod-set", "pod-set-b", "pod-set")
	w.podIntents(t, first)
	intent := w.podIntents(t, second, "pod-set")[0]
	w.attached(t, intent)
	if intent.Spec.NodeName != "pod-set-b" {
		t.Errorf("intent %s is for node %s, want pod-set-b", intent.Name, intent.Spec.NodeName)
	}
	gone(t, w, attachmentOf("pod-set", "pod-set-a"))
}

func aPodThatIsNotBoundWaits(t *testing.T, w *world) {
	w.managedNode(t, "pod-bound")
	w.volume(t, "pod-bound", volumeOptions{})
	p := w.pod(t, "pod-bound", "", "pod-bound")
	w.noPodIntents(t, p)
	if err := w.client.SubResource("binding").Create(t.Context(), p,
		&corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "pod-bound"}}); err != nil {
		t.Fatalf("binding pod %s: %v", p.Name, err)
	}
	w.attached(t, w.podIntents(t, p, "pod-bound")[0])
}

func aStaticPodGetsItsVolumes(t *testing.T, w *world) {
	w.managedNode(t, "pod-static")
	w.volume(t, "pod-static", volumeOptions{})
	p := newPod("pod-static", "pod-static", "pod-static")
	p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x", "kubernetes.io/config.source": "file"}
	w.create(t, p)
	w.attached(t, w.podIntents(t, p, "pod-static")[0])
}

func aNodeBecomesManagedAndUnmanaged(t *testing.T, w *world) {
	w.node(t, "pod-unmanaged")
	w.volume(t, "pod-unmanaged", volumeOptions{})
	p := w.pod(t, "pod-unmanaged", "pod-unmanaged", "pod-unmanaged")
	w.noPodIntents(t, p)
	w.manageNode(t, "pod-unmanaged", "true")
	w.attached(t, w.podIntents(t, p, "pod-unmanaged")[0])
	w.manageNode(t, "pod-unmanaged", "false")
	w.podIntents(t, p)
}

func podsKeepTheirIntentsWhenTheirNodeIsDeleted(t *testing.T, w *world) {
	w.managedNode(t, "pod-nodeless")
	w.volume(t, "pod-nodeless", volumeOptions{})
	w.volume(t, "pod-nodeless-late", volumeOptions{})
	p := w.pod(t, "pod-nodeless", "pod-nodeless", "pod-nodeless")
	intent := w.podIntents(t, p, "pod-nodeless")[0]
	w.attached(t, intent)
	w.delete(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "pod-nodeless"}})
	w.reason(t, intent, volumesv1alpha1.ConditionResolved, metav1.ConditionFalse, volumesv1alpha1.ReasonNodeNotFound)
	late := w.pod(t, "pod-nodeless-late", "pod-nodeless", "pod-nodeless-late")
	w.noPodIntents(t, late)
	w.podIntents(t, p, "pod-nodeless")
	w.kill(t, p)
	w.podIntents(t, p)
}

func volumesThatNeedNoAttachGetNoIntent(t *testing.T, w *world) {
	w.managedNode(t, "pod-plain")
	w.create(t, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "pod-plain.csi.hawser.io"},
		Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(false)}})
	for name, source := range map[string]corev1.PersistentVolumeSource{
		"pod-plain-nfs": {NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/"}},
		"pod-plain-csi": {CSI: &corev1.CSIPersistentVolumeSource{Driver: "pod-plain.csi.hawser.io", VolumeHandle: "h"}},
	} {
		claim := newClaim(name, volumeOptions{})
		w.create(t, claim)
		pv := newVolume(claim, volumeOptions{})
		pv.Spec.PersistentVolumeSource = source
		w.create(t, pv)
		w.bind(t, claim)
	}
	w.volume(t, "pod-plain", volumeOptions{})
	p := newPod("pod-plain", "pod-plain", "pod-plain-nfs", "pod-plain-csi", "pod-plain")
	p.Spec.Volumes = append(p.Spec.Volumes,
		corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}},
		}},
		corev1.Volume{Name: "inline", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: driverName}}},
	)
	w.create(t, p)
	w.attached(t, w.podIntents(t, p, "pod-plain")[0])
	// The driver is replaced by one that attaches.
	w.delete(t, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "pod-plain.csi.hawser.io"}})
	w.podIntents(t, p, "pod-plain", "pod-plain-csi")
}

func aClaimThatAPodNamesTwiceIsAttachedOnce(t *testing.T, w *world) {
	w.managedNode(t, "pod-twice")
	w.volume(t, "pod-twice", volumeOptions{modes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}})
	p := newPod("pod-twice", "pod-twice", "pod-twice", "pod-twice")
	p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	w.create(t, p)
	intent := w.podIntents(t, p, "pod-twice")[0]
	w.attached(t, intent)
	if intent.Spec.ReadOnly {
		t.Errorf("intent %s is read-only, want it writable, as one volume of pod %s writes", intent.Name, p.Name)
	}
	q := newPod("pod-twice-ro", "pod-twice", "pod-twice-ro")
	w.volume(t, "pod-twice-ro", volumeOptions{})
	q.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	w.create(t, q)
	if !w.podIntents(t, q, "pod-twice-ro")[0].Spec.ReadOnly {
		t.Errorf("intent of pod %s is writable, want it read-only, as its only volume is", q.Name)
	}
}

func aClaimIsAttachedOnceItIsBound(t *testing.T, w *world) {
	w.managedNode(t, "pod-later")
	claim := newClaim("pod-later", volumeOptions{})
	w.create(t, claim)
	p := w.pod(t, "pod-later", "pod-later", "pod-later")
	w.podEvent(t, p, "FailedAttachVolume", "volume v0", "default/pod-later", "not bound")
	w.podIntents(t, p)
	w.bind(t, claim)
	w.podEvent(t, p, "FailedAttachVolume", "volume pv-pod-later of claim default/pod-later does not exist")
	w.create(t, newVolume(claim, volumeOptions{}))
	w.attached(t, w.podIntents(t, p, "pod-later")[0])
	w.podEvent(t, p, "SuccessfulAttachVolume")
}

func aClaimThatWaitsForItsFirstConsumerIsLeftToTheScheduler(t *testing.T, w *world) {
	w.managedNode(t, "pod-first")
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "pod-first"}, Provisioner: driverName,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}
	claim := newClaim("pod-first", volumeOptions{})
	claim.Spec.StorageClassName = &class.Name
	w.create(t, class, claim)
	p := w.pod(t, "pod-first", "pod-first", "pod-first")
	w.podEvent(t, p, "FailedAttachVolume", "claim default/pod-first is not bound")
	w.create(t, newVolume(claim, volumeOptions{}))
	w.bind(t, claim)
	w.attached(t, w.podIntents(t, p, "pod-first")[0])
	until(t, w, claim, "no node was named to the claim", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Annotations[cached.SelectedNodeAnnotation] == ""
	})
}

func aMissingClaimIsReported(t *testing.T, w *world) {
	w.managedNode(t, "pod-missing")
	w.volume(t, "pod-missing-other", volumeOptions{})
	p := w.pod(t, "pod-missing", "pod-missing", "pod-missing", "pod-missing-other")
	w.podEvent(t, p, "FailedAttachVolume", "volume v0", "claim default/pod-missing does not exist")
	// The other volume need not wait for it.
	w.attached(t, w.podIntents(t, p, "pod-missing-other")[0])
	w.volume(t, "pod-missing", volumeOptions{})
	w.podIntents(t, p, "pod-missing", "pod-missing-other")
}

func aClaimDeletedBeforeItsPodIsRefused(t *testing.T, w *world) {
	w.managedNode(t, "pod-late")
	claim := w.volume(t, "pod-late", volumeOptions{})
	w.change(t, claim, func() { claim.Finalizers = append(claim.Finalizers, "test.hawser.io/keep") })
	after := w.intent(t, "pod-late-after", "pod-late", "pod-late-after")
	w.delete(t, claim)
	// A cache that has a claim from after the deletion has the deletion.
	w.volume(t, "pod-late-after", volumeOptions{})
	w.attached(t, after)
	p := w.pod(t, "pod-late", "pod-late", "pod-late")
	w.podEvent(t, p, "FailedAttachVolume", "claim default/pod-late is being deleted")
	w.podIntents(t, p)
	w.change(t, claim, func() { claim.Finalizers = nil })
	w.podEvent(t, p, "FailedAttachVolume", "claim default/pod-late does not exist")
}

func aClaimDeletedWhileItsPodUsesItIsAttached(t *testing.T, w *world) {
	w.managedNode(t, "pod-used")
	claim := w.volume(t, "pod-used", volumeOptions{})
	// Kubernetes' own protection holds the claim because of the pod, which came before the deletion, but is seen after it.
	w.change(t, claim, func() { claim.Finalizers = append(claim.Finalizers, "kubernetes.io/pvc-protection") })
	w.delete(t, claim)
	p := w.pod(t, "pod-used", "pod-used", "pod-used")
	w.attached(t, w.podIntents(t, p, "pod-used")[0])
	w.kill(t, p)
	w.podIntents(t, p)
	w.change(t, claim, func() { claim.Finalizers = nil })
}

func aVolumeOfAnotherClaimIsRefused(t *testing.T, w *world) {
	w.managedNode(t, "pod-foreign")
	claim := newClaim("pod-foreign", volumeOptions{})
	w.create(t, claim)
	pv := newVolume(claim, volumeOptions{})
	pv.Spec.ClaimRef.UID = "of-another"
	w.create(t, pv)
	w.bind(t, claim)
	p := w.pod(t, "pod-foreign", "pod-foreign", "pod-foreign")
	w.podEvent(t, p, "FailedAttachVolume", "pv-pod-foreign", "bound to another claim", "default/pod-foreign")
	w.podIntents(t, p)
	w.change(t, pv, func() { pv.Spec.ClaimRef.UID = claim.UID })
	w.attached(t, w.podIntents(t, p, "pod-foreign")[0])
}

func anIntentDoesNotSwitchToAnotherVolumeOfItsClaim(t *testing.T, w *world) {
	w.managedNode(t, "pod-rebound")
	claim := w.volume(t, "pod-rebound", volumeOptions{})
	p := w.pod(t, "pod-rebound", "pod-rebound", "pod-rebound")
	intent := w.podIntents(t, p, "pod-rebound")[0]
	w.attached(t, intent)
	// The API server lets no client change the volume of a claim: it is deleted, by force, and created again under the
	// pod.
	w.delete(t, claim)
	gone(t, w, claim)
	anew := newClaim("pod-rebound", volumeOptions{})
	w.create(t, anew)
	other := newVolume(anew, volumeOptions{})
	other.Name, other.Spec.CSI.VolumeHandle = "pv-pod-rebound-other", "vol-pod-rebound-other"
	w.create(t, other)
	w.change(t, anew, func() { anew.Spec.VolumeName = other.Name })
	w.phase(t, anew, corev1.ClaimBound)
	w.reason(t, intent, volumesv1alpha1.ConditionResolved, metav1.ConditionFalse, volumesv1alpha1.ReasonClaimReplaced)
	w.podEvent(t, p, volumesv1alpha1.ReasonClaimReplaced, "default/pod-rebound", "pv-pod-rebound")
	until(t, w, attachmentOf("pod-rebound", "pod-rebound"), "the first volume stays attached", held)
	// Only another pod gets the other volume.
	w.kill(t, p)
	gone(t, w, attachmentOf("pod-rebound", "pod-rebound"))
	second := w.pod(t, "pod-rebound", "pod-rebound", "pod-rebound")
	intent = w.podIntents(t, second, "pod-rebound")[0]
	w.attached(t, intent)
	if intent.Status.VolumeName != other.Name {
		t.Errorf("intent %s has volume %s, want %s", intent.Name, intent.Status.VolumeName, other.Name)
	}
}

func anEphemeralClaimHasToBeThePodsOwn(t *testing.T, w *world) {
	w.managedNode(t, "pod-eph")
	foreign := w.volume(t, "pod-eph-scratch", volumeOptions{})
	p := newPod("pod-eph", "pod-eph")
	p.Spec.Volumes = []corev1.Volume{{Name: "scratch",
		VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: newClaim("", volumeOptions{}).Spec},
		}}}}
	w.create(t, p)
	w.podEvent(t, p, "FailedAttachVolume", "volume scratch", "default/pod-eph-scratch", "not owner")
	w.podIntents(t, p)
	w.delete(t, foreign)
	gone(t, w, foreign)
	w.delete(t, newVolume(foreign, volumeOptions{}))
	own := newClaim("pod-eph-scratch", volumeOptions{})
	own.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: ptr.To(true)},
	}
	w.create(t, own)
	pv := newVolume(own, volumeOptions{})
	pv.Name = "pv-pod-eph-own"
	w.create(t, pv)
	w.change(t, own, func() { own.Spec.VolumeName = pv.Name })
	w.phase(t, own, corev1.ClaimBound)
	w.attached(t, w.podIntents(t, p, "pod-eph-scratch")[0])
}

func aHandleMayHaveAnyCharacterAndAnyLength(t *testing.T, w *world) {
	w.managedNode(t, "pod-handle")
	for name, handle := range map[string]string{
		"pod-caret": "a^b^", "pod-long": strings.Repeat("x", 1000), "pod-odd": "projects/ä/zones/ü z/disks/#1?&%^~",
	} {
		claim := newClaim(name, volumeOptions{})
		w.create(t, claim)
		pv := newVolume(claim, volumeOptions{})
		pv.Spec.CSI.VolumeHandle = handle
		w.create(t, pv)
		w.bind(t, claim)
		p := w.pod(t, name, "pod-handle", name)
		w.attached(t, w.podIntents(t, p, name)[0])
		va := &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: volume.AttachmentName(driverName, handle, "pod-handle")},
		}
		until(t, w, va, "it has upstream's name", held)
		w.kill(t, p)
		gone(t, w, va)
	}
	until(t, w, stateOf("pod-handle"), "nothing is left", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return len(s.Spec.Attachments) == 0
	})
}

func ofTwoVolumesWithOneHandleTheSecondIsRefused(t *testing.T, w *world) {
	w.managedNode(t, "pod-same")
	for _, name := range []string{"pod-same-a", "pod-same-b"} {
		claim := newClaim(name, volumeOptions{})
		w.create(t, claim)
		pv := newVolume(claim, volumeOptions{})
		pv.Spec.CSI.VolumeHandle = "vol-pod-same"
		w.create(t, pv)
		w.bind(t, claim)
	}
	first := w.pod(t, "pod-same-a", "pod-same", "pod-same-a")
	w.attached(t, w.podIntents(t, first, "pod-same-a")[0])
	second := w.pod(t, "pod-same-b", "pod-same", "pod-same-b")
	intent := w.podIntents(t, second, "pod-same-b")[0]
	w.reason(t, intent, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeInUse)
	w.podEvent(t, second, "FailedAttachVolume", "pv-pod-same-a", "same driver and handle", "pv-pod-same-b")
	// Once nothing has the first any more, the attachment serves the second.
	w.kill(t, first)
	w.attached(t, intent)
	w.kill(t, second)
	gone(t, w, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: volume.AttachmentName(driverName, "vol-pod-same", "pod-same")},
	})
}

func anIntentOfAPodThatAUserDeletesIsCreatedAgain(t *testing.T, w *world) {
	w.managedNode(t, "pod-again")
	w.volume(t, "pod-again", volumeOptions{})
	p := w.pod(t, "pod-again", "pod-again", "pod-again")
	intent := w.podIntents(t, p, "pod-again")[0]
	w.attached(t, intent)
	uid := intent.UID
	w.delete(t, intent)
	until(t, w, intent, "there is another intent of the name", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return exists(i) && i.UID != uid
	})
	w.attached(t, intent)
}

func aNameConflictIsReported(t *testing.T, w *world) {
	w.node(t, "pod-taken")
	w.volume(t, "pod-taken", volumeOptions{})
	p := w.pod(t, "pod-taken", "pod-taken", "pod-taken")
	// Another writer is first.
	w.manageNode(t, "pod-taken", "true")
	made := w.podIntents(t, p, "pod-taken")[0]
	w.manageNode(t, "pod-taken", "")
	gone(t, w, made)
	squatter := newIntent(made.Name, "pod-taken", "another-claim")
	w.create(t, squatter)
	w.manageNode(t, "pod-taken", "true")
	w.podEvent(t, p, "FailedAttachVolume", made.Name, "delete it")
	w.delete(t, squatter)
	gone(t, w, squatter)
	w.manageNode(t, "pod-taken", "")
	w.manageNode(t, "pod-taken", "true")
	w.attached(t, w.podIntents(t, p, "pod-taken")[0])
}

func changesWhileNoManagerRanAreHandled(t *testing.T, w *world) {
	_, stop := w.manage(t, withPods(true))
	w.managedNode(t, "pod-down")
	pods := map[string]*corev1.Pod{}
	for _, name := range []string{"pod-down-killed", "pod-down-ended", "pod-down-anew", "pod-down-stays"} {
		w.volume(t, name, volumeOptions{})
		pods[name] = w.pod(t, name, "pod-down", name)
		w.attached(t, w.podIntents(t, pods[name], name)[0])
	}
	stop()
	w.kill(t, pods["pod-down-killed"])
	w.changeStatus(t, pods["pod-down-ended"], func() { pods["pod-down-ended"].Status.Phase = corev1.PodFailed })
	w.kill(t, pods["pod-down-anew"])
	anew := w.pod(t, "pod-down-anew", "pod-down", "pod-down-anew")
	w.volume(t, "pod-down-added", volumeOptions{})
	added := w.pod(t, "pod-down-added", "pod-down", "pod-down-added")

	w.manage(t, withPods(true))
	w.podIntents(t, pods["pod-down-killed"])
	w.podIntents(t, pods["pod-down-ended"])
	w.podIntents(t, pods["pod-down-anew"])
	gone(t, w, attachmentOf("pod-down-killed", "pod-down"))
	gone(t, w, attachmentOf("pod-down-ended", "pod-down"))
	w.attached(t, w.podIntents(t, anew, "pod-down-anew")[0])
	w.attached(t, w.podIntents(t, added, "pod-down-added")[0])
	w.attached(t, w.podIntents(t, pods["pod-down-stays"], "pod-down-stays")[0])
}

func aRestartedManagerWritesNothing(t *testing.T, w *world) {
	_, stop := w.manage(t, withPods(true))
	w.managedNode(t, "pod-idle")
	w.volume(t, "pod-idle", volumeOptions{})
	p := w.pod(t, "pod-idle", "pod-idle", "pod-idle")
	before := w.podIntents(t, p, "pod-idle")[0]
	w.attached(t, before)
	stop()
	requests, stop := w.manage(t, withPods(true))
	// A pod that comes after the start is done with after those that were there.
	w.volume(t, "pod-idle-marker", volumeOptions{})
	marker := w.pod(t, "pod-idle-marker", "pod-idle", "pod-idle-marker")
	w.attached(t, w.podIntents(t, marker, "pod-idle-marker")[0])
	stop()
	if n := requests.count("POST volumeattachmentintents") + requests.count("DELETE volumeattachmentintents"); n != 1 {
		t.Errorf("%d creates and deletes of intents after the restart, want 1", n)
	}
	if after := w.podIntents(t, p, "pod-idle")[0]; after.ResourceVersion != before.ResourceVersion {
		t.Errorf("intent %s was written: version %s, want %s", after.Name, after.ResourceVersion, before.ResourceVersion)
	}
}

func intentsOfPodsAreDeletedWhenSwitchedOff(t *testing.T, w *world) {
	_, stop := w.manage(t, withPods(true))
	w.managedNode(t, "pod-off")
	w.volume(t, "pod-off", volumeOptions{})
	w.volume(t, "pod-off-other", volumeOptions{})
	p := w.pod(t, "pod-off", "pod-off", "pod-off")
	w.attached(t, w.podIntents(t, p, "pod-off")[0])
	other := newIntent("pod-off-other", "pod-off", "pod-off-other")
	w.create(t, other)
	w.attached(t, other)
	stop()
	requests, _ := w.manage(t, withPods(false))
	w.podIntents(t, p)
	w.volume(t, "pod-off-late", volumeOptions{})
	late := newIntent("pod-off-late", "pod-off", "pod-off-late")
	w.create(t, late)
	w.attached(t, late)
	until(t, w, other, "the intent of a person stays", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return exists(i) && i.DeletionTimestamp == nil
	})
	if n := requests.count("POST volumeattachmentintents"); n > 0 {
		t.Errorf("%d intents were created while intents of pods are off, want none", n)
	}
}

func manyPodsCostOneCreateAndOneDeleteEach(t *testing.T, w *world) {
	const count = 30
	requests, _ := w.manage(t, withPods(true))
	w.managedNode(t, "pod-many")
	until(t, w, stateOf("pod-many"), "the agent has reported", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return exists(s) && s.Status.Protocol.ObservedUID == s.UID
	})
	for i := range count {
		w.volume(t, fmt.Sprintf("pod-many-%d", i), volumeOptions{})
	}
	requests.reset()
	var pods []*corev1.Pod
	for i := range count {
		name := fmt.Sprintf("pod-many-%d", i)
		pods = append(pods, w.pod(t, name, "pod-many", name))
	}
	for i, p := range pods {
		w.attached(t, w.podIntents(t, p, fmt.Sprintf("pod-many-%d", i))[0])
	}
	n, what := requests.writes()
	t.Logf("attach: %.2f writes for each volume: %s", float64(n)/count, what)
	if requests.count("POST volumeattachmentintents") != count {
		t.Errorf("requests for %d new pods: %s; want one create of an intent each", count, what)
	}
	requests.reset()
	for _, p := range pods {
		w.kill(t, p)
	}
	for i, p := range pods {
		w.podIntents(t, p)
		gone(t, w, attachmentOf(fmt.Sprintf("pod-many-%d", i), "pod-many"))
	}
	until(t, w, stateOf("pod-many"), "the node is empty", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return len(s.Spec.Attachments) == 0
	})
	n, what = requests.writes()
	t.Logf("detach: %.2f writes for each volume: %s", float64(n)/count, what)
	if requests.count("DELETE volumeattachmentintents") != count || requests.count("GET pods") > 0 {
		t.Errorf("requests for %d deleted pods: %s; want one delete of an intent each and no read of a pod", count, what)
	}
}
