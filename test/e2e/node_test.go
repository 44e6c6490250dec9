/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/csiloop/faults"
	"github.com/hawser-io/hawser/test/system"
)

func TestAnotherFileAtThePublishedPathIsNotChangedAndDelaysThePublish(t *testing.T) {
	t.Parallel()
	v := newVolume(t)
	path := sys.PublishedPath(nodeA, namespace, "occupied")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	v.intent(nodeA, func(intent *volumesv1alpha1.VolumeAttachmentIntent) {
		intent.Name, intent.GenerateName = "occupied", ""
	})
	intent := v.waits("occupied", volumesv1alpha1.ConditionPublished, volumesv1alpha1.ReasonPathOccupied)
	if got := conditionOf(intent, volumesv1alpha1.ConditionReady); !strings.Contains(got, path) {
		t.Errorf("Ready of intent %s: %q, want path %s named", intent.Name, got, path)
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "mine" {
		t.Fatalf("other file %s: content %q, error %v; want it unchanged", path, content, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	write(t, v.ready("occupied"))
}

func TestAFailureThatRepeatsIncrementsItsEvent(t *testing.T) {
	t.Parallel()
	v := newVolume(t)
	id := v.fault(faults.Fault{Method: "NodeStageVolume", Action: faults.Error, Code: codes.Unavailable,
		Message: "not yet"})
	name := v.intent(nodeA)
	if err := sys.AwaitRepeatedEvent(limited(t), namespace, name, "FailedMount"); err != nil {
		t.Fatal(err)
	}
	v.removeFault(id)
	v.ready(name)
}

func TestAMountThatAnotherProgramRemovedIsRestored(t *testing.T) {
	t.Parallel()
	v := newVolume(t)
	name := v.intent(nodeA)
	path := v.ready(name)
	before, err := system.MountIDs(sys.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(path, 0); err != nil {
		t.Fatal(err)
	}
	if err := sys.AwaitEvent(limited(t), namespace, name, volumesv1alpha1.ReasonMountLost); err != nil {
		t.Fatal(err)
	}
	if err := sys.AwaitMount(limited(t), path, before[path]); err != nil {
		t.Fatal(err)
	}
	v.ready(name)
	write(t, path)
}

func TestAFullDiskUnderTheAgentsRootIsReportedAndOvercome(t *testing.T) {
	v := newVolume(t)
	records := filepath.Join(sys.AgentRoot(nodeB), "volumes")
	if err := os.MkdirAll(records, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", records, "tmpfs", 0, "size=16k"); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(records, "filler")
	if err := os.WriteFile(filler, bytes.Repeat([]byte("x"), 16<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	startAgent(t, nodeB)
	t.Cleanup(func() {
		if err := unix.Unmount(records, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		startAgent(t, nodeB)
	})
	name := v.intent(nodeB)
	v.waits(name, volumesv1alpha1.ConditionReady, volumesv1alpha1.ReasonRecordFailed)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	write(t, v.ready(name))
	v.release(name)
}

func TestTheIntentNamesADriverThatIsNotOnTheNodeAndWaitsForIt(t *testing.T) {
	v := newVolume(t)
	if err := sys.StopProcess(limited(t), system.NodeDriver(nodeB)); err != nil {
		t.Fatal(err)
	}
	startAgent(t, nodeB) // a new agent, which never saw the driver
	name := v.intent(nodeB)
	intent := v.await(name, func(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return strings.Contains(conditionOf(intent, volumesv1alpha1.ConditionReady), system.DriverName) &&
			!system.Ready(intent)
	})
	t.Log(conditionOf(intent, volumesv1alpha1.ConditionReady))
	if err := sys.StartNodeDriver(limited(t), nodeB); err != nil {
		t.Fatal(err)
	}
	write(t, v.ready(name))
}

// ofType creates a StorageClass for a filesystem, deleted when the test ends.
func ofType(t *testing.T, fsType string) func(*corev1.PersistentVolumeClaim) {
	t.Helper()
	sc := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{GenerateName: "loop-" + fsType + "-"},
		Provisioner: system.DriverName, AllowVolumeExpansion: ptr.To(true),
		Parameters: map[string]string{"csi.storage.k8s.io/fstype": fsType},
	}
	if err := sys.Client.Create(limited(t), sc); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sys.Client.Delete(limited(t), sc); err != nil {
			t.Error(err)
		}
	})
	return func(pvc *corev1.PersistentVolumeClaim) { pvc.Spec.StorageClassName = &sc.Name }
}

// withPersistentVolume creates a volume of the driver and its PersistentVolume without provisioning, because the driver
// does not provision unknown filesystems.
func withPersistentVolume(t *testing.T, fsType string) func(*corev1.PersistentVolumeClaim) {
	t.Helper()
	donor := newVolume(t)
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "by-hand-"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("32Mi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			StorageClassName:              "by-hand",
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: system.DriverName, VolumeHandle: donor.handle, FSType: fsType,
			}},
		},
	}
	if err := sys.Client.Create(limited(t), pv); err != nil {
		t.Fatal(err)
	}
	return func(pvc *corev1.PersistentVolumeClaim) {
		pvc.Spec.StorageClassName, pvc.Spec.VolumeName = ptr.To("by-hand"), pv.Name
	}
}

func TestTheIntentNamesAnUnknownFilesystem(t *testing.T) {
	t.Parallel()
	v := newVolume(t, withPersistentVolume(t, "nosuchfs"))
	intent := v.waits(v.intent(nodeA), volumesv1alpha1.ConditionReady, volumesv1alpha1.ReasonAttachFailed)
	if got := conditionOf(intent, volumesv1alpha1.ConditionReady); !strings.Contains(got, "nosuchfs") {
		t.Errorf("Ready of intent %s: %q, want nosuchfs named", intent.Name, got)
	}
}

func TestTheIntentNamesAnotherFilesystemOnTheDeviceWhichIsNeverFormatted(t *testing.T) {
	t.Parallel()
	v := newVolume(t, ofType(t, "ext4"))
	backing := sys.BackingFile(v.handle)
	if out,
		err := exec.CommandContext(t.Context(), "mkfs.btrfs", "-q", "-f", "--mixed", backing).CombinedOutput(); err != nil {
		t.Fatalf("formatting %s: error %v, want success: %s", backing, err, out)
	}
	before, err := os.ReadFile(backing)
	if err != nil {
		t.Fatal(err)
	}
	name := v.intent(nodeA)
	intent := v.waits(name, volumesv1alpha1.ConditionReady, volumesv1alpha1.ReasonFilesystemMismatch)
	got := conditionOf(intent, volumesv1alpha1.ConditionReady)
	if !strings.Contains(got, "ext4") || !strings.Contains(got, "btrfs") {
		t.Errorf("Ready of intent %s: %q, want ext4 and btrfs named", intent.Name, got)
	}
	v.release(name)
	after, err := os.ReadFile(backing)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, after) {
		t.Errorf("device %s of volume %s changed, want it unchanged", backing, v.handle)
	}
}

func TestEachFilesystemIsCreatedAndKept(t *testing.T) {
	t.Parallel()
	for _, fsType := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(fsType, func(t *testing.T) {
			t.Parallel()
			v := newVolume(t, ofType(t, fsType), large)
			first := v.intent(nodeA)
			write(t, v.ready(first))
			v.release(first)
			path := v.ready(v.intent(nodeB))
			if _, err := os.Stat(filepath.Join(path, "proof")); err != nil {
				t.Errorf("file of volume %s, written on %s, at %s on %s: error %v, want it there", v.handle, nodeA, path, nodeB,
					err)
			}
		})
	}
}

