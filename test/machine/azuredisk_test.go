/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/machine/disk/controller"
	"github.com/hawser-io/hawser/test/machine/plugin"
)

const (
	azureProgram = "azurediskplugin"
	// azureSize is the type of the node's machine, which the driver reads from the Node's label.
	azureSize = "Standard_B2s"
	// azureLimit is how many disks the driver gives such a machine.
	azureLimit = 4
)

// buildAzuredisk builds the driver, and copies it to where machines find it. Only tests that need it build it.
var buildAzuredisk = sync.OnceValue(func() error {
	build := exec.Command(filepath.Join(apiserver.Root(), "hack", "build-control-plane.sh"), azureProgram)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the driver: %w: %s", err, out)
	}
	program, err := os.ReadFile(filepath.Join(apiserver.Root(), ".cache", "bin", azureProgram))
	if err != nil {
		return fmt.Errorf("copying the driver: %w", err)
	}
	return os.WriteFile(filepath.Join(lab.dir, azureProgram), program, 0o755)
})

// newAzureNode is a node with the node plugin of Azure's disks as its maker releases it.
func newAzureNode(t *testing.T) *node {
	t.Helper()
	if err := buildAzuredisk(); err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, Machine: restored(t), agent: "agent"}
	n.others = append(n.others, n.startAzuredisk)
	lab.azure.Use(n.Name, n.Machine)
	named := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	n.ok(lab.sys.Client.Patch(n.limited(), named, client.RawPatch("application/merge-patch+json",
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, corev1.LabelInstanceTypeStable, azureSize))))
	n.writeKubeconfig(lab.sys.Kubeconfig(), n.azureKubeconfig())
	n.begin()
	n.listAzuredisk()
	return n
}

func (n *node) azureKubeconfig() string {
	return filepath.Join(lab.dir, "machines", n.Name, "azuredisk.kubeconfig")
}

// startAzuredisk gives the driver what it needs of its cloud. The link names the disk of the root file system: without
// one, the driver leaves out the first four SCSI controllers, which the machines of its cloud have for other disks.
func (n *node) startAzuredisk() {
	n.t.Helper()
	ctx := n.limited()
	socket := plugin.Socket("/var/lib/kubelet", controller.AzureDriver)
	n.must(`mkdir -p /dev/disk/azure $(dirname %s) && ln -sfn ../../vda /dev/disk/azure/root && rm -f %[1]s
		cp %s /run/`, socket, filepath.Join(lab.dir, azureProgram))
	n.ok(n.Launch(ctx, "azuredisk", fmt.Sprintf("/run/"+azureProgram+" --endpoint=unix://%s --nodeid=%s "+
		"--kubeconfig=%s --allow-empty-cloud-config --support-zone=false --get-node-info-from-labels "+
		"--remove-not-ready-taint=false -v=4 --logtostderr", socket, n.Name, n.azureKubeconfig())))
	n.must("until [ -S %s ]; do sleep 0.1; done", socket)
	n.ok(n.Launch(ctx, "csi-register", "/run/bin/csi-register --driver="+controller.AzureDriver))
}

// listAzuredisk lists the driver in the CSINode as it describes itself.
func (n *node) listAzuredisk() {
	n.t.Helper()
	var found volumesv1alpha1.NodeDriver
	_, err := lab.sys.AwaitNode(n.limited(), n.Name, func(s *volumesv1alpha1.NodeVolumeState) bool {
		for _, d := range s.Status.Drivers {
			if d.Name == controller.AzureDriver {
				found = d
			}
		}
		return found.NodeID == n.Name
	})
	if err != nil || ptr.Deref(found.MaxVolumes, 0) != azureLimit {
		log, _ := n.Log(n.limited(), "azuredisk")
		n.t.Fatalf("driver of Azure's disks: %+v, error %v, want node ID %s and limit %d: %s", found, err, n.Name, azureLimit,
			log)
	}
	n.list(storagev1.CSINodeDriver{Name: found.Name, NodeID: found.NodeID,
		Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To(int32(*found.MaxVolumes))}})
}

// device is the device of a published volume's disk.
func (v *volume) device() string {
	v.t.Helper()
	return v.must("findmnt --noheadings --output SOURCE --mountpoint %s", v.ready())
}

