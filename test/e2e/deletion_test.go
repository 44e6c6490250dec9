/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/csiloop/ledger"
)

// TestTheVolumeOfADeletedClaimStaysAsLongAsItsVolumeAttachment shows the premise of decision 15. The claim of a
// volume that is only attached may be deleted at any time. The external-provisioner does not delete a volume
// with a VolumeAttachment. A finalizer of the test keeps that object after the driver has detached.
func TestTheVolumeOfADeletedClaimStaysAsLongAsItsVolumeAttachment(t *testing.T) {
	t.Parallel()
	v := newClaim(limited(t), t)
	v.bind(limited(t))
	intent := v.intent(nodeA, func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.Spec.DesiredState = volumesv1alpha1.DesiredAttached
	})
	v.ready(intent)
	attachment := v.hold()

	v.deleteClaim()
	pv := *attachment.Spec.Source.PersistentVolumeName
	awaitRefusal(t, pv, "")
	v.waits(intent, volumesv1alpha1.ConditionResolved, volumesv1alpha1.ReasonClaimNotFound)

	v.delete(intent)
	v.awaitCall("ControllerUnpublishVolume")
	awaitRefusal(t, pv, v.refusals(pv))

	before := time.Now()
	v.removeHold(attachment)
	if err := sys.AwaitVolumeGone(limited(t), pv); err != nil {
		t.Fatal(err)
	}
	for _, call := range ledger.Calls(v.awaitCall("DeleteVolume")) {
		if call.Method == "DeleteVolume" && call.Volume == v.handle && call.Time.Before(before) {
			t.Errorf("DeleteVolume of %s came %v before the end of its VolumeAttachment, want it after that", v.handle,
				before.Sub(call.Time))
		}
	}
}

// holder is a finalizer that only the test removes.
const holder = "test.hawser.io/hold"

// hold keeps the volume's VolumeAttachment, at most until the test ends.
func (v *volume) hold() *storagev1.VolumeAttachment {
	v.t.Helper()
	attachment := &storagev1.VolumeAttachment{}
	if err := sys.Client.Get(limited(v.t), client.ObjectKey{Name: v.attachment()}, attachment); err != nil {
		v.t.Fatal(err)
	}
	patch := client.MergeFromWithOptions(attachment.DeepCopy(), client.MergeFromWithOptimisticLock{})
	controllerutil.AddFinalizer(attachment, holder)
	if err := sys.Client.Patch(limited(v.t), attachment, patch); err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { v.removeHold(attachment) })
	return attachment
}

// removeHold removes the test's finalizer.
func (v *volume) removeHold(held *storagev1.VolumeAttachment) {
	v.t.Helper()
	attachment := &storagev1.VolumeAttachment{}
	err := sys.Client.Get(limited(v.t), client.ObjectKeyFromObject(held), attachment)
	patch := client.MergeFromWithOptions(attachment.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if err == nil && controllerutil.RemoveFinalizer(attachment, holder) {
		err = sys.Client.Patch(limited(v.t), attachment, patch)
	}
	if client.IgnoreNotFound(err) != nil {
		v.t.Error(err)
	}
}

func (v *volume) deleteClaim() {
	v.t.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v.name}}
	if err := sys.Client.Delete(limited(v.t), claim); err != nil {
		v.t.Fatal(err)
	}
	_,
		err := sys.AwaitClaim(limited(v.t), namespace, v.name, func(c *corev1.PersistentVolumeClaim) bool { return c == nil })
	if err != nil {
		v.t.Fatal(err)
	}
}

// awaitCall waits until the driver has answered a call for the volume without an error, and returns its ledger.
func (v *volume) awaitCall(method string) []ledger.Entry {
	v.t.Helper()
	entries, err := ledger.Wait(limited(v.t), sys.BackingDir(), func(entries []ledger.Entry) bool {
		for _, e := range entries {
			if e.Method == method && e.Volume == v.handle && e.Phase == ledger.End && e.Code == "OK" {
				return true
			}
		}
		return false
	})
	if err != nil {
		v.t.Fatal(err)
	}
	return entries
}

// ofRefusals selects the external-provisioner's events about a PersistentVolume that it does not delete.
func ofRefusals(pv string) client.MatchingFields {
	return client.MatchingFields{"regarding.name": pv, "reason": "VolumeFailedDelete"}
}

// refusals is the resource version after all refusals so far.
func (v *volume) refusals(pv string) string {
	v.t.Helper()
	list := &eventsv1.EventList{}
	if err := sys.Client.List(limited(v.t), list, ofRefusals(pv)); err != nil {
		v.t.Fatal(err)
	}
	return list.ResourceVersion
}

// awaitRefusal waits until the external-provisioner reports, after that version, that the PersistentVolume is attached.
func awaitRefusal(t *testing.T, pv, after string) {
	t.Helper()
	if err := refusal(limited(t), pv, after); err != nil {
		t.Fatal(err)
	}
}

func refusal(ctx context.Context, pv, after string) error {
	w, err := sys.Client.Watch(ctx, &eventsv1.EventList{}, ofRefusals(pv),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: after}})
	if err != nil {
		return fmt.Errorf("watching events: %w", err)
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for a refusal to delete %s: %w", pv, ctx.Err())
		case change, open := <-w.ResultChan():
			if !open {
				return fmt.Errorf("waiting for a refusal to delete %s: the watch ended", pv)
			}
			if e, ok := change.Object.(*eventsv1.Event); ok && strings.Contains(e.Note, "still attached to node "+nodeA) {
				return nil
			}
		}
	}
}
