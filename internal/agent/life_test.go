/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/handshake"
)

func TestLifeOfVolumesOnANode(t *testing.T) {
	runAll(t, map[string]func(*testing.T, *cluster){
		"an intent becomes a mounted volume and nothing is left when it is deleted":   testThereAndBack,
		"several intents share one stage, and each is told when it is released":       testShared,
		"a restarted agent goes on where it was and calls no driver":                  testRestart,
		"an intent that is simply gone leaves an orphan, and another one adopts it":   testOrphan,
		"a device that is adopted leaves no reference behind":                         testAdoptedDevice,
		"nobody but the agent may look into the records":                              testPermissions,
		"a block volume is a device node, and the kubelet sees that it is used":       testBlock,
		"the kubelet sees each intent that wants a block volume staged":               testBlockShared,
		"a block volume is published where the kubelet cannot see it, and told":       testBlockUnseen,
		"a changed publication is made anew":                                          testChanged,
		"the desired state goes down and up":                                          testLowered,
		"an intent that is raised without its finalizer waits until it has it":        testRaised,
		"an intent that has lost its finalizer when it is read live is not published": testLostFinalizer,
		"a volume that never grew is not expanded":                                    testNeverGrew,
		"a volume that grew while it was not staged is expanded":                      testGrewAway,
		"an expansion that cannot be is not told as done":                             testInfeasible,
		"a volume that no driver has staged is expanded where it is published":        testGrowsUnstaged,
		"a volume grows while it is used":                                             testGrows,
		"a forced away volume is shut down and let go":                                testForcedAway,
		"a forced away volume that cannot be shut down stays and is told":             testUnprotected,
		"another attachment is taken into use after the old one was let go":           testBounce,
		"what the kubelet staged after a reboot is not given up with what was there before": testStagedAnew(func(n *node) {
			n.setBoot("boot-2")
		}),
		"what the kubelet staged under the same device number is not given up with what was there": testStagedAnew(
			func(*node) {}),
		"a volume whose entry is gone stays":                                     testEntryGone,
		"after a reboot everything is mounted again":                             testReboot,
		"a node state made anew gets the whole report":                           testStateAnew,
		"a hundred intents at once cost few writes":                              testHundred,
		"many uses of one volume are counted, and end after a restart":           testManyUses,
		"an agent that begins with thousands of uses reports, and serves others": testManyRecords,
		"all requests are about the agent's own node":                            testOwnNode,
		"Ready Unknown of an unreachable agent is taken back":                    testTakenBack,
		"a second agent waits for the end of the first":                          testLock,
		"a second intent with another fsGroup waits until the first has gone":    testGroupConflict,
		"a sub path with an fsGroup":                                             testSubPath,
		"figures are reported":                                                   testStats,
		"an intent that is not resolved gets its Ready":                          testUnresolved,
		"an agent that waits for its node state starts when that appears":        testLateState,
	})
}

func testShared(t *testing.T, c *cluster) {
	n, v, _ := c.attached(t)
	one, two := n.want(v, "one"), n.want(v, "two")
	n.ready(one)
	path := n.ready(two).Status.Path
	n.release(one)
	n.condition(one, volumesv1alpha1.ConditionPublished, volumesv1alpha1.ReasonReleased)
	n.unfinalize(one)
	if _, ok := n.kernel.at(path); !ok {
		t.Errorf("nothing is mounted at %s, want the other intent's publication", path)
	}
	n.release(two)
	n.gone(v)
	n.nothingLeft()
	if count, _ := n.driver.count("stage vol"); count != 1 {
		t.Errorf("volume %s: staged %d times, want 1", v.name(), count)
	}
}

func testRestart(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	i := n.want(v, "data")
	n.ready(i)
	n.settled(v)
	a.stop()
	n.state("AgentStopped", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return meta.FindStatusCondition(s.Status.Conditions,
			volumesv1alpha1.ConditionReady).Reason == volumesv1alpha1.ReasonAgentStopped
	})
	before := len(n.driver.made())
	b := n.start()
	n.state("Ready", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return meta.IsStatusConditionTrue(s.Status.Conditions, volumesv1alpha1.ConditionReady)
	})
	b.rest()
	if calls := n.driver.made(); len(calls) != before {
		t.Errorf("calls after the restart: %v, want none", calls[before:])
	}
	n.release(i)
	n.gone(v)
	n.nothingLeft()
}

