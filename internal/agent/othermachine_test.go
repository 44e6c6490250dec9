/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/machine"
)

const (
	firstUUID, firstID   = "4c4c4544-0043-3510-8052-b4c04f564d31", "9f1c2e5b7a8d4e0f93b1c6d2a4f80e11"
	secondUUID, secondID = "4c4c4544-0043-3510-8052-b4c04f564d32", "9f1c2e5b7a8d4e0f93b1c6d2a4f80e12"
)

func TestMachinesOfOneNodeName(t *testing.T) {
	c := newCluster(t)
	for name, test := range map[string]func(*testing.T, *cluster){
		"what a machine used that was replaced stays in use until an administrator ends it":   testReplacedMachine,
		"a declaration ends what the machine before used, once the attachment is detached":    testDeclaredOfOtherMachine,
		"what time alone has forced away of another machine stays in use":                     testTimedOutOtherMachine,
		"a machine that is installed anew releases what it used":                              testReinstalledMachine,
		"a clone of the disk is another machine":                                              testClonedMachine,
		"a use that an earlier release has reported is of the machine that reports next":      testUseWithoutMachine,
		"a second machine waits while the first one is at work, and the other way round":      testTwoMachinesAtOnce,
		"an agent whose Lease another machine holds is not one whose API server was restored": testLeaseTaken,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, c)
		})
	}
}

// identify gives the node a machine.
func (n *node) identify(uuid, id string) {
	n.machine = filepath.Join(n.t.TempDir(), "machine")
	n.must(os.WriteFile(n.machine, []byte(uuid+"\n"+id+"\n"), 0o600))
}

// other is another machine under the name of n, with a disk and a kernel of its own.
func (n *node) other(uuid, id string) *node {
	k, dir := newFakeNode(), n.t.TempDir()
	d := newFakeDriver(k)
	o := &node{cluster: n.cluster, t: n.t, name: n.name, root: filepath.Join(dir, "root"),
		kubelet: filepath.Join(dir, "kubelet"), boot: filepath.Join(dir, "boot_id"), kernel: k, driver: d,
		registry: newFakeRegistry(d), timeout: n.timeout}
	o.setBoot("boot-of-" + uuid)
	o.identify(uuid, id)
	return o
}

// expire lets the Lease of an agent that is dead last a second, in place of the longer time that it has written.
func (n *node) expire() {
	n.t.Helper()
	n.changeLease(func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = ptr.To(int32(1)) })
}

func (n *node) changeLease(change func(*coordinationv1.Lease)) {
	n.t.Helper()
	n.must(retry.RetryOnConflict(retry.DefaultRetry, func() error { // the agent renews it
		l := n.lease("any", func(*coordinationv1.Lease) bool { return true })
		change(l)
		return n.client.Update(n.t.Context(), l)
	}))
}

// used is a node of which the first machine uses a volume for an intent, and has died.
func (c *cluster) used(t *testing.T) (*node, testVolume, *volumesv1alpha1.VolumeAttachmentIntent) {
	t.Helper()
	n := c.node(t)
	n.identify(firstUUID, firstID)
	a, v := n.start(), testVolume{handle: "vol"}
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	n.ready(i)
	n.lease("renewed", func(l *coordinationv1.Lease) bool { return l.Spec.HolderIdentity != nil })
	a.kill()
	n.expire()
	return n, v, i
}

// carried waits until another machine's use of the volume stands in a report of n, and checks what n says of it.
func (n *node) carried(v testVolume, uuid, id string) {
	n.t.Helper()
	s := n.state("carried on", func(s *volumesv1alpha1.NodeVolumeState) bool {
		line := handshake.VolumeOf(s, v.name())
		return line != nil && line.Machine != nil
	})
	line, user := handshake.VolumeOf(s, v.name()), machine.New(uuid, id)
	if !line.InUse || line.AttachmentUID != "uid-1" || line.Machine.SystemUUID != user.SystemUUID ||
		line.Machine.MachineID != user.MachineID || len(line.Publications) != 1 {
		n.t.Errorf("line of volume %s: %+v of machine %+v, want it as %+v has left it", v.name(), line, line.Machine, user)
	}
	for _, condition := range []string{volumesv1alpha1.ConditionReady, volumesv1alpha1.ConditionSameMachine} {
		got := meta.FindStatusCondition(s.Status.Conditions, condition)
		if got == nil || got.Status != metav1.ConditionFalse || got.Reason != volumesv1alpha1.ReasonAnotherMachine ||
			!strings.Contains(got.Message, user.SystemUUID) || !strings.Contains(got.Message, s.Status.Machine.SystemUUID) ||
			!strings.Contains(got.Message, "uid-1") {
			n.t.Errorf("condition %s of node state %s: %+v, want one that names both machines and the attachment", condition,
				n.name, got)
		}
	}
}

