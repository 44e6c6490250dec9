/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
)

// TestMigratedVolumes runs every scenario of volumes of plugins that were once built into Kubernetes on one control
// plane.
func TestMigratedVolumes(t *testing.T) {
	w := newWorld(t)
	w.manage(t, withPods(true))
	for _, s := range []podScenario{
		{"a volume of a built-in plugin belongs to its CSI driver", aVolumeOfABuiltInPluginBelongsToItsCSIDriver},
		{"a built-in source that cannot be translated is reported", aBuiltInSourceThatCannotBeTranslatedIsReported},
		{"an inline volume of a pod is attached", anInlineVolumeOfAPodIsAttached},
		{"read-only pods share a disk", readOnlyPodsShareADisk},
		{"an attachment of upstream for an inline volume is shared", anAttachmentOfUpstreamForAnInlineVolumeIsShared},
		{"an intent of a user for an inline volume waits for its pod", anIntentOfAUserForAnInlineVolumeWaitsForItsPod},
	} {
		t.Run(s.name, func(t *testing.T) { s.scenario(t, w) })
	}
}

const diskDriver = "pd.csi.storage.gke.io"

// addDriver says that the driver is on the node, beside the stub.
func (w *world) addDriver(t *testing.T, node, driver string) {
	t.Helper()
	object := csiNode(node)
	w.change(t, object, func() {
		object.Spec.Drivers = append(object.Spec.Drivers, storagev1.CSINodeDriver{Name: driver, NodeID: node})
	})
}

// attaches plays the driver's attacher, once.
func (w *world) attaches(t *testing.T, va *storagev1.VolumeAttachment) {
	t.Helper()
	until(t, w, va, "the attachment is there", exists)
	w.changeStatus(t, va, func() { va.Status.Attached = true })
}

func aVolumeOfABuiltInPluginBelongsToItsCSIDriver(t *testing.T, w *world) {
	w.managedNode(t, "pod-old")
	w.addDriver(t, "pod-old", diskDriver)
	claim := newClaim("pod-old", volumeOptions{})
	w.create(t, claim)
	pv := newVolume(claim, volumeOptions{})
	pv.Labels = map[string]string{corev1.LabelTopologyZone: "zone-1"}
	pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{
		GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "disk", FSType: "ext4"},
	}
	w.create(t, pv)
	w.bind(t, claim)
	p := w.pod(t, "pod-old", "pod-old", "pod-old")

	const handle = "projects/UNSPECIFIED/zones/zone-1/disks/disk"
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: volume.AttachmentName(diskDriver, handle, "pod-old")},
	}
	w.attaches(t, va)
	if source := va.Spec.Source; source.PersistentVolumeName == nil || *source.PersistentVolumeName != pv.Name ||
		source.InlineVolumeSpec != nil || va.Spec.Attacher != diskDriver {
		t.Errorf("spec of attachment %s: %s; want PersistentVolume %s of driver %s", va.Name, dump(va.Spec),
			pv.Name, diskDriver)
	}
	intent := w.podIntents(t, p, "pod-old")[0]
	w.attached(t, intent)
	if name := volume.UniqueName(diskDriver, handle); intent.Status.UniqueVolumeName != name ||
		intent.Status.VolumeName != pv.Name {
		t.Errorf("status of intent %s: %s; want volume %s of %s", intent.Name, dump(intent.Status), name, pv.Name)
	}
	state := until(t, w, stateOf("pod-old"), "the entry is there", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return len(s.Spec.Attachments) == 1
	})
	if e := state.Spec.Attachments[0]; e.Driver != diskDriver || e.VolumeHandle != handle || e.FSType != "ext4" ||
		e.PersistentVolumeName != pv.Name {
		t.Errorf("entry of volume %s: %s; want the translated source", pv.Name, dump(e))
	}
	w.kill(t, p)
	gone(t, w, va)

	// The zone is written again while a pod is there: that is another volume, and the pod stays with the first.
	p = w.pod(t, "pod-old-again", "pod-old", "pod-old")
	w.attaches(t, va)
	intent = w.podIntents(t, p, "pod-old")[0]
	w.attached(t, intent)
	w.change(t, pv, func() { pv.Labels[corev1.LabelTopologyZone] = "zone-2" })
	w.reason(t, intent, volumesv1alpha1.ConditionResolved, metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeReplaced)
	until(t, w, va, "the first stays attached", held)
	w.change(t, pv, func() { pv.Labels[corev1.LabelTopologyZone] = "zone-1" })
	w.reason(t, intent, volumesv1alpha1.ConditionResolved, metav1.ConditionTrue, volumesv1alpha1.ReasonResolved)
	w.kill(t, p)
	gone(t, w, va)
}