func TestABlockVolumeIsADeviceThatMoves(t *testing.T) {
	t.Parallel()
	v := newVolume(t, asBlock)
	first := v.intent(nodeA)
	want := bytes.Repeat([]byte("block"), 1000)
	writeDevice(t, v.ready(first), want)
	v.release(first)
	if got := readDevice(t, v.ready(v.intent(nodeB)), len(want)); !bytes.Equal(got, want) {
		t.Errorf("device of volume %s has other bytes on %s, want those written on %s", v.handle, nodeB, nodeA)
	}
}

func asBlock(pvc *corev1.PersistentVolumeClaim) {
	mode := corev1.PersistentVolumeBlock
	pvc.Spec.VolumeMode = &mode
}

// TestAFilesystemGrowsWhileItIsInUse uses xfs: to grow a mounted ext4, the kernel requires a capability that root does
// not have on every machine.
func TestAFilesystemGrowsWhileItIsInUse(t *testing.T) {
	t.Parallel()
	v := newVolume(t, ofType(t, "xfs"), large)
	name := v.intent(nodeA)
	path := v.ready(name)
	var before, after unix.Statfs_t
	if err := unix.Statfs(path, &before); err != nil {
		t.Fatal(err)
	}
	v.grow(name, "640Mi")
	if err := unix.Statfs(path, &after); err != nil {
		t.Fatal(err)
	}
	if after.Blocks <= before.Blocks {
		t.Errorf("filesystem at %s: %d blocks before the expansion, %d after; want more", path, before.Blocks, after.Blocks)
	}
}

func writeDevice(t *testing.T, path string, data []byte) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil || info.Mode()&os.ModeDevice == 0 {
		t.Fatalf("%s: %v, error %v; want a device", path, info, err)
	}
	device, err := os.OpenFile(path, os.O_WRONLY|os.O_SYNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := device.Write(data); err != nil {
		t.Error(err)
	}
	if err := device.Close(); err != nil {
		t.Error(err)
	}
}

func readDevice(t *testing.T, path string, size int) []byte {
	t.Helper()
	device, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = device.Close() }() // only read
	data := make([]byte, size)
	if _, err := device.Read(data); err != nil {
		t.Fatal(err)
	}
	return data
}