// untouched: the agent of this machine has called no driver.
func (n *node) untouched() {
	n.t.Helper()
	if calls := n.driver.made(); len(calls) > 0 {
		n.t.Errorf("calls on the second machine of node %s: %v, want none", n.name, calls)
	}
}

// forceAway plays the manager: the entry is detached on that evidence.
func (n *node) forceAway(v testVolume, evidence volumesv1alpha1.EvidenceType) {
	n.t.Helper()
	n.changeEntry(v, func(e *volumesv1alpha1.NodeAttachment) {
		e.State, e.DetachedTime = volumesv1alpha1.AttachmentDetaching, ptr.To(metav1.Now())
		e.Evidence = &volumesv1alpha1.DetachEvidence{Type: evidence, Message: "test", Time: metav1.Now()}
	})
}

// observes waits until the agent has reported on the present spec.
func (n *node) observes() *volumesv1alpha1.NodeVolumeState {
	n.t.Helper()
	n.changeState(func(s *volumesv1alpha1.NodeVolumeState) { s.Spec.Protocol.Fences++ })
	return n.state("observed", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return s.Status.ObservedGeneration == s.Generation
	})
}

func testReplacedMachine(t *testing.T, c *cluster) {
	first, v, i := c.used(t)
	second := first.other(secondUUID, secondID)
	second.start()
	second.carried(v, firstUUID, firstID)
	second.release(i)
	if line := handshake.VolumeOf(second.observes(), v.name()); line == nil || !line.InUse || line.Machine == nil {
		t.Errorf("line of volume %s after its intent was deleted: %+v, want it in use by the first machine", v.name(), line)
	}
	second.unfinalize(i)
	again := second.want(v, "again")
	second.condition(again, volumesv1alpha1.ConditionStaged, volumesv1alpha1.ReasonAnotherMachine)
	second.untouched()
	second.forceAway(v, volumesv1alpha1.EvidenceOutOfServiceTaint)
	second.gone(v)
	second.attach(v, "uid-2")
	second.ready(again)
	s := second.state("of one machine", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return meta.IsStatusConditionTrue(s.Status.Conditions, volumesv1alpha1.ConditionSameMachine)
	})
	if line := handshake.VolumeOf(s, v.name()); line == nil || line.Machine != nil || line.AttachmentUID != "uid-2" {
		t.Errorf("line of volume %s: %+v, want one of the second machine under uid-2", v.name(), line)
	}
}

func testDeclaredOfOtherMachine(t *testing.T, c *cluster) {
	first, v, _ := c.used(t)
	second := first.other(secondUUID, secondID)
	second.start()
	second.carried(v, firstUUID, firstID)
	second.changeState(func(s *volumesv1alpha1.NodeVolumeState) {
		s.Annotations = map[string]string{volumesv1alpha1.DeclaredReleasedPrefix + "uid-1": "scrapped"}
	})
	if handshake.VolumeOf(second.observes(), v.name()) == nil {
		t.Errorf("volume %s has no line while its attachment is not detached, want it in use by the first machine", v.name())
	}
	second.changeEntry(v, func(e *volumesv1alpha1.NodeAttachment) {
		e.State, e.DetachedTime = volumesv1alpha1.AttachmentDetaching, ptr.To(metav1.Now())
	})
	second.gone(v)
	second.untouched()
}

func testTimedOutOtherMachine(t *testing.T, c *cluster) {
	first, v, _ := c.used(t)
	second := first.other(secondUUID, secondID)
	second.start()
	for _, evidence := range []volumesv1alpha1.EvidenceType{volumesv1alpha1.EvidenceForcedAfterTimeout,
		volumesv1alpha1.EvidenceNodeGone} {
		second.forceAway(v, evidence)
		if handshake.VolumeOf(second.observes(), v.name()) == nil {
			t.Errorf("volume %s has no line after a detach on %s, want it in use by the first machine", v.name(), evidence)
		}
	}
	second.carried(v, firstUUID, firstID)
	second.untouched()
}

func testReinstalledMachine(t *testing.T, c *cluster) {
	first, v, i := c.used(t)
	again := first.other(firstUUID, secondID)
	again.start()
	again.release(i)
	again.intentGone(i, v)
	again.gone(v)
}

func testClonedMachine(t *testing.T, c *cluster) {
	first, v, _ := c.used(t)
	clone := first.other(secondUUID, firstID)
	records := record.Paths{Root: clone.root}.Records()
	clone.must(os.CopyFS(records, os.DirFS(record.Paths{Root: first.root}.Records())))
	clone.start()
	clone.carried(v, firstUUID, firstID)
}

