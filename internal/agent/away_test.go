/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

func forceAway(e *volumesv1alpha1.NodeAttachment) {
	e.State = volumesv1alpha1.AttachmentDetaching
	e.Evidence = &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceForcedAfterTimeout, Time: metav1.Now()}
}

func testForcedAway(t *testing.T, c *cluster) {
	n, v, _ := c.attached(t)
	i := n.want(v, "data")
	n.ready(i)
	n.changeEntry(v, forceAway)
	n.gone(v)
	n.nothingLeft()
	if len(n.kernel.shutdowns) != 1 {
		t.Errorf("filesystems of node %s that were shut down: %v, want one", n.name, n.kernel.shutdowns)
	}
	n.intent(i, "not Ready", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return meta.IsStatusConditionFalse(i.Status.Conditions, volumesv1alpha1.ConditionReady) && i.Status.Path == ""
	})
	n.attach(v, "uid-2")
	n.ready(i)
}

func testUnprotected(t *testing.T, c *cluster) {
	n, v, _ := c.attached(t)
	i := n.want(v, "data")
	path := n.ready(i).Status.Path
	n.kernel.setUnsupported(true)
	n.changeEntry(v, forceAway)
	n.state("unprotected", func(s *volumesv1alpha1.NodeVolumeState) bool {
		l := handshake.VolumeOf(s, v.name())
		return l != nil && l.InUse && l.Unprotected && l.Error != nil
	})
	if _, ok := n.kernel.at(path); !ok {
		t.Errorf("nothing is mounted at %s, want it not unmounted, which flushes", path)
	}
	n.condition(i, volumesv1alpha1.ConditionStaged, volumesv1alpha1.ReasonForcedAway)
}

func testBounce(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	i := n.want(v, "data")
	n.ready(i)
	a.stop()
	n.attach(v, "uid-2")
	n.start()
	n.state("the new attachment in use", func(s *volumesv1alpha1.NodeVolumeState) bool {
		l := handshake.VolumeOf(s, v.name())
		return l != nil && l.InUse && l.AttachmentUID == "uid-2" && l.StagedPath != ""
	})
	n.ready(i)
	calls := n.driver.made()
	if k := slices.Index(calls, "unstage vol"); k < 0 || slices.Index(calls[k:], "stage vol") < 0 ||
		len(n.kernel.shutdowns) == 0 {
		t.Errorf("node %s: calls %v and shutdowns %v, want a shutdown, then unstage and stage again", n.name, calls,
			n.kernel.shutdowns)
	}
}

func testEntryGone(t *testing.T, c *cluster) {
	n, v, _ := c.attached(t)
	i := n.want(v, "data")
	path := n.ready(i).Status.Path
	n.changeState(func(s *volumesv1alpha1.NodeVolumeState) { s.Spec.Attachments = nil })
	n.state("an orphan", func(s *volumesv1alpha1.NodeVolumeState) bool {
		l := handshake.VolumeOf(s, v.name())
		return s.Status.Summary.Orphaned == 1 && l != nil && l.InUse
	})
	if _, ok := n.kernel.at(path); !ok {
		t.Errorf("nothing is mounted at %s, want it not unmounted without a command", path)
	}
	n.release(i)
	n.gone(v)
	n.nothingLeft()
}

func testReboot(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	i := n.want(v, "data")
	path := n.ready(i).Status.Path
	a.kill()
	n.kernel.reboot()
	n.setBoot("boot-2")
	b := n.start()
	n.calledTimes("publish vol", 2)
	n.state("the new boot", func(s *volumesv1alpha1.NodeVolumeState) bool { return s.Status.BootID == "boot-2" })
	b.rest()
	if _, ok := n.kernel.at(path); !ok {
		t.Errorf("nothing is mounted at %s after the reboot, want the volume again", path)
	}
	if e := b.recorded(); slices.ContainsFunc(e, func(s string) bool { return strings.Contains(s, "MountLost") }) {
		t.Errorf("events of node %s: %v, want no MountLost after a reboot", n.name, e)
	}
	n.ready(i)
}

func testStateAnew(t *testing.T, c *cluster) {
	n, v, _ := c.attached(t)
	i := n.want(v, "data")
	n.ready(i)
	s := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: n.name}}
	n.must(n.client.Delete(t.Context(), s))
	s = &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: n.name}}
	n.must(n.client.Create(t.Context(), s))
	n.state("the whole report", func(now *volumesv1alpha1.NodeVolumeState) bool {
		l := handshake.VolumeOf(now, v.name())
		return now.Status.Protocol.ObservedUID == s.UID && l != nil && l.InUse && l.AttachmentUID == "uid-1"
	})
	n.attach(v, "uid-1")
	n.grow(v, "3Gi")
	n.condition(i, volumesv1alpha1.ConditionExpanded, volumesv1alpha1.ReasonExpanded)
}

