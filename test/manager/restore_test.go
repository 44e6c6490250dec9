/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/node"
)

// TestRestores shows what a manager believes when the API may be of the past. That a real etcd is restored is in
// test/e2e.
func TestRestores(t *testing.T) {
	for _, s := range []struct {
		name     string
		scenario func(*testing.T, *world)
	}{
		{"nothing is detached from a node before its agent reports", nothingIsDetachedBeforeTheAgentReports},
		{"a session waits for unreachable agents until an administrator excuses their nodes",
			aSessionWaitsForUnreachableAgents},
		{"a volume in use on another node is detached before a session is confirmed",
			aVolumeInUseOnAnotherNodeIsDetachedFirst},
		{"a session names the volume that two nodes use and waits until one does not", aSessionNamesTheVolumeThatTwoNodesUse},
	} {
		t.Run(s.name, func(t *testing.T) { s.scenario(t, newWorld(t)) })
	}
}

// session has the agent of the node begin one.
func (w *world) session(t *testing.T, node string, number int64) {
	t.Helper()
	state := until(t, w, stateOf(node), "the state is there", exists)
	w.changeStatus(t, state, func() { state.Status.Protocol.Session, state.Status.Protocol.Reports = number, number })
}

func (w *world) confirmed(t *testing.T, node string, session int64) *volumesv1alpha1.NodeVolumeState {
	t.Helper()
	return until(t, w, stateOf(node), "session "+strconv.FormatInt(session, 10)+" is confirmed",
		func(s *volumesv1alpha1.NodeVolumeState) bool {
			return s.Spec.Protocol.ConfirmedSession == session
		})
}

func nothingIsDetachedBeforeTheAgentReports(t *testing.T, w *world) {
	_, stop := w.manage(t, managerOptions{})
	a := w.node(t, "dumb")
	w.node(t, "other")
	w.volume(t, "dumb", volumeOptions{})
	w.volume(t, "dumb-next", volumeOptions{})
	x := w.wantAttached(t, "", "dumb", "dumb", "dumb")
	x.awaitAttached(t)
	stop()
	a.stop()
	x.drop(t)

	_, stop = w.manage(t, managerOptions{})
	defer stop()
	// Both say that the manager has reconciled the node, and the volume.
	next := w.intent(t, "dumb-next", "dumb", "dumb-next")
	w.reason(t, next, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonWaitingForAgent)
	elsewhere := w.intent(t, "dumb-elsewhere", "other", "dumb")
	w.reason(t, elsewhere, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeInUse)
	w.stillThere(t, "dumb", "dumb")
	w.keepRenewing(t, "dumb")
	x.awaitDetached(t)
	w.attached(t, next)
	w.attached(t, elsewhere)
}

func aSessionWaitsForUnreachableAgents(t *testing.T, w *world) {
	c := newStepClock()
	w.manage(t, managerOptions{clock: c})
	w.node(t, "speaks")
	w.bareNode(t, "windows") // no agent can run there, so no session waits for one
	windows := until(t, w, nodeNamed("windows"), "it is there", exists)
	w.changeStatus(t, windows, func() { windows.Status.NodeInfo.OperatingSystem = "windows" })
	until(t, w, stateOf("windows"), "the state is there", exists)
	outOfService := corev1.Taint{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}
	excuse := func(name, restore string) {
		state := until(t, w, stateOf(name), "the state is there", exists)
		w.change(t, state, func() {
			metav1.SetMetaDataAnnotation(&state.ObjectMeta, volumesv1alpha1.ExcusedFromRestoreAnnotation, restore)
		})
	}
	for silent, leaves := range map[string]func(*corev1.Node){
		"excused": func(n *corev1.Node) { excuse(n.Name, "this-restore") },
		"deleted": func(n *corev1.Node) { w.delete(t, n) },
	} {
		w.bareNode(t, silent)
		until(t, w, stateOf(silent), "the state is there", exists)
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: volumesv1alpha1.InstallNamespace, Name: volumesv1alpha1.AgentLeasePrefix + "speaks",
		}}
		until(t, w, lease, "the agent's Lease is there", exists)
		w.change(t, lease, func() {
			metav1.SetMetaDataAnnotation(&lease.ObjectMeta, volumesv1alpha1.LeaseRestoredAnnotation, "true")
			metav1.SetMetaDataAnnotation(&lease.ObjectMeta, volumesv1alpha1.LeaseRestoreIDAnnotation, "this-restore")
		})
		excuse(silent, "an-earlier-restore") // a backup may contain it, and the taint
		off := until(t, w, nodeNamed(silent), "it is there", exists)
		w.change(t, off, func() { off.Spec.Taints = append(off.Spec.Taints, outOfService) })
		before := w.state(t, "speaks").Spec.Protocol.ConfirmedSession
		w.session(t, "speaks", before+5)
		if note := w.awaitEvent(t, "speaks", node.EventWaitingForAgents); !strings.Contains(note, "restored from a backup") ||
			!strings.Contains(note, volumesv1alpha1.ExcusedFromRestoreAnnotation+"=this-restore") {
			t.Errorf("event of node state speaks: %q; want that the API server was restored from a backup, and what excuses "+
				"a node from that", note)
		}
		c.advance(time.Hour)
		w.session(t, "speaks", before+6)
		mark := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "before-" + silent + "-leaves"}}
		w.create(t, mark)
		leaves(nodeNamed(silent))
		confirmed := w.confirmed(t, "speaks", before+6)
		if version(t, confirmed.ResourceVersion) < version(t, mark.ResourceVersion) {
			t.Errorf("session of node speaks was confirmed at version %s, want it after node %s was gone, at version %s",
				confirmed.ResourceVersion, silent, mark.ResourceVersion)
		}
	}
}