func testOrphan(t *testing.T, c *cluster) {
	n, v, _ := c.attached(t)
	i := n.want(v, "data")
	path := n.ready(i).Status.Path
	n.unfinalize(i)
	n.release(i)
	n.state("an orphan", func(s *volumesv1alpha1.NodeVolumeState) bool {
		l := handshake.VolumeOf(s, v.name())
		return l != nil && l.InUse && len(l.Publications) == 1 && l.Publications[0].Orphan &&
			s.Status.Summary.Orphaned == 1
	})
	if _, ok := n.kernel.at(path); !ok {
		t.Errorf("nothing is mounted at %s, want it not unmounted without a command", path)
	}
	calls := len(n.driver.made())
	j := n.want(v, "data")
	n.ready(j)
	if made := n.driver.made(); len(made) != calls {
		t.Errorf("calls for the adoption: %v, want none", made[calls:])
	}
	n.state("no orphan", func(s *volumesv1alpha1.NodeVolumeState) bool {
		l := handshake.VolumeOf(s, v.name())
		return !l.Publications[0].Orphan && l.Publications[0].Intent.UID == j.UID
	})
	n.release(j)
	n.gone(v)
	n.nothingLeft()
}

func testAdoptedDevice(t *testing.T, c *cluster) {
	n := c.node(t)
	v := testVolume{handle: "raw", mode: corev1.PersistentVolumeBlock}
	n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	n.ready(i)
	n.unfinalize(i)
	n.release(i)
	n.state("an orphan", func(s *volumesv1alpha1.NodeVolumeState) bool { return s.Status.Summary.Orphaned == 1 })
	j := n.want(v, "data")
	n.ready(j)
	n.referred(j)
	n.release(j)
	n.gone(v)
	n.nothingLeft()
}

func testPermissions(t *testing.T, c *cluster) {
	n := c.node(t)
	n.start()
	info, err := os.Stat(filepath.Join(n.root, "volumes"))
	n.must(err)
	if info.Mode().Perm() != 0o700 {
		t.Errorf("permissions of the records' directory: %v, want 0700", info.Mode().Perm())
	}
}

func testBlock(t *testing.T, c *cluster) {
	n := c.node(t)
	v := testVolume{handle: "raw", mode: corev1.PersistentVolumeBlock}
	n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	got := n.ready(i)
	l := handshake.VolumeOf(n.state("the device", func(s *volumesv1alpha1.NodeVolumeState) bool {
		l := handshake.VolumeOf(s, v.name())
		return l != nil && l.DevicePath != ""
	}), v.name())
	if l.Publications[0].Type != volumesv1alpha1.PublicationDevice || got.Status.DevicePath != device("raw") {
		t.Errorf("node %s: line %+v, intent's status %+v; want a published device and its name", n.name, l, got.Status)
	}
	n.referred(i)
	if o := n.driver.staged("raw").MountOptions; o != nil {
		t.Errorf("volume raw: mount options %v, want none for a device", o)
	}
	n.release(i)
	n.gone(v)
	n.nothingLeft()
}

// referred waits until the kubelet sees that the device is used for the intents and for nothing else.
func (n *node) referred(intents ...*volumesv1alpha1.VolumeAttachmentIntent) {
	n.t.Helper()
	var want []string
	for _, i := range intents {
		want = append(want, string(i.UID))
	}
	slices.Sort(want)
	n.eventually("what the kubelet counts", func() bool {
		nodes, err := n.kernel.DeviceNodes(filepath.Join(n.kubelet,
			"plugins/kubernetes.io/csi/volumeDevices/pv-raw/dev"))
		n.must(err)
		return slices.Equal(nodes, want)
	})
}

func testBlockShared(t *testing.T, c *cluster) {
	n := c.node(t)
	v := testVolume{handle: "raw", mode: corev1.PersistentVolumeBlock}
	a := n.start()
	n.attach(v, "uid-1")
	staged := n.want(v, "staged", desired(volumesv1alpha1.DesiredStaged))
	n.ready(staged)
	n.referred(staged)
	published := n.want(v, "published")
	n.ready(published)
	n.referred(staged, published)
	a.stop()
	n.start()
	n.release(staged)
	n.referred(published)
	n.update(published, desired(volumesv1alpha1.DesiredStaged))
	n.ready(published)
	n.referred(published)
	n.update(published, desired(volumesv1alpha1.DesiredAttached))
	n.gone(v)
	n.nothingLeft()
}

