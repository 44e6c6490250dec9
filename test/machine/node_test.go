/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/csiloop/faults"
	"github.com/hawser-io/hawser/test/machine"
	"github.com/hawser-io/hawser/test/machine/disk"
	"github.com/hawser-io/hawser/test/machine/nfs"
	"github.com/hawser-io/hawser/test/machine/plugin"
	"github.com/hawser-io/hawser/test/system"
)

// patience is how long a test waits for something. The least time between two examinations of a volume is a minute.
var patience = 3 * time.Minute

const namespace = "default"

// node is a machine with an agent and drivers.
type node struct {
	*machine.Machine
	t *testing.T
	// agent is its program.
	agent string
	// domain of SELinux that it runs in; empty for that of the machine's first process.
	domain string
	// others start the drivers that only this node has, also after a boot.
	others []func()
	// rebooted, if set, starts what other machines would serve to this one, after a boot.
	rebooted func()
}

// newNode starts a machine that begins with the snapshot, its agent and its drivers.
func newNode(t *testing.T) *node {
	t.Helper()
	return newNodeOf(t, "agent")
}

func newNodeOf(t *testing.T, agent string) *node {
	t.Helper()
	n := &node{t: t, Machine: restored(t), agent: agent}
	n.begin()
	return n
}

// begin makes the machine a node of the cluster.
func (n *node) begin() {
	n.t.Helper()
	lab.disks.Use(n.Name, n.Machine)
	n.writeKubeconfig(lab.sys.AgentKubeconfig(n.Name), n.kubeconfig())
	for _, driver := range []string{system.DriverName, disk.DriverName, nfs.DriverName} {
		n.list(storagev1.CSINodeDriver{Name: driver, NodeID: n.Name})
	}
	n.startPrograms()
}

func (n *node) limited() context.Context {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.t.Context()), patience)
	n.t.Cleanup(cancel)
	return ctx
}

func (n *node) ok(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) must(script string, args ...any) string {
	n.t.Helper()
	return must(n.t, n.Machine, script, args...)
}

func (n *node) kubeconfig() string {
	return filepath.Join(lab.dir, "machines", n.Name, "agent.kubeconfig")
}

// writeKubeconfig writes one for programs of the machine, with the address that the host has inside.
func (n *node) writeKubeconfig(from, to string) {
	n.t.Helper()
	config, err := clientcmd.LoadFromFile(from)
	n.ok(err)
	for _, cluster := range config.Clusters {
		cluster.Server = strings.Replace(cluster.Server, "127.0.0.1", "10.0.2.2", 1)
		cluster.TLSServerName = "localhost"
	}
	n.ok(clientcmd.WriteToFile(*config, to))
}

// list lists a driver in the CSINode, as a kubelet in the machine would.
func (n *node) list(driver storagev1.CSINodeDriver) {
	n.t.Helper()
	listed := &storagev1.CSINode{}
	n.ok(lab.sys.Client.Get(n.limited(), client.ObjectKey{Name: n.Name}, listed))
	listed.Spec.Drivers = append(listed.Spec.Drivers, driver)
	n.ok(lab.sys.Client.Update(n.limited(), listed))
}

// startPrograms starts drivers and agent, also after a boot.
func (n *node) startPrograms() {
	n.t.Helper()
	ctx := n.limited()
	n.ok(os.MkdirAll(plugin.NodeDir(lab.nfs.Dir, n.Name), 0o755))
	n.ok(n.MountShare(ctx))
	// The programs are copied, because each page of a program on the share is read by a request.
	n.must("mkdir -p /var/lib/kubelet/plugins_registry /var/lib/hawser && cp -r %s/bin /run/bin", lab.dir)
	n.ok(n.Launch(ctx, "csi-loop", fmt.Sprintf("/run/bin/csi-loop --mode=node --backing-dir=%s "+
		"--kubelet-dir=/var/lib/kubelet --node-id=%s", lab.sys.BackingDir(), n.Name)))
	n.ok(n.Launch(ctx, "csi-disk", fmt.Sprintf("/run/bin/csi-disk --node-id=%s --faults-dir=%s", n.Name, faultsDir())))
	n.ok(n.Launch(ctx, "csi-nfs", fmt.Sprintf("/run/bin/csi-nfs --node-id=%s --dir=%s", n.Name,
		plugin.NodeDir(lab.nfs.Dir, n.Name))))
	for _, start := range n.others {
		start()
	}
	n.startAgent()
}

