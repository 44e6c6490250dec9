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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/cached"
)

// invalidInput is a reason why an intent cannot be resolved, and its repair.
type invalidInput struct {
	name string
	// reason that Resolved, or Attached, has.
	reason   string
	attached bool
	// names that the message must hold.
	names []string
	// intent changes the intent before it is created.
	intent func(*volumesv1alpha1.VolumeAttachmentIntent)
	// bare: the node is not made.
	bare bool
	// break makes what is wrong, for a claim of this name on this node, and returns what mends it; nil where
	// only another intent would.
	setUp func(t *testing.T, w *world, name, node string) (mend func())
}

func invalidInputs() []invalidInput {
	return []invalidInput{
		{
			name: "claim-missing", reason: volumesv1alpha1.ReasonClaimNotFound, names: []string{"default/claim-missing"},
			setUp: func(t *testing.T, w *world, name, _ string) func() {
				return func() { w.volume(t, name, volumeOptions{}) }
			},
		},
		{
			name: "claim-unbound", reason: volumesv1alpha1.ReasonClaimNotBound, names: []string{"default/claim-unbound"},
			setUp: func(t *testing.T, w *world, name, _ string) func() {
				claim := newClaim(name, volumeOptions{})
				w.create(t, claim)
				return func() {
					w.create(t, newVolume(claim, volumeOptions{}))
					w.bind(t, claim)
				}
			},
		},
		{
			name: "claim-waiting", reason: volumesv1alpha1.ReasonWaitForFirstConsumer,
			names: []string{"default/claim-waiting", "node-claim-waiting"},
			setUp: setUpWaitForFirstConsumer,
		},
		{
			name: "claim-lost", reason: volumesv1alpha1.ReasonClaimLost, names: []string{"default/claim-lost", "pv-claim-lost"},
			setUp: func(t *testing.T, w *world, name, _ string) func() {
				claim := w.volume(t, name, volumeOptions{})
				w.phase(t, claim, corev1.ClaimLost)
				return func() { w.phase(t, claim, corev1.ClaimBound) }
			},
		},
		{
			name: "volume-missing", reason: volumesv1alpha1.ReasonVolumeNotFound,
			names: []string{"default/volume-missing", "pv-volume-missing"},
			setUp: func(t *testing.T, w *world, name, _ string) func() {
				claim := newClaim(name, volumeOptions{})
				w.create(t, claim)
				w.bind(t, claim)
				return func() { w.create(t, newVolume(claim, volumeOptions{})) }
			},
		},
		{
			name: "volume-of-another", reason: volumesv1alpha1.ReasonVolumeBoundElsewhere,
			names: []string{"default/volume-of-another", "pv-volume-of-another"},
			setUp: func(t *testing.T, w *world, name, _ string) func() {
				claim := newClaim(name, volumeOptions{})
				w.create(t, claim)
				pv := newVolume(claim, volumeOptions{})
				pv.Spec.ClaimRef.UID = "of-another"
				w.create(t, pv)
				w.bind(t, claim)
				return func() { w.change(t, pv, func() { pv.Spec.ClaimRef.UID = claim.UID }) }
			},
		},
		{
			name: "volume-not-csi", reason: volumesv1alpha1.ReasonVolumeNotSupported, names: []string{"pv-volume-not-csi"},
			setUp: func(t *testing.T, w *world, name, _ string) func() {
				claim := newClaim(name, volumeOptions{})
				w.create(t, claim)
				pv := newVolume(claim, volumeOptions{})
				pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/"}}
				w.create(t, pv)
				w.bind(t, claim)
				return nil
			},
		},
		{
			name: "handle-too-long", reason: volumesv1alpha1.ReasonVolumeSourceInvalid,
			names: []string{"pv-handle-too-long", "2049 bytes", "at most 2048"},
			setUp: func(t *testing.T, w *world, name, _ string) func() {
				w.volumeWithHandle(t, name, volumesv1alpha1.MaxVolumeHandleLength+1)
				return nil
			},
		},
		{
			name: "node-missing", reason: volumesv1alpha1.ReasonNodeNotFound, names: []string{"node-node-missing"}, bare: true,
			setUp: func(t *testing.T, w *world, name, node string) func() {
				w.volume(t, name, volumeOptions{})
				return func() { w.node(t, node) }
			},
		},
		{
			name: "affinity", reason: volumesv1alpha1.ReasonNodeAffinityMismatch,
			names: []string{"pv-affinity", "node-affinity"},
			setUp: func(t *testing.T, w *world, name, node string) func() {
				w.volume(t, name, volumeOptions{affinity: "somewhere-else"})
				object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
				return func() { w.change(t, object, func() { object.Labels[corev1.LabelHostname] = "somewhere-else" }) }
			},
		},
		{
			name: "mode", reason: volumesv1alpha1.ReasonVolumeModeMismatch, names: []string{"pv-mode", "Block", "mount"},
			intent: func(i *volumesv1alpha1.VolumeAttachmentIntent) {
				i.Spec.Mount = &volumesv1alpha1.MountSpec{SubPath: "a"}
			},
			setUp: func(t *testing.T, w *world, name, _ string) func() {
				w.volume(t, name, volumeOptions{mode: corev1.PersistentVolumeBlock})
				intent := newIntent(name, "", "")
				return func() { w.change(t, intent, func() { intent.Spec.Mount = nil }) }
			},
		},
		{
			name: "access", reason: volumesv1alpha1.ReasonAccessModeMismatch, names: []string{"pv-access", "readOnly"},
			setUp: func(t *testing.T, w *world, name, _ string) func() {
				w.volume(t, name, volumeOptions{modes: []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}})
				intent := newIntent(name, "", "")
				return func() { w.change(t, intent, func() { intent.Spec.ReadOnly = true }) }
			},
		},
		{
			name: "driver-missing", reason: volumesv1alpha1.ReasonDriverNotInstalled, attached: true,
			names: []string{driverName, "node-driver-missing"},
			setUp: func(t *testing.T, w *world, name, node string) func() {
				w.volume(t, name, volumeOptions{})
				w.delete(t, csiNode(node))
				return func() { w.create(t, csiNode(node)) }
			},
		},
	}
}