func testUseWithoutMachine(t *testing.T, c *cluster) {
	first, v, _ := c.used(t)
	s := first.state("any", func(*volumesv1alpha1.NodeVolumeState) bool { return true })
	s.Status.Machine = volumesv1alpha1.MachineIdentity{}
	first.must(first.client.Status().Update(t.Context(), s))
	first.changeLease(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = &first.name })
	first.start()
	s = first.state("of a machine", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return s.Status.Machine.SystemUUID != ""
	})
	if line := handshake.VolumeOf(s, v.name()); line == nil || !line.InUse || line.Machine != nil {
		t.Errorf("line of volume %s: %+v, want it in use by the machine that reports", v.name(), line)
	}
}

func testTwoMachinesAtOnce(t *testing.T, c *cluster) {
	first := c.node(t)
	first.identify(firstUUID, firstID)
	a, v := first.start(), testVolume{handle: "vol"}
	first.attach(v, "uid-1")
	first.ready(first.want(v, "data"))
	first.lease("of the first machine", func(l *coordinationv1.Lease) bool {
		return machine.HolderOf(ptr.Deref(l.Spec.HolderIdentity, "")) == machine.New(firstUUID, firstID)
	})
	second := first.other(secondUUID, secondID)
	b := second.launch(0)
	t.Cleanup(b.stop)
	b.waitsFor(firstUUID, firstID)
	a.kill()
	first.expire()
	b.await()
	second.carried(v, firstUUID, firstID)
	back := first.launch(0)
	t.Cleanup(back.stop)
	back.waitsFor(secondUUID, secondID)
	if s := second.observes(); s.Status.Machine != machine.New(secondUUID, secondID) {
		t.Errorf("machine of the last report: %+v, want the second one", s.Status.Machine)
	}
}

// waitsFor waits for the event that names the machine with the Lease, and checks that the agent has not begun.
func (r *running) waitsFor(uuid, id string) {
	r.node.t.Helper()
	select {
	case e := <-r.events.Events:
		if !strings.Contains(e, volumesv1alpha1.ReasonAnotherMachine) ||
			!strings.Contains(e, machine.New(uuid, id).SystemUUID) {
			r.node.t.Errorf("event of node %s: %s, want that it waits for machine %s", r.node.name, e, uuid)
		}
	case <-r.done:
		r.node.t.Fatalf("agent of node %s ended with %v, want that it waits", r.node.name, r.err)
	case <-time.After(patience):
		r.node.t.Fatalf("agent of node %s reports no wait within %s, want that it waits", r.node.name, patience)
	}
	select {
	case <-r.Started():
		r.node.t.Errorf("agent of node %s is at work, want that it waits", r.node.name)
	default:
	}
}

func testLeaseTaken(t *testing.T, c *cluster) {
	n := c.node(t)
	n.identify(firstUUID, firstID)
	a := n.start()
	n.begun(0)
	n.lease("renewed", func(l *coordinationv1.Lease) bool { return l.Spec.HolderIdentity != nil })
	taken := metav1.NewMicroTime(time.Now().Add(time.Second).Truncate(time.Microsecond))
	n.changeLease(func(l *coordinationv1.Lease) {
		l.Spec.HolderIdentity = ptr.To(machine.Holder(n.name, machine.New(secondUUID, secondID)))
		l.Spec.RenewTime = &taken
	})
	a.cut()
	for e := range a.events.Events {
		if strings.Contains(e, volumesv1alpha1.ReasonAnotherMachine) {
			break
		}
	}
	v := testVolume{handle: "vol"}
	n.attach(v, "uid-1")
	n.want(v, "data")
	n.eventually("the agent sees the entry", func() bool {
		return handshake.AttachmentOf(a.state.Newest(), v.name()) != nil
	})
	if a.state.Confirmed() {
		t.Errorf("the session of node %s goes on although another machine holds its Lease, want its end", n.name)
	}
	select {
	case <-a.done:
		t.Errorf("agent of node %s ended with %v, want that it waits", n.name, a.err)
	default:
	}
	if l := n.lease("any", func(*coordinationv1.Lease) bool { return true }); !taken.Equal(l.Spec.RenewTime) ||
		l.Annotations[volumesv1alpha1.LeaseRestoredAnnotation] != "" {
		t.Errorf("Lease of node %s: %+v with %v, want it as the other machine has left it", n.name, l.Spec, l.Annotations)
	}
	n.changeLease(func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = ptr.To(int32(1)) })
	n.lease("of this machine again", func(l *coordinationv1.Lease) bool {
		return machine.HolderOf(*l.Spec.HolderIdentity) == machine.New(firstUUID, firstID)
	})
}