func testBlockUnseen(t *testing.T, c *cluster) {
	n := c.node(t)
	v := testVolume{handle: "raw", mode: corev1.PersistentVolumeBlock}
	n.kernel.noNodes = true
	n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	n.ready(i)
	n.intent(i, "the warning", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return i.Status.LastError != nil && strings.Contains(i.Status.LastError.Message,
			"the kubelet cannot see that the volume is in use") &&
			strings.Contains(i.Status.LastError.Message, unix.EPERM.Error())
	})
	n.release(i)
	n.gone(v)
	n.nothingLeft()
}

func testChanged(t *testing.T, c *cluster) {
	n, v, _ := c.attached(t)
	i := n.want(v, "data")
	path := n.ready(i).Status.Path
	n.update(i, func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Spec.ReadOnly = true })
	n.ready(i)
	if e, ok := n.kernel.at(path); !ok || !e.ReadOnly() {
		t.Errorf("mount at %s: %+v, want it read-only", path, e)
	}
	n.update(i, func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.Spec.ReadOnly, i.Spec.Mount = false, &volumesv1alpha1.MountSpec{Options: []string{"nodev"}}
	})
	n.ready(i)
	if o := n.driver.published(path).MountOptions; !slices.Equal(o, []string{"noatime", "nodev"}) {
		t.Errorf("mount options at %s: %v, want noatime and nodev", path, o)
	}
	if count, _ := n.driver.count("stage vol"); count != 1 {
		t.Errorf("volume %s: staged %d times, want 1", v.name(), count)
	}
}

func testLowered(t *testing.T, c *cluster) {
	n, v, _ := c.attached(t)
	i := n.want(v, "data")
	path := n.ready(i).Status.Path
	desire := func(d volumesv1alpha1.DesiredState) {
		n.update(i, func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Spec.DesiredState = d })
	}
	desire(volumesv1alpha1.DesiredStaged)
	got := n.ready(i)
	if _, ok := n.kernel.at(path); ok || got.Status.Path != "" ||
		meta.FindStatusCondition(got.Status.Conditions, volumesv1alpha1.ConditionPublished) != nil {
		t.Errorf("intent %s, lowered to Staged: status %+v, want no path, and nothing mounted", got.Name, got.Status)
	}
	if _, ok := n.kernel.at(n.driver.staged("vol").StagingPath); !ok {
		t.Errorf("volume %s: nothing is mounted at its stage, want it staged", v.name())
	}
	desire(volumesv1alpha1.DesiredAttached)
	n.gone(v)
	got = n.ready(i)
	if meta.FindStatusCondition(got.Status.Conditions, volumesv1alpha1.ConditionStaged) != nil {
		t.Errorf("intent %s, lowered to Attached: status %+v, want no Staged", got.Name, got.Status)
	}
	n.nothingLeft()
	desire(volumesv1alpha1.DesiredPublished)
	n.ready(i)
	if _, ok := n.kernel.at(path); !ok {
		t.Errorf("nothing is mounted at %s, want it published again", path)
	}
}

func testRaised(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	i := n.want(v, "data", func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.Spec.DesiredState, i.Finalizers = volumesv1alpha1.DesiredAttached, nil
	})
	n.update(i, func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.Spec.DesiredState = volumesv1alpha1.DesiredPublished
	})
	n.intent(i, "looked at and not staged", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		ready := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionReady)
		return ready != nil && ready.Reason == volumesv1alpha1.ReasonProgressing &&
			i.Status.ObservedGeneration == i.Generation
	})
	a.rest()
	if calls := n.driver.made(); len(calls) > 0 {
		t.Errorf("calls for an intent without its finalizer: %v, want none", calls)
	}
	n.state("no line", func(s *volumesv1alpha1.NodeVolumeState) bool { return handshake.VolumeOf(s, v.name()) == nil })
	// What the manager says of why it does not get it is what the intent is not Ready for.
	resolve := func(is metav1.ConditionStatus, reason string) {
		n.must(n.client.Get(t.Context(), client.ObjectKeyFromObject(i), i))
		meta.SetStatusCondition(&i.Status.Conditions,
			metav1.Condition{Type: volumesv1alpha1.ConditionResolved, Status: is, Reason: reason})
		n.must(n.client.Status().Update(t.Context(), i))
	}
	resolve(metav1.ConditionFalse, volumesv1alpha1.ReasonClaimDeleting)
	n.condition(i, volumesv1alpha1.ConditionReady, volumesv1alpha1.ReasonClaimDeleting)
	resolve(metav1.ConditionTrue, volumesv1alpha1.ReasonResolved)
	n.update(i, func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.Finalizers = []string{volumesv1alpha1.ReleaseFinalizer}
	})
	n.ready(i)
	n.release(i)
	n.gone(v)
	n.nothingLeft()
}