// The driver knows a disk by its logical unit number only. The kernel numbers the names of disks as they come, and in
// another order after a boot.
func TestAzureDisksWhoseNamesSwapAreNotMixedUp(t *testing.T) {
	t.Parallel()
	n := newAzureNode(t)
	other := n.newVolume(diskExt4, "64Mi")
	other.fill()
	one := n.newVolume(azureExt4, "1Gi")
	one.ready()
	other.release() // its name is free
	two := n.newVolume(azureXFS, "1Gi")
	devices := map[*volume]string{one: one.device(), two: two.device()}
	for v := range devices {
		n.must("echo %s >%s/name && sync -f %[2]s/name", v.name, v.ready())
	}
	n.ok(n.Reset(t.Context()))
	n.startPrograms()
	for v := range devices {
		if got := n.must("cat %s/name", v.mounted()); got != v.name {
			t.Errorf("volume %s has the content of %s after the reset, want its own", v.name, got)
		}
	}
	t.Logf("devices before: %s, %s; after: %s, %s", devices[one], devices[two], one.device(), two.device())
	if one.device() != devices[two] || two.device() != devices[one] {
		t.Errorf("devices after the reset: %s and %s, before: %s and %s, want them swapped", one.device(), two.device(),
			devices[one], devices[two])
	}
	// The number of a disk that is gone is given to the next one.
	lun := lab.azure.Disk(one.handle).LUN
	one.release()
	three := n.newVolume(azureExt4, "1Gi")
	three.fill()
	if got := lab.azure.Disk(three.handle).LUN; got != lun {
		t.Errorf("the next disk has the logical unit number %d, want %d again", got, lun)
	}
	if got := n.must("ls %s", three.ready()); got != "file\nlost+found" {
		t.Errorf("a new volume under an old number has %q, want only its own file", got)
	}
	for _, v := range []*volume{two, three} {
		v.release()
	}
}

func TestAnAzureDiskThatIsGoneIsNamed(t *testing.T) {
	t.Parallel()
	n := newAzureNode(t)
	well, gone := n.newVolume(azureExt4, "1Gi"), n.newVolume(azureExt4, "1Gi")
	well.fill()
	gone.fill()
	user := gone.user()
	pulled := lab.azure.Disk(gone.handle)
	struck := time.Now()
	n.ok(n.Unplug(n.limited(), pulled.ID))
	gone.tryWrite()
	message := gone.sick(struck, "its block device is gone", fmt.Sprintf("process %s (sleep)", user))
	t.Logf("after %.0f s: %s", time.Since(struck).Seconds(), message)
	n.sickNode("its block device is gone")
	if got := n.must("cat %s/file", well.ready()); got != "kept" {
		t.Errorf("the other volume has %q, want what was written before", got)
	}
	n.ok(n.Plug(n.limited(), pulled))
	n.ok(n.Kill(n.limited(), "user-"+gone.name))
	begin := time.Now()
	if got := n.must("cat %s/file", gone.ready()); got != "kept" {
		t.Errorf("the volume has %q once its disk is back, want what was synced before", got)
	}
	t.Logf("Ready %.0f s after the disk is back and its user has ended", time.Since(begin).Seconds())
	gone.release()
	well.release()
}

func TestANodeTakesAsManyAzureDisksAsItsDriverHasPlaceFor(t *testing.T) {
	t.Parallel()
	n := newAzureNode(t)
	var volumes []*volume
	for range azureLimit {
		v := n.newVolume(azureExt4, "1Gi")
		v.ready()
		volumes = append(volumes, v)
	}
	waits := n.newVolume(azureExt4, "1Gi")
	i := waits.await(func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		c := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionAttached)
		return c != nil && c.Reason == volumesv1alpha1.ReasonNodeLimitReached
	})
	t.Logf("one volume more than the limit:\n%s%s", shown(i), waits.why())
	volumes[0].release()
	begin := time.Now()
	waits.ready()
	t.Logf("Ready %.1f s after a place is free", time.Since(begin).Seconds())
	for _, v := range append(volumes[1:], waits) {
		v.release()
	}
}