func aBuiltInSourceThatCannotBeTranslatedIsReported(t *testing.T, w *world) {
	w.managedNode(t, "pod-illegible")
	claim := newClaim("pod-illegible", volumeOptions{})
	w.create(t, claim)
	pv := newVolume(claim, volumeOptions{})
	pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{
		AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://a/b/c"},
	}
	w.create(t, pv)
	w.bind(t, claim)
	p := w.pod(t, "pod-illegible", "pod-illegible", "pod-illegible")
	w.podEvent(t, p, "FailedAttachVolume", "pv-pod-illegible", "default/pod-illegible",
		"Invalid format for AWS volume (aws://a/b/c)")
	w.podIntents(t, p)
	intent := newIntent("pod-illegible", "pod-illegible", "pod-illegible")
	w.create(t, intent)
	w.reason(t, intent, volumesv1alpha1.ConditionResolved, metav1.ConditionFalse,
		volumesv1alpha1.ReasonVolumeSourceInvalid)
	w.reason(t, intent, volumesv1alpha1.ConditionStalled, metav1.ConditionTrue, volumesv1alpha1.ReasonVolumeSourceInvalid)
}

// diskPod is a pod that has a disk in itself.
func diskPod(name, node, disk string, readOnly bool) *corev1.Pod {
	p := newPod(name, node)
	p.Spec.Volumes = []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{
		GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: disk, FSType: "ext4", ReadOnly: readOnly},
	}}}
	return p
}

// diskAttachment has upstream's name for the disk on the node.
func diskAttachment(disk, node string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{
		Name: volume.AttachmentName(diskDriver, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/"+disk, node),
	}}
}

// podVolumeIntent waits for the only intent of the pod.
func (w *world) podVolumeIntent(t *testing.T, p *corev1.Pod) *volumesv1alpha1.VolumeAttachmentIntent {
	t.Helper()
	return w.podIntents(t, p, p.Name+":disk")[0]
}

func anInlineVolumeOfAPodIsAttached(t *testing.T, w *world) {
	w.managedNode(t, "disk-a")
	w.addDriver(t, "disk-a", diskDriver)
	p := diskPod("disk", "disk-a", "one", false)
	w.create(t, p)
	va := diskAttachment("one", "disk-a")
	w.attaches(t, va)
	spec := va.Spec.Source.InlineVolumeSpec
	if va.Spec.Source.PersistentVolumeName != nil || spec == nil || spec.CSI == nil || spec.CSI.FSType != "ext4" ||
		spec.ClaimRef != nil ||
		len(spec.AccessModes) != 1 || va.Spec.Attacher != diskDriver {
		t.Fatalf("spec of attachment %s: %s; want the translated inline volume", va.Name, dump(va.Spec))
	}
	intent := w.podVolumeIntent(t, p)
	w.attached(t, intent)
	if s := intent.Status; s.ClaimUID != p.UID || s.VolumeName != "" ||
		s.UniqueVolumeName != volume.UniqueName(diskDriver, spec.CSI.VolumeHandle) {
		t.Errorf("status of intent %s: %s; want the pod's UID %s and the inline volume", intent.Name, dump(s), p.UID)
	}
	state := until(t, w, stateOf("disk-a"), "the entry is there", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return len(s.Spec.Attachments) == 1
	})
	if e := state.Spec.Attachments[0]; e.Driver != diskDriver || e.FSType != "ext4" || e.AttachmentUID != va.UID ||
		e.PersistentVolumeName != "" {
		t.Errorf("entry of the inline volume: %s; want attachment UID %s and no PersistentVolume", dump(e), va.UID)
	}
	// A writer is exclusive, also when the other one has the disk in itself.
	w.managedNode(t, "disk-b")
	w.addDriver(t, "disk-b", diskDriver)
	other := diskPod("disk-too", "disk-b", "one", false)
	w.create(t, other)
	second := w.podVolumeIntent(t, other)
	message := w.reason(t, second, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse,
		volumesv1alpha1.ReasonVolumeInUse)
	if !strings.Contains(message, "pod default/disk") {
		t.Errorf("message on the second pod's volume: %q; want the holder, pod default/disk", message)
	}
	w.kill(t, p)
	w.attaches(t, diskAttachment("one", "disk-b"))
	w.attached(t, second)
	w.kill(t, other)
	gone(t, w, diskAttachment("one", "disk-b"))
	gone(t, w, va)
	until(t, w, stateOf("disk-b"), "nothing is left", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return len(s.Spec.Attachments) == 0
	})
}