// losing reads an intent for the first time as it is after its finalizer was removed, which the watch has yet to bring.
type losing struct {
	client.Client
	reads atomic.Int32
	again func()
}

func (l *losing) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	err := l.Client.Get(ctx, key, o, opts...)
	if i, ok := o.(*volumesv1alpha1.VolumeAttachmentIntent); ok && l.reads.Add(1) == 1 {
		i.Finalizers = nil
	} else if ok {
		l.again()
	}
	return err
}

func testLostFinalizer(t *testing.T, c *cluster) {
	n := c.node(t)
	v := testVolume{handle: "vol"}
	l := &losing{again: sync.OnceFunc(func() {
		if calls := n.driver.made(); slices.Contains(calls, "publish vol") {
			t.Errorf("calls before the intent was read again: %v, want no publish", calls)
		}
	})}
	n.drive = func(o *Options) { l.Client, o.Live = o.Live, l }
	n.start()
	n.attach(v, "uid-1")
	n.ready(n.want(v, "data"))
	if l.reads.Load() < 2 {
		t.Errorf("intent read %d times, want it read again before it is published", l.reads.Load())
	}
}

func (n *node) grow(v testVolume, to string) {
	n.t.Helper()
	n.changeEntry(v, func(e *volumesv1alpha1.NodeAttachment) { e.Capacity = ptr.To(resource.MustParse(to)) })
}

func testGrows(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	i := n.want(v, "data")
	n.ready(i)
	n.grow(v, "2Gi")
	got := n.condition(i, volumesv1alpha1.ConditionExpanded, volumesv1alpha1.ReasonExpanded)
	if got.Status.Capacity.String() != "2Gi" {
		t.Errorf("intent %s: capacity %s, want 2Gi", got.Name, got.Status.Capacity)
	}
	n.state("capacity", func(s *volumesv1alpha1.NodeVolumeState) bool {
		l := handshake.VolumeOf(s, v.name())
		return l.Capacity != nil && l.Capacity.String() == "2Gi"
	})
	if e := a.recorded(); !slices.ContainsFunc(e, func(s string) bool {
		return strings.Contains(s, operation.EventResized)
	}) {
		t.Errorf("events of node %s: %v, want %s", n.name, e, operation.EventResized)
	}
}

func testNeverGrew(t *testing.T, c *cluster) {
	n := c.node(t)
	v := testVolume{handle: "vol", change: func(e *volumesv1alpha1.NodeAttachment) {
		e.NodeExpandSecretRef = &corev1.SecretReference{Namespace: "default", Name: "missing"}
	}}
	n.driver.fail("expand", &driver.Error{Outcome: driver.Invalid, Code: "InvalidArgument", Message: "never"})
	a := n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	n.ready(i)
	n.settled(v)
	a.rest()
	if calls := n.driver.made(); slices.Contains(calls, "expand vol") {
		t.Errorf("calls on node %s: %v, want no expand", n.name, calls)
	}
	n.must(n.client.Get(t.Context(), client.ObjectKeyFromObject(i), i))
	if i.Status.LastError != nil || i.Status.Capacity.String() != "1Gi" {
		t.Errorf("intent %s: status %+v, want no lastError and 1Gi", i.Name, i.Status)
	}
}

// grownTo2Gi: the controller side has grown the volume, and no node has expanded it yet.
func grownTo2Gi(e *volumesv1alpha1.NodeAttachment) {
	e.Capacity, e.ExpandFrom = ptr.To(resource.MustParse("2Gi")), ptr.To(resource.MustParse("1Gi"))
}