func version(t *testing.T, s string) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("resourceVersion %q: error %v, want a number", s, err)
	}
	return v
}

func (w *world) state(t *testing.T, node string) *volumesv1alpha1.NodeVolumeState {
	t.Helper()
	return until(t, w, stateOf(node), "the state is there", exists)
}

func aVolumeInUseOnAnotherNodeIsDetachedFirst(t *testing.T, w *world) {
	_, stop := w.manage(t, managerOptions{})
	w.node(t, "was-there")
	w.bareNode(t, "is-there")
	w.keepRenewing(t, "is-there")
	w.volume(t, "moved", volumeOptions{})
	x := w.wantAttached(t, "", "moved", "moved", "was-there")
	x.awaitAttached(t)
	other := w.state(t, "is-there")
	stop()

	// The API server is restored: it has forgotten that the volume has moved, but the node where it is in use reports it.
	w.changeStatus(t, other, func() {
		other.Status.Protocol.ObservedUID, other.Status.BootID, other.Status.Protocol.Reports = other.UID, "boot-1", 1
		other.Status.Volumes = []volumesv1alpha1.NodeVolume{
			{VolumeName: uniqueName("moved"), AttachmentUID: "forgotten", InUse: true},
		}
	})
	w.session(t, "was-there", 7)
	_, stop = w.manage(t, managerOptions{})
	defer stop()
	if e := entryIn(w.confirmed(t, "was-there", 7), "moved"); e.State == volumesv1alpha1.AttachmentAttached {
		t.Errorf("entry of volume moved in the confirmed session of node was-there: %s; want it not Attached", dump(e))
	}
	gone(t, w, attachmentOf("moved", "was-there"))
	x.awaitCondition(t, metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeInUse)

	w.changeStatus(t, other, func() { other.Status.Volumes, other.Status.Protocol.Reports = nil, 2 })
	x.awaitAttached(t)
}

func aSessionNamesTheVolumeThatTwoNodesUse(t *testing.T, w *world) {
	_, stop := w.manage(t, managerOptions{})
	reporter := w.node(t, "one")
	w.bareNode(t, "another")
	w.keepRenewing(t, "another")
	w.volume(t, "both", volumeOptions{})
	x := w.wantAttached(t, "", "both", "both", "one")
	x.awaitAttached(t)
	reporter.stop() // what it reports is written below
	w.keepRenewing(t, "one")
	one, another := w.state(t, "one"), w.state(t, "another")
	stop()

	// A driver that knows no attach keeps no two nodes apart, and the kubelets have asked no controller.
	w.changeStatus(t, another, func() {
		another.Status.Protocol.ObservedUID, another.Status.BootID, another.Status.Protocol.Reports = another.UID, "boot-1", 1
		another.Status.Volumes = []volumesv1alpha1.NodeVolume{
			{VolumeName: uniqueName("both"), InUse: true, PublishedBy: volumesv1alpha1.PublisherKubelet},
		}
	})
	w.changeStatus(t, one, func() {
		one.Status.Volumes = []volumesv1alpha1.NodeVolume{
			{VolumeName: uniqueName("both"), AttachmentUID: entryIn(one, "both").AttachmentUID, InUse: true},
		}
	})
	w.session(t, "one", 7)
	_, stop = w.manage(t, managerOptions{})
	defer stop()
	if note := w.awaitEvent(t, "one", node.EventVolumeInUse); !strings.Contains(note,
		uniqueName("both")+" is in use on node another") {
		t.Errorf("event of node state one: %q; want volume both in use on node another", note)
	}
	w.changeStatus(t, another, func() { another.Status.Volumes, another.Status.Protocol.Reports = nil, 2 })
	w.confirmed(t, "one", 7)
}
