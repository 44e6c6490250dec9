/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/test/apiserver"
)

// patience is how long a test waits for something that should come about at once.
const patience = 90 * time.Second

// cluster is an API server in which the test plays the cluster controller.
type cluster struct {
	cfg    *rest.Config
	client client.WithWatch
	serial atomic.Int64
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	cfg, c := apiserver.Borrow(t)
	if err := c.Create(
		t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: volumesv1alpha1.InstallNamespace}},
	); err != nil {
		t.Fatal(err)
	}
	return &cluster{cfg: cfg, client: c}
}

// node is one node of the cluster, with a kernel and a driver that outlive its agents.
type node struct {
	*cluster
	t       *testing.T
	name    string
	root    string
	kubelet string
	boot    string
	// machine is the file with the machine's identity; empty for that of the host.
	machine  string
	kernel   *fakeNode
	driver   *fakeDriver
	registry *fakeRegistry
	timeout  time.Duration
	// dieAt names the step at which agents are killed.
	dieAt string
	// silent: no manager confirms sessions.
	silent atomic.Bool
	// drive changes an agent's options, for a node with a real kernel and driver.
	drive func(*Options)
}

func (c *cluster) node(t *testing.T) *node {
	t.Helper()
	k := newFakeNode()
	d := newFakeDriver(k)
	dir := t.TempDir()
	n := &node{
		cluster: c, t: t, name: fmt.Sprintf("node-%d", c.serial.Add(1)), root: filepath.Join(dir, "root"),
		kubelet: filepath.Join(dir, "kubelet"), boot: filepath.Join(dir, "boot_id"),
		kernel: k, driver: d, registry: newFakeRegistry(d), timeout: 5 * time.Second,
	}
	n.setBoot("boot-1")
	n.must(c.client.Create(t.Context(), &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: n.name}}))
	n.must(c.client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}}))
	n.confirmSessions()
	return n
}

// started returns a node with a running agent, and a volume that is not attached yet.
func (c *cluster) started(t *testing.T) (*node, testVolume, *running) {
	t.Helper()
	n := c.node(t)
	return n, testVolume{handle: "vol"}, n.start()
}

// attached returns a node with a running agent, and a volume that is attached to it as uid-1.
func (c *cluster) attached(t *testing.T) (*node, testVolume, *running) {
	t.Helper()
	n, v, a := c.started(t)
	n.attach(v, "uid-1")
	return n, v, a
}

// withKubelet returns a node with a running agent, a volume that is not attached yet, and the node's kubelet.
func (c *cluster) withKubelet(t *testing.T) (*node, testVolume, fakeKubelet, *running) {
	t.Helper()
	n, v, a := c.started(t)
	return n, v, fakeKubelet{n}, a
}

// confirmSessions plays the manager, which confirms each session of the node's agents, until the test ends.
func (n *node) confirmSessions() {
	n.t.Helper()
	states := n.watchState()
	done := make(chan struct{})
	n.t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		for states != nil {
			for e := range states.ResultChan() {
				n.confirm(e)
			}
			states = n.watchState() // the server ends a watch that is too slow
		}
	}()
}

// watchState watches the node's state; nil once the test ends.
func (n *node) watchState() watch.Interface {
	states, err := n.client.Watch(n.t.Context(), &volumesv1alpha1.NodeVolumeStateList{},
		client.MatchingFields{"metadata.name": n.name})
	if n.t.Context().Err() != nil {
		return nil
	}
	if err != nil {
		n.t.Errorf("watching the state of node %s: %v", n.name, err)
		return nil
	}
	return states
}

// confirm the session that an event shows.
func (n *node) confirm(e watch.Event) {
	s, ok := e.Object.(*volumesv1alpha1.NodeVolumeState)
	if !ok || e.Type == watch.Deleted || n.silent.Load() || s.Status.Protocol.Session == s.Spec.Protocol.ConfirmedSession {
		return
	}
	s.Spec.Protocol.ConfirmedSession = s.Status.Protocol.Session
	// A conflict brings another event.
	if err := n.client.Update(context.WithoutCancel(n.t.Context()), s); err != nil &&
		!apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		n.t.Errorf("confirming the session of node %s: %v", n.name, err)
	}
}

func (n *node) setBoot(id string) { n.must(os.WriteFile(n.boot, []byte(id+"\n"), 0o600)) }

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// testVolume is one volume of the test.
type testVolume struct {
	handle string
	// driver is the fake one by default.
	driver string
	mode   corev1.PersistentVolumeMode
	change func(*volumesv1alpha1.NodeAttachment)
	// share: it is of a made-up source, which no controller attaches and which has no PersistentVolume.
	share bool
}

// persistentVolume is the name of the volume's PersistentVolume; empty if it has none.
func (v testVolume) persistentVolume() string {
	if v.share {
		return ""
	}
	return "pv-" + v.handle
}

func (v testVolume) name() string {
	if v.share {
		return "share^" + v.handle
	}
	if v.driver != "" {
		return "kubernetes.io/csi/" + v.driver + "^" + v.handle
	}
	return "kubernetes.io/csi/" + fakeDriverName + "^" + v.handle
}