func testGrewAway(t *testing.T, c *cluster) {
	n := c.node(t)
	v := testVolume{handle: "vol", change: grownTo2Gi}
	n.start()
	n.attach(v, "uid-1")
	n.ready(n.want(v, "data"))
	n.state("the full capacity", func(s *volumesv1alpha1.NodeVolumeState) bool {
		l := handshake.VolumeOf(s, v.name())
		return l != nil && l.Capacity != nil && l.Capacity.String() == "2Gi"
	})
	n.called("expand vol")
}

func testGrowsUnstaged(t *testing.T, c *cluster) {
	n := c.node(t)
	n.driver.stageless = true
	v := testVolume{handle: "vol", change: grownTo2Gi}
	a := n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data", desired(volumesv1alpha1.DesiredStaged))
	got := n.condition(i, volumesv1alpha1.ConditionExpanded, volumesv1alpha1.ReasonExpanding)
	waits := meta.FindStatusCondition(got.Status.Conditions, volumesv1alpha1.ConditionExpanded).Message
	if !strings.Contains(waits, "once it is published") {
		t.Errorf("intent %s: message %q, want that the volume grows once it is published", got.Name, waits)
	}
	a.rest()
	if calls := n.driver.made(); slices.Contains(calls, "expand vol") {
		t.Errorf("calls on node %s: %v, want no expand of a bare staging path", n.name, calls)
	}
	n.update(i, desired(volumesv1alpha1.DesiredPublished))
	path := n.ready(i).Status.Path
	n.condition(i, volumesv1alpha1.ConditionExpanded, volumesv1alpha1.ReasonExpanded)
	a.rest()
	if times, _ := n.driver.count("expand vol"); times != 1 || n.driver.expanded()[0].Path != path {
		t.Errorf("expansions on node %s: %d, %+v, want one at %s", n.name, times, n.driver.expanded(), path)
	}
}

func testInfeasible(t *testing.T, c *cluster) {
	n := c.node(t)
	v := testVolume{handle: "vol", change: grownTo2Gi}
	n.driver.setBefore(func(method, _ string) error {
		if method != "expand" {
			return nil
		}
		return &driver.Error{Outcome: driver.NotFound, Code: "NotFound", Message: "no such volume"}
	})
	n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	got := n.condition(i, volumesv1alpha1.ConditionExpanded, volumesv1alpha1.ReasonExpandInfeasible)
	if !meta.IsStatusConditionTrue(got.Status.Conditions, volumesv1alpha1.ConditionReady) ||
		got.Status.Capacity.String() != "1Gi" {
		t.Errorf("intent %s: status %+v, want it Ready with 1Gi", got.Name, got.Status)
	}
	n.state("the failure and the old capacity", func(s *volumesv1alpha1.NodeVolumeState) bool {
		l := handshake.VolumeOf(s, v.name())
		return l.Capacity != nil && l.Capacity.String() == "1Gi" && l.Error != nil && l.Error.Operation == "expand" &&
			l.Error.Code == "NotFound"
	})
	n.driver.setBefore(nil)
	n.grow(v, "3Gi")
	n.condition(i, volumesv1alpha1.ConditionExpanded, volumesv1alpha1.ReasonExpanded)
}

func testHundred(t *testing.T, c *cluster) {
	const many = 100
	n := c.node(t)
	n.timeout = patience
	a := n.start()
	a.writes.reset()
	n.changeState(func(s *volumesv1alpha1.NodeVolumeState) {
		for k := range many {
			v := testVolume{handle: fmt.Sprintf("vol-%d", k)}
			s.Spec.Attachments = append(s.Spec.Attachments, volumesv1alpha1.NodeAttachment{
				VolumeName: v.name(), AttachmentUID: "uid", State: volumesv1alpha1.AttachmentAttached,
				Driver:       fakeDriverName,
				VolumeHandle: v.handle, PersistentVolumeName: "pv-" + v.handle,
				VolumeMode: corev1.PersistentVolumeFilesystem,
				Capacity:   ptr.To(resource.MustParse("1Gi")),
			})
		}
	})
	var intents []*volumesv1alpha1.VolumeAttachmentIntent
	for k := range many {
		intents = append(intents, n.want(testVolume{handle: fmt.Sprintf("vol-%d", k)}, fmt.Sprintf("data-%d", k)))
	}
	for _, i := range intents {
		n.ready(i)
	}
	n.state("everything told", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return s.Status.Summary.Published == many
	})
	states, others := 0, 0
	for _, w := range a.writes.list() {
		if strings.Contains(w, "nodevolumestates") {
			states++
		} else {
			others++
		}
	}
	t.Logf("%d writes of the node's state, %d of intents", states, others)
	if others > many+many/10 || states > many {
		t.Errorf("%d writes of the node's state and %d of intents, want at most %d and %d", states, others, many,
			many+many/10)
	}
}