func readOnlyPodsShareADisk(t *testing.T, w *world) {
	for _, node := range []string{"disk-r1", "disk-r2"} {
		w.managedNode(t, node)
		w.addDriver(t, node, diskDriver)
		p := diskPod(node, node, "readers", true)
		w.create(t, p)
		w.attaches(t, diskAttachment("readers", node))
		w.attached(t, w.podVolumeIntent(t, p))
	}
}

func anAttachmentOfUpstreamForAnInlineVolumeIsShared(t *testing.T, w *world) {
	w.node(t, "disk-up")
	w.addDriver(t, "disk-up", diskDriver)
	va := diskAttachment("up", "disk-up")
	va.Spec = storagev1.VolumeAttachmentSpec{Attacher: diskDriver, NodeName: "disk-up",
		Source: storagev1.VolumeAttachmentSource{
			InlineVolumeSpec: &corev1.PersistentVolumeSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
					Driver: diskDriver, VolumeHandle: "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/up",
				}},
			},
		}}
	p := diskPod("disk-up", "disk-up", "up", false)
	w.create(t, p, va)
	uid := va.UID
	w.attaches(t, va)
	w.manageNode(t, "disk-up", "true")
	intent := w.podVolumeIntent(t, p)
	w.attached(t, intent)
	until(t, w, va, "it is held", held)
	if va.UID != uid {
		t.Errorf("attachment %s has UID %s, want that of upstream's, %s", va.Name, va.UID, uid)
	}
	w.kill(t, p)
	gone(t, w, va)
}

func anIntentOfAUserForAnInlineVolumeWaitsForItsPod(t *testing.T, w *world) {
	w.managedNode(t, "disk-own")
	w.addDriver(t, "disk-own", diskDriver)
	intent := newIntent("disk-own", "disk-own", "")
	setOnlyAttached(intent)
	intent.Spec.Publisher = volumesv1alpha1.PublisherKubelet
	intent.Spec.Volume = volumesv1alpha1.VolumeSource{
		PodVolume: &volumesv1alpha1.PodVolumeSource{PodName: "disk-own", VolumeName: "disk"},
	}
	w.create(t, intent)
	w.reason(t, intent, volumesv1alpha1.ConditionResolved, metav1.ConditionFalse, volumesv1alpha1.ReasonPodNotFound)
	p := diskPod("disk-own", "", "own", false)
	w.create(t, p)
	w.reason(t, intent, volumesv1alpha1.ConditionResolved, metav1.ConditionFalse, volumesv1alpha1.ReasonPodNotOnNode)
	if err := w.client.SubResource("binding").Create(t.Context(), p,
		&corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "disk-own"}}); err != nil {
		t.Fatalf("binding pod %s: %v", p.Name, err)
	}
	w.attaches(t, diskAttachment("own", "disk-own"))
	w.attached(t, intent)
	// Another pod of the name, with another disk, is not switched to.
	w.kill(t, p)
	w.create(t, diskPod("disk-own", "disk-own", "other", false))
	w.reason(t, intent, volumesv1alpha1.ConditionResolved, metav1.ConditionFalse, volumesv1alpha1.ReasonPodReplaced)
	until(t, w, diskAttachment("own", "disk-own"), "the first disk stays", held)
	w.delete(t, intent)
	gone(t, w, diskAttachment("own", "disk-own"))

	// A claim of a pod is not a volume in it.
	w.volume(t, "disk-claim", volumeOptions{})
	w.pod(t, "disk-claim", "disk-own", "disk-claim")
	wrong := newIntent("disk-claim", "disk-own", "")
	wrong.Spec = *intent.Spec.DeepCopy()
	wrong.Spec.Volume.PodVolume = &volumesv1alpha1.PodVolumeSource{PodName: "disk-claim", VolumeName: "v0"}
	w.create(t, wrong)
	w.reason(t, wrong, volumesv1alpha1.ConditionResolved, metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeNotSupported)
}