func (n *node) startAgent() {
	n.t.Helper()
	ctx := n.limited()
	begin := time.Now()
	program := "/run/bin/" + n.agent
	if n.domain != "" {
		program = "runcon -t " + n.domain + " -l s0 " + program
	}
	n.ok(n.Launch(ctx, "agent", fmt.Sprintf("%s --node-name=%s --root-dir=/var/lib/hawser "+
		"--kubelet-dir=/var/lib/kubelet --kubeconfig=%s --driver-timeout=%s --stats-period=5s", program, n.Name,
		n.kubeconfig(), driverTimeout)))
	if err := lab.sys.AwaitAgent(ctx, n.Name, begin); err != nil {
		log, _ := n.Log(ctx, "agent")
		n.t.Fatalf("agent of %s: %v, want that it takes its Lease: %s", n.Name, err, log)
	}
}

func faultsDir() string { return filepath.Join(lab.dir, "faults") }

// fault puts a fault on calls of the disk driver on this node, until it is removed.
func (n *node) fault(f faults.Fault) string {
	n.t.Helper()
	f.Node = n.Name
	id, err := faults.Add(faultsDir(), f)
	n.ok(err)
	return id
}

// volume is a claim with an intent on a node.
type volume struct {
	*node
	name string
	// claim is that of the name if it is empty.
	claim string
	// handle is the driver's name for it, of the disk driver also the serial number of its disk.
	handle string
}

// newVolume makes a claim, and an intent for it, and waits until the volume is bound.
func (n *node) newVolume(class, size string) *volume {
	n.t.Helper()
	v := n.newClaim(class, size)
	v.want()
	return v
}

// newInterrupted makes a volume that meets the fault.
func (n *node) newInterrupted(f faults.Fault) (v *volume, fault string) {
	n.t.Helper()
	v = n.newClaim(diskExt4, "64Mi")
	f.Volume = v.handle
	fault = n.fault(f)
	v.want()
	return v, fault
}

// newClaim makes a claim and waits until it is bound.
func (n *node) newClaim(class, size string, change ...func(*corev1.PersistentVolumeClaim)) *volume {
	n.t.Helper()
	ctx := n.limited()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: class + "-"},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To(class),
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}}}}
	for _, f := range change {
		f(claim)
	}
	n.ok(lab.sys.Client.Create(ctx, claim))
	v := &volume{node: n, name: claim.Name}
	claim, err := lab.sys.AwaitClaim(ctx, namespace, v.name, func(c *corev1.PersistentVolumeClaim) bool {
		return c != nil && c.Status.Phase == corev1.ClaimBound
	})
	n.ok(err)
	pv := &corev1.PersistentVolume{}
	n.ok(lab.sys.Client.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, pv))
	v.handle = pv.Spec.CSI.VolumeHandle
	return v
}

// want creates the intent.
func (v *volume) want(change ...func(*volumesv1alpha1.VolumeAttachmentIntent)) {
	v.t.Helper()
	intent := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v.name},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{NodeName: v.Name, Volume: volumesv1alpha1.VolumeSource{
			PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: cmp.Or(v.claim, v.name)}}},
	}
	for _, f := range change {
		f(intent)
	}
	v.ok(lab.sys.Client.Create(v.limited(), intent))
}

// ready waits until the intent is Ready, and returns its path.
func (v *volume) ready() string {
	v.t.Helper()
	return v.await(system.Ready).Status.Path
}

// await waits until done is true of the intent. If that does not come about, it shows what the agent printed.
func (v *volume) await(
	done func(*volumesv1alpha1.VolumeAttachmentIntent) bool,
) *volumesv1alpha1.VolumeAttachmentIntent {
	v.t.Helper()
	intent, err := lab.sys.AwaitIntent(v.limited(), namespace, v.name, done)
	if err != nil {
		log, _ := v.Log(v.limited(), "agent")
		v.t.Fatalf("%v\nagent: %s", err, log)
	}
	return intent
}

// unwant deletes the intent.
func (v *volume) unwant() {
	v.t.Helper()
	v.ok(client.IgnoreNotFound(lab.sys.Client.Delete(v.limited(), &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v.name}})))
}

// released waits until the intent and what it used are gone.
func (v *volume) released() {
	v.t.Helper()
	v.await(func(i *volumesv1alpha1.VolumeAttachmentIntent) bool { return i == nil })
	_, err := lab.sys.AwaitNode(v.limited(), v.Name, func(s *volumesv1alpha1.NodeVolumeState) bool {
		for _, a := range s.Spec.Attachments {
			if a.VolumeHandle == v.handle {
				return false
			}
		}
		return true
	})
	v.ok(err)
	if left := v.must("grep -e /%s -e /%x/ /proc/mounts || true", v.name, sha256.Sum256([]byte(v.handle))); left != "" {
		v.t.Errorf("mounts of volume %s are left, want none: %s", v.name, left)
	}
}

// release deletes the intent and waits until nothing of it is left.
func (v *volume) release() {
	v.t.Helper()
	v.unwant()
	v.released()
}