func testTakenBack(t *testing.T, c *cluster) {
	n, v, _ := c.attached(t)
	i := n.want(v, "data")
	got := n.ready(i)
	meta.SetStatusCondition(&got.Status.Conditions, metav1.Condition{
		Type: volumesv1alpha1.ConditionReady, Status: metav1.ConditionUnknown,
		Reason: volumesv1alpha1.ReasonAgentUnreachable,
	})
	n.must(n.client.Status().Update(t.Context(), got))
	n.ready(i)
	for {
		s := &volumesv1alpha1.NodeVolumeState{}
		n.must(n.client.Get(t.Context(), clientKey(n.name), s))
		meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{
			Type: volumesv1alpha1.ConditionReady, Status: metav1.ConditionUnknown,
			Reason: volumesv1alpha1.ReasonAgentUnreachable,
		})
		if n.client.Status().Update(t.Context(), s) == nil {
			break
		}
	}
	n.state("Ready", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return meta.IsStatusConditionTrue(s.Status.Conditions, volumesv1alpha1.ConditionReady)
	})
}

func testLock(t *testing.T, c *cluster) {
	n := c.node(t)
	a := n.start()
	b := n.launch(0)
	t.Cleanup(b.stop)
	v := testVolume{handle: "vol"}
	n.attach(v, "uid-1")
	n.ready(n.want(v, "data"))
	select {
	case <-b.Started():
		t.Fatalf("two agents are at work on node %s, want one", n.name)
	default:
	}
	a.stop()
	b.await()
}

func testUnresolved(t *testing.T, c *cluster) {
	n := c.node(t)
	n.start()
	i := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: n.name + "-data"},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{
			NodeName: n.name,
			Volume: volumesv1alpha1.VolumeSource{
				PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "absent"},
			},
		},
	}
	n.must(n.client.Create(t.Context(), i))
	meta.SetStatusCondition(&i.Status.Conditions, metav1.Condition{
		Type: volumesv1alpha1.ConditionResolved, Status: metav1.ConditionFalse,
		Reason: volumesv1alpha1.ReasonClaimNotFound, Message: "no claim absent",
	})
	n.must(n.client.Status().Update(t.Context(), i))
	got := n.condition(i, volumesv1alpha1.ConditionReady, volumesv1alpha1.ReasonClaimNotFound)
	if got.Status.ObservedGeneration != got.Generation {
		t.Errorf("intent %s: status %+v, want the generation observed", got.Name, got.Status)
	}
}

func testLateState(t *testing.T, c *cluster) {
	n := c.node(t)
	n.must(n.client.Delete(t.Context(), &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: n.name}}))
	a := n.launch(0)
	t.Cleanup(a.stop)
	a.asks(n.name)
	n.must(n.client.Create(t.Context(), &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: n.name}}))
	a.await()
	if _, err := os.Stat(filepath.Join(n.root, "lock")); err != nil {
		t.Errorf("lock file of node %s: error %v, want it there", n.name, err)
	}
}

// testStagedAnew: what the agent had mounted of an attachment is gone, and the kubelet has staged the next one at the
// same place.
func testStagedAnew(anew func(*node)) func(*testing.T, *cluster) {
	return func(t *testing.T, c *cluster) {
		n := c.node(t)
		v, k := testVolume{handle: "vol"}, fakeKubelet{n}
		a := n.start()
		n.attach(v, "uid-1")
		i := n.want(v, "data")
		n.ready(i)
		a.kill()
		n.kernel.reboot()
		anew(n)
		n.attach(v, "uid-2")
		k.stage(v)
		staged, _ := n.kernel.at(filepath.Join(k.stageDir(v), "globalmount"))
		n.start()
		n.state("the new attachment in use", func(s *volumesv1alpha1.NodeVolumeState) bool {
			l := handshake.VolumeOf(s, v.name())
			return l != nil && l.InUse && l.AttachmentUID == "uid-2" && len(l.Publications) == 1
		})
		n.ready(i)
		n.leftAlone(v, k)
		if now, _ := n.kernel.at(filepath.Join(k.stageDir(v), "globalmount")); now.ID != staged.ID {
			t.Errorf("volume %s: mount %d is at its stage, want %d of the kubelet", v.name(), now.ID, staged.ID)
		}
	}
}
