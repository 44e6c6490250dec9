/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/csiloop/faults"
	"github.com/hawser-io/hawser/test/csiloop/ledger"
	"github.com/hawser-io/hawser/test/csiloop/store"
	"github.com/hawser-io/hawser/test/system"
)

// TestAnAttachmentThatIsMarkedNotAttachedStaysMountedAndIsAttachedAgain checks that the node is not affected.
func TestAnAttachmentThatIsMarkedNotAttachedStaysMountedAndIsAttachedAgain(t *testing.T) {
	t.Parallel()
	v := newVolume(t)
	name := v.intent(nodeA)
	path := v.ready(name)
	before, err := system.MountIDs(sys.Dir)
	if err != nil {
		t.Fatal(err)
	}
	fault := v.fault(faults.Fault{Method: "ControllerPublishVolume", Action: faults.Hang})
	va := &storagev1.VolumeAttachment{}
	if err := sys.Client.Get(limited(t), client.ObjectKey{Name: v.attachment()}, va); err != nil {
		t.Fatal(err)
	}
	uid, marked := va.UID, va.DeepCopy()
	marked.Status.Attached = false
	if err := sys.Client.Status().Patch(limited(t), marked, client.MergeFrom(va)); err != nil {
		t.Fatal(err)
	}
	// Once the attacher's call has timed out, its error is the cause.
	for _, condition := range []string{volumesv1alpha1.ConditionAttached, volumesv1alpha1.ConditionReady} {
		v.waits(name, condition, volumesv1alpha1.ReasonAttachmentLost, volumesv1alpha1.ReasonAttachFailed)
	}
	if err := sys.AwaitEvent(limited(t), namespace, name, "FailedAttachVolume"); err != nil {
		t.Error(err)
	}
	write(t, path)
	v.removeFault(fault)
	v.ready(name)
	after, err := system.MountIDs(sys.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if before[path] != after[path] {
		t.Errorf("mount at %s: ID %v, want %v, as it must not be unmounted", path, after[path], before[path])
	}
	write(t, path)
	if err := sys.Client.Get(limited(t), client.ObjectKeyFromObject(va), va); err != nil || va.UID != uid ||
		!va.Status.Attached {
		t.Errorf("attachment %s: UID %s, attached %t, error %v; want UID %s, attached", va.Name, va.UID, va.Status.Attached,
			err, uid)
	}
}

// TestAVolumeThatWasDetachedInTheBackendIsAttachedAgain works because the external-attacher lists the driver's volumes.
// Its log alone shows it, as docs/operate.md reports.
func TestAVolumeThatWasDetachedInTheBackendIsAttachedAgain(t *testing.T) {
	attach := func(args ...string) {
		sys.AttacherArgs = args
		restart(t, system.Attacher, func() error { return sys.StartAttacher(limited(t)) })
	}
	t.Cleanup(func() { attach() })
	v := newVolume(t)
	name := v.intent(nodeA, func(intent *volumesv1alpha1.VolumeAttachmentIntent) {
		intent.Spec.DesiredState = volumesv1alpha1.DesiredAttached
	})
	v.ready(name)
	// An attacher that has just attached may publish once more, as its cache is late. One that starts now does not.
	attach("--reconcile-sync=10s")
	before := &storagev1.VolumeAttachment{}
	if err := sys.Client.Get(limited(t), client.ObjectKey{Name: v.attachment()}, before); err != nil {
		t.Fatal(err)
	}
	backend, err := store.Open(sys.BackingDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := backend.Unpublish(limited(t), v.handle, nodeA); err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Wait(limited(t), sys.BackingDir(), func([]ledger.Entry) bool {
		_, err := backend.Published(v.handle, nodeA)
		return err == nil
	}); err != nil {
		t.Fatal(err)
	}
	after := &storagev1.VolumeAttachment{}
	if err := sys.Client.Get(limited(t), client.ObjectKeyFromObject(before), after); err != nil ||
		after.ResourceVersion != before.ResourceVersion {
		t.Errorf("VolumeAttachment %s: version %s, error %v; want version %s, as the attacher does not show what it does",
			before.Name, after.ResourceVersion, err, before.ResourceVersion)
	}
	log, err := os.ReadFile(filepath.Join(sys.Dir, "logs", system.Attacher+".log"))
	if err != nil || !bytes.Contains(log, []byte("attached status and actual state do not match")) ||
		!bytes.Contains(log, []byte(before.Name)) {
		t.Errorf("log of the attacher: error %v, want that it names VolumeAttachment %s", err, before.Name)
	}
	// And the node can use it.
	intent := &volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := sys.Client.Patch(limited(t), intent,
		client.RawPatch(types.MergePatchType, []byte(`{"spec":{"desiredState":"Published"}}`))); err != nil {
		t.Fatal(err)
	}
	write(t,
		v.await(name,
			func(i *volumesv1alpha1.VolumeAttachmentIntent) bool { return system.Ready(i) && i.Status.Path != "" }).Status.Path)
}