// volumeWithHandle makes a claim and its volume, whose handle has so many bytes.
func (w *world) volumeWithHandle(t *testing.T, name string, length int) {
	t.Helper()
	claim := newClaim(name, volumeOptions{})
	w.create(t, claim)
	pv := newVolume(claim, volumeOptions{})
	pv.Spec.CSI.VolumeHandle = name + strings.Repeat("x", length-len(name))
	w.create(t, pv)
	w.bind(t, claim)
}

func theLongestHandleIsAttached(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	w.node(t, "node-longest")
	w.volumeWithHandle(t, "longest", volumesv1alpha1.MaxVolumeHandleLength)
	intent := w.intent(t, "longest", "node-longest", "longest")
	w.attached(t, intent)
	w.delete(t, intent)
	gone(t, w, intent)
}

func setUpWaitForFirstConsumer(t *testing.T, w *world, name, node string) func() {
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: driverName,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}
	claim := newClaim(name, volumeOptions{})
	claim.Spec.StorageClassName = &class.Name
	w.create(t, class, claim)
	return func() {
		until(t, w, claim, "the claim names the intent's node", func(c *corev1.PersistentVolumeClaim) bool {
			return c.Annotations[cached.SelectedNodeAnnotation] == node
		})
		w.create(t, newVolume(claim, volumeOptions{}))
		w.bind(t, claim)
	}
}