// testManyUses: the API lists fewer uses than the record has, and the record decides.
func testManyUses(t *testing.T, c *cluster) {
	const many = 5 * volumesv1alpha1.ShownPublications
	n, v, a := c.attached(t)
	n.timeout = patience
	other := testVolume{handle: "of-another-tenant"}
	n.attach(other, "uid-2")
	data := n.want(other, "data")
	var intents []*volumesv1alpha1.VolumeAttachmentIntent
	for k := range many {
		intents = append(intents, n.want(v, fmt.Sprintf("%s-%d", strings.Repeat("use", 80), k)))
	}
	for _, i := range append(intents, data) {
		n.ready(i)
	}
	shown := func(s *volumesv1alpha1.NodeVolumeState) bool {
		l := handshake.VolumeOf(s, v.name())
		return l != nil && l.InUse && int(l.PublicationCount) == many &&
			len(l.Publications) == volumesv1alpha1.ShownPublications
	}
	n.state("some publications, and how many there are", shown)
	a.stop()
	n.start()
	n.state("the same after a restart", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return shown(s) && meta.IsStatusConditionTrue(s.Status.Conditions, volumesv1alpha1.ConditionReady)
	})
	n.release(data)
	n.gone(other)
	for _, i := range intents {
		n.release(i)
	}
	n.gone(v)
	n.nothingLeft()
}

// testManyRecords: an earlier version had no limit, and its reports became too large to be written.
func testManyRecords(t *testing.T, c *cluster) {
	const many = 3000
	n := c.node(t)
	n.timeout = patience
	crowd, other := testVolume{handle: "crowd"}, testVolume{handle: "of-another-tenant"}
	n.attach(crowd, "uid-1")
	n.attach(other, "uid-2")
	r := &record.Record{Schema: record.Schema, AttachmentUID: "uid-1", InUse: true,
		Stage: record.Stage{Phase: record.PhaseUncertain, Path: "/stage", BootID: "boot-1"}}
	r.SetVolumeSource(crowd.source())
	for k := range many {
		intent := volumesv1alpha1.IntentReference{Namespace: strings.Repeat("n", 63),
			Name: fmt.Sprintf("%s-%d", strings.Repeat("i", 245), k), UID: uidOf(fmt.Sprintf("uid-%d", k))}
		path := filepath.Join(n.root, "published", intent.Namespace, intent.Name)
		r.Uses = append(r.Uses, record.Use{Intent: intent, Want: volumesv1alpha1.DesiredPublished, BootID: "boot-1",
			Phase: record.PhaseUncertain, Path: path, Target: path, Type: volumesv1alpha1.PublicationMount})
	}
	store, err := record.OpenStore(filepath.Join(n.root, "volumes"))
	n.must(err)
	n.must(store.Save(r))
	n.start()
	n.state("a report of all publications", func(s *volumesv1alpha1.NodeVolumeState) bool {
		l := handshake.VolumeOf(s, crowd.name())
		return l != nil && l.InUse && l.PublicationCount == many && s.Status.Protocol.Session > 0
	})
	i := n.want(other, "data")
	n.ready(i)
	n.release(i)
	n.gone(other)
}