// source is where the volume comes from.
func (v testVolume) source() record.VolumeSource {
	return record.VolumeSource{UniqueName: v.name(), Driver: cmp.Or(v.driver, fakeDriverName), Handle: v.handle,
		PersistentVolume: v.persistentVolume(), Mode: cmp.Or(v.mode, corev1.PersistentVolumeFilesystem)}
}

func uidOf(s string) types.UID { return types.UID(s) }

// attach plays the controller: it writes the entry.
func (n *node) attach(v testVolume, uid types.UID) {
	n.t.Helper()
	capacity := resource.MustParse("1Gi")
	e := volumesv1alpha1.NodeAttachment{
		VolumeName: v.name(), AttachmentUID: uid, State: volumesv1alpha1.AttachmentAttached, Driver: fakeDriverName,
		VolumeHandle:         v.handle,
		PersistentVolumeName: v.persistentVolume(), VolumeMode: v.mode, FSType: "ext4", Capacity: &capacity,
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, MountOptions: []string{"noatime"},
	}
	if v.mode == "" {
		e.VolumeMode = corev1.PersistentVolumeFilesystem
	}
	if v.change != nil {
		v.change(&e)
	}
	n.changeState(func(s *volumesv1alpha1.NodeVolumeState) {
		if old := handshake.AttachmentOf(s, v.name()); old != nil {
			*old = e
			return
		}
		s.Spec.Attachments = append(s.Spec.Attachments, e)
	})
}

// changeEntry changes what the controller says of the volume.
func (n *node) changeEntry(v testVolume, f func(*volumesv1alpha1.NodeAttachment)) {
	n.t.Helper()
	n.changeState(func(s *volumesv1alpha1.NodeVolumeState) { f(handshake.AttachmentOf(s, v.name())) })
}

func (n *node) changeState(f func(*volumesv1alpha1.NodeVolumeState)) {
	n.t.Helper()
	for {
		s := &volumesv1alpha1.NodeVolumeState{}
		n.must(n.client.Get(n.t.Context(), types.NamespacedName{Name: n.name}, s))
		f(s)
		err := n.client.Update(n.t.Context(), s)
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), "the object has been modified") {
			n.t.Fatalf("updating node state %s: error %v, want none or a conflict", n.name, err)
		}
	}
}

// want creates an intent for the volume and plays the controller, which pins it.
func (n *node) want(v testVolume, name string,
	change ...func(*volumesv1alpha1.VolumeAttachmentIntent)) *volumesv1alpha1.VolumeAttachmentIntent {
	n.t.Helper()
	i := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: n.name + "-" + name,
			Finalizers: []string{volumesv1alpha1.ReleaseFinalizer}},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{
			NodeName: n.name,
			Volume: volumesv1alpha1.VolumeSource{
				PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "claim"},
			},
		},
	}
	for _, f := range change {
		f(i)
	}
	n.must(n.client.Create(n.t.Context(), i))
	n.pin(v, i)
	return i
}

func (n *node) pin(v testVolume, i *volumesv1alpha1.VolumeAttachmentIntent) {
	n.t.Helper()
	i.Status.VolumeName, i.Status.UniqueVolumeName = v.persistentVolume(), v.name()
	i.Status.ClaimUID, i.Status.VolumeUID = "claim", "volume"
	for _, c := range []string{volumesv1alpha1.ConditionResolved, volumesv1alpha1.ConditionAttached} {
		meta.SetStatusCondition(&i.Status.Conditions,
			metav1.Condition{Type: c, Status: metav1.ConditionTrue, Reason: c, ObservedGeneration: i.Generation})
	}
	n.must(n.client.Status().Update(n.t.Context(), i))
}

// release deletes the intent; its finalizer stays until the test takes it off.
func (n *node) release(i *volumesv1alpha1.VolumeAttachmentIntent) {
	n.t.Helper()
	n.must(n.client.Delete(n.t.Context(), i))
}

func (n *node) unfinalize(i *volumesv1alpha1.VolumeAttachmentIntent) {
	n.t.Helper()
	n.must(n.client.Patch(n.t.Context(), i, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`))))
}

// intentGone waits until the agent has released a deleted intent of the volume, and lets it go as the manager does.
func (n *node) intentGone(i *volumesv1alpha1.VolumeAttachmentIntent, v testVolume) {
	n.t.Helper()
	n.eventually("the release of intent "+i.Name, func() bool { return n.isReleased(i, v) })
	n.unfinalize(i)
}

// update changes the intent's spec.
func (n *node) update(i *volumesv1alpha1.VolumeAttachmentIntent, f func(*volumesv1alpha1.VolumeAttachmentIntent)) {
	n.t.Helper()
	for {
		n.must(n.client.Get(n.t.Context(), client.ObjectKeyFromObject(i), i))
		f(i)
		err := n.client.Update(n.t.Context(), i)
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), "the object has been modified") {
			n.t.Fatalf("updating intent %s: error %v, want none or a conflict", i.Name, err)
		}
	}
}

func clientKey(name string) client.ObjectKey { return client.ObjectKey{Name: name} }