func invalidInputIsReportedAndRecoversOnceRepaired(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	for _, bad := range invalidInputs() {
		t.Run(bad.name, func(t *testing.T) {
			node := "node-" + bad.name
			if !bad.bare {
				w.node(t, node)
			}
			mend := bad.setUp(t, w, bad.name, node)
			intent := newIntent(bad.name, node, bad.name)
			if bad.intent != nil {
				bad.intent(intent)
			}
			w.create(t, intent)
			condition := volumesv1alpha1.ConditionResolved
			if bad.attached {
				condition = volumesv1alpha1.ConditionAttached
			}
			message := w.reason(t, intent, condition, metav1.ConditionFalse, bad.reason)
			for _, name := range bad.names {
				if !strings.Contains(message, name) {
					t.Errorf("message of intent %s: %q; want it to name %s", intent.Name, message, name)
				}
			}
			ready := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionReady)
			if ready == nil || ready.Status != metav1.ConditionFalse || ready.Reason != bad.reason {
				t.Errorf("Ready of intent %s: %s; want False, reason %s", intent.Name, dump(ready), bad.reason)
			}
			if e := intent.Status.LastError; e == nil || e.Code != bad.reason || e.Attempts != 1 {
				t.Errorf("lastError of intent %s: %s; want code %s, attempted once", intent.Name, dump(e), bad.reason)
			}
			event := bad.reason
			if bad.attached {
				event = "FailedAttachVolume"
			}
			w.awaitIntentEvent(t, intent, event)
			if mend == nil {
				if !meta.IsStatusConditionTrue(intent.Status.Conditions, volumesv1alpha1.ConditionStalled) {
					t.Errorf("conditions of intent %s, which no retry can repair: %s; want Stalled True", intent.Name,
						dump(intent.Status.Conditions))
				}
				return
			}
			mend()
			w.attached(t, intent)
			until(t, w, intent, "the error is cleared", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
				return i.Status.LastError == nil &&
					meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionStalled) == nil
			})
		})
	}
}

func aClaimThatIsDeletedWhileUsedWaitsForItsIntents(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	w.node(t, "deleting-a")
	claim := w.volume(t, "deleting", volumeOptions{})
	intent := w.intent(t, "deleting", "deleting-a", "deleting")
	w.attached(t, intent)
	w.delete(t, claim)
	message := w.reason(t, intent, volumesv1alpha1.ConditionResolved, metav1.ConditionTrue,
		volumesv1alpha1.ReasonClaimDeleting)
	if !strings.Contains(message, "default/deleting") {
		t.Errorf("message of the intent: %q; want claim default/deleting", message)
	}
	w.awaitIntentEvent(t, intent, volumesv1alpha1.ReasonClaimDeleting)
	until(t, w, claim, "the claim is still there", isTerminating)
	late := w.intent(t, "deleting-late", "deleting-a", "deleting")
	w.reason(t, late, volumesv1alpha1.ConditionResolved, metav1.ConditionFalse, volumesv1alpha1.ReasonClaimDeleting)
	w.delete(t, intent)
	gone(t, w, intent)
	gone(t, w, claim)
	w.reason(t, late, volumesv1alpha1.ConditionResolved, metav1.ConditionFalse, volumesv1alpha1.ReasonClaimNotFound)
}

func isTerminating(c *corev1.PersistentVolumeClaim) bool {
	return exists(c) && c.DeletionTimestamp != nil
}

func anIntentDoesNotSwitchToAClaimThatWasCreatedAgain(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	w.node(t, "anew-a")
	claim := w.volume(t, "anew", volumeOptions{})
	intent := w.intent(t, "anew", "anew-a", "anew")
	w.attached(t, intent)
	until(t, w, claim, "the claim is protected", protected)
	// The finalizer is cut off.
	w.delete(t, claim)
	w.change(t, claim, func() { claim.Finalizers = nil })
	gone(t, w, claim)
	w.reason(t, intent, volumesv1alpha1.ConditionResolved, metav1.ConditionFalse, volumesv1alpha1.ReasonClaimNotFound)
	w.create(t, newClaim("anew", volumeOptions{}))
	message := w.reason(t, intent, volumesv1alpha1.ConditionResolved, metav1.ConditionFalse,
		volumesv1alpha1.ReasonClaimReplaced)
	if !strings.Contains(message, "default/anew") || !strings.Contains(message, "pv-anew") {
		t.Errorf("message of intent %s: %q; want claim default/anew and volume pv-anew", intent.Name, message)
	}
	if !meta.IsStatusConditionTrue(intent.Status.Conditions, volumesv1alpha1.ConditionStalled) ||
		intent.Status.VolumeName != "pv-anew" {
		t.Errorf("status of intent %s: %s; want Stalled True and volume pv-anew", intent.Name, dump(intent.Status))
	}
	until(t, w, attachmentOf("anew", "anew-a"), "the volume stays attached", func(va *storagev1.VolumeAttachment) bool {
		return exists(va) && va.DeletionTimestamp == nil
	})
}