func testOwnNode(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	i := n.want(v, "data")
	n.ready(i)
	n.release(i)
	n.gone(v)
	for _, r := range a.writes.all() {
		path, query, _ := strings.Cut(r, "?")
		collection := strings.HasSuffix(path, "/volumeattachmentintents") ||
			strings.HasSuffix(path, "/nodevolumestates")
		switch {
		case collection && strings.Contains(query, n.name):
		case strings.Contains(path, n.name): // an object of this node, by name
		case strings.HasSuffix(path, "/apis") || strings.HasSuffix(path, "/api") ||
			strings.HasSuffix(path, "/v1alpha1") || strings.HasSuffix(path, "/v1"):
		case strings.HasSuffix(path, "/namespaces/"+volumesv1alpha1.InstallNamespace+"/leases"): // its own one is made
		default:
			t.Errorf("a request not about node %s: %s, want none", n.name, r)
		}
	}
}

func testSubPath(t *testing.T, c *cluster) {
	n := c.node(t)
	n.driver.inner = "inner"
	v := testVolume{handle: "vol"}
	n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data", func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.Spec.Mount = &volumesv1alpha1.MountSpec{SubPath: "inner", FSGroup: ptr.To[int64](2000)}
	})
	path := n.ready(i).Status.Path
	if e, ok := n.kernel.at(path); !ok || e.Root != "/inner" {
		t.Errorf("mount at %s: %+v, want /inner of the volume", path, e)
	}
	if g := n.kernel.groupOf(filepath.Join(n.root, "publish", string(i.UID))); g != 2000 {
		t.Errorf("intent %s: files have group %d, want 2000", i.Name, g)
	}
	j := n.want(v, "wrong", func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.Spec.Mount = &volumesv1alpha1.MountSpec{SubPath: "absent"}
	})
	n.condition(j, volumesv1alpha1.ConditionPublished, volumesv1alpha1.ReasonSubPathInvalid)
	n.release(j)
	n.condition(j, volumesv1alpha1.ConditionPublished, volumesv1alpha1.ReasonReleased)
	n.release(i)
	n.gone(v)
	n.nothingLeft()
}

func testGroupConflict(t *testing.T, c *cluster) {
	n, v, _ := c.attached(t)
	group := func(g int64) func(*volumesv1alpha1.VolumeAttachmentIntent) {
		return func(i *volumesv1alpha1.VolumeAttachmentIntent) {
			i.Spec.Mount = &volumesv1alpha1.MountSpec{FSGroup: ptr.To(g)}
		}
	}
	first := n.want(v, "first", group(2000))
	n.ready(first)
	second := n.want(v, "second", group(3000))
	got := n.condition(second, volumesv1alpha1.ConditionPublished, volumesv1alpha1.ReasonFSGroupConflict)
	message := meta.FindStatusCondition(got.Status.Conditions, volumesv1alpha1.ConditionReady).Message
	if !strings.Contains(message, first.Name) || !strings.Contains(message, "2000") ||
		meta.FindStatusCondition(got.Status.Conditions, volumesv1alpha1.ConditionStalled) != nil {
		t.Errorf("intent %s: status %+v, want the first intent and its group named, and not Stalled", got.Name, got.Status)
	}
	same := n.want(v, "same", group(2000))
	n.ready(same)
	n.ready(n.want(v, "none"))
	if count, _ := n.driver.count("publish vol"); count != 3 {
		t.Errorf("volume %s: published %d times, want 3", v.name(), count)
	}
	n.release(first)
	n.condition(second, volumesv1alpha1.ConditionPublished, volumesv1alpha1.ReasonFSGroupConflict)
	n.update(same, group(3000))
	path := n.ready(second).Status.Path
	n.ready(same)
	if g := n.kernel.groupOf(path); g != 3000 {
		t.Errorf("files at %s have group %d, want 3000", path, g)
	}
}

func testStats(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	n.ready(n.want(v, "data"))
	n.settled(v)
	a.rest()
	view, _ := a.views.Load(v.name())
	a.readStatsOf(t.Context(), view.(*record.Record))
	n.state("figures", func(s *volumesv1alpha1.NodeVolumeState) bool {
		l := handshake.VolumeOf(s, v.name())
		return l.Used != nil && l.Used.String() == "5Mi"
	})
	if got := a.StatsOfPods(t.Context()); len(got) > 0 {
		t.Errorf("figures of the volumes of pods: %+v, want none: no pod has the volume", got)
	}
}

// desired has the intent ask for the state.
func desired(state volumesv1alpha1.DesiredState) func(*volumesv1alpha1.VolumeAttachmentIntent) {
	return func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Spec.DesiredState = state }
}
