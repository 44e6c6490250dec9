/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller"
	"github.com/hawser-io/hawser/internal/handshake"
)

// TestReplace runs every scenario of mode Replace on one control plane, one manager at a time.
func TestReplace(t *testing.T) {
	w := newWorld(t)
	for _, s := range []struct {
		name     string
		scenario func(*testing.T, *world)
	}{
		{"a pod's volume is listed for the kubelet and unlisted after it", aPodsVolumeIsListedForTheKubeletAndUnlisted},
		{"a volume that the kubelet reports in use stays attached", aVolumeThatTheKubeletReportsInUseStaysAttached},
		{"a mount that the kubelet forgot but the agent sees keeps the volume attached",
			aMountThatTheKubeletForgotKeepsTheVolumeAttached},
		{"nothing is deleted before the agent has checked", nothingIsDeletedBeforeTheAgentsCheck},
		{"an attachment of upstream is adopted unchanged", anAttachmentOfUpstreamIsAdoptedUnchanged},
		{"an attachment that upstream left is detached", anAttachmentThatUpstreamLeftIsDetached},
		{"a failed attachment of upstream is detached", aFailedAttachmentOfUpstreamIsDetached},
		{"an attach that upstream began for a built-in plugin is finished for its pod, and undone without one",
			anAttachOfUpstreamForABuiltInPluginIsFinishedOrUndone},
		{"an attachment to an unmanaged node is left alone", anAttachmentToAnUnmanagedNodeIsLeftAlone},
		{"a volume that is listed but not attached is unlisted", aVolumeThatIsListedButNotAttachedIsUnlisted},
		{"an intent's volume is never listed", anIntentsVolumeIsNeverListed},
		{"nothing is detached while the node's list cannot be written", nothingIsDetachedWhileTheNodesListCannotBeWritten},
		{"the volumes of a node out of service are unlisted and detached", aNodeOutOfServiceIsUnlisted},
		{"the next manager writes the boot of an unlisting if the one that unlisted dies",
			theNextManagerWritesTheBootOfAnUnlisting},
		{"a pod's volume is forced away from a node that is not Ready after the time for pods",
			aPodsVolumeIsForcedAwayAfterTheTimeForPods},
		{"without a time for pods no volume is forced away from a node that is not Ready",
			withoutATimeForPodsNoVolumeIsForcedAway},
		{"an exclusive volume follows its pod to another node", anExclusiveVolumeFollowsItsPod},
		{"pods and intents keep their volumes through a switch of modes and back",
			podsAndIntentsKeepTheirVolumesThroughASwitchOfModes},
		{"the claim of an intent is removed after a switch", aClaimOfAnIntentIsRemovedAfterASwitchToReplace},
		{"the next manager continues after a death at any write", theNextManagerContinuesForPodsAfterADeathAtAnyWrite},
	} {
		t.Run(s.name, func(t *testing.T) { s.scenario(t, w) })
	}
}

var replace = managerOptions{attachMode: controller.Replace}

func nodeNamed(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// lists reports whether the Node lists the claim's volume as attached.
func lists(node *corev1.Node, claim string) bool {
	return slices.ContainsFunc(node.Status.VolumesAttached, func(v corev1.AttachedVolume) bool {
		return v.Name == corev1.UniqueVolumeName(uniqueName(claim))
	})
}

func (w *world) listed(t *testing.T, node, claim string) {
	t.Helper()
	until(t, w, nodeNamed(node), "node "+node+" lists "+claim, func(n *corev1.Node) bool { return lists(n, claim) })
}

func (w *world) notListed(t *testing.T, node, claim string) {
	t.Helper()
	until(t, w, nodeNamed(node), "node "+node+" does not list "+claim, func(n *corev1.Node) bool {
		return !lists(n, claim)
	})
}

// kubeletUses sets what the kubelet says it uses.
func (w *world) kubeletUses(t *testing.T, node string, claims ...string) {
	t.Helper()
	n := nodeNamed(node)
	w.changeStatus(t, n, func() {
		n.Status.VolumesInUse = nil
		for _, c := range claims {
			n.Status.VolumesInUse = append(n.Status.VolumesInUse, corev1.UniqueVolumeName(uniqueName(c)))
		}
	})
}

// entryState waits until the node's entry for the claim's volume is in this state; empty for none.
func (w *world) entryState(
	t *testing.T, node, claim string, state volumesv1alpha1.AttachmentState,
) *volumesv1alpha1.NodeAttachment {
	t.Helper()
	var entry *volumesv1alpha1.NodeAttachment
	until(t, w, stateOf(node), "the entry of "+claim+" on "+node+" is "+string(state),
		func(nvs *volumesv1alpha1.NodeVolumeState) bool {
			entry = handshake.AttachmentOf(nvs, uniqueName(claim))
			return entry == nil && state == "" || entry != nil && entry.State == state
		})
	return entry
}

func aPodsVolumeIsListedForTheKubeletAndUnlisted(t *testing.T, w *world) {
	requests, stop := w.manage(t, replace)
	defer stop()
	w.managedNode(t, "plain")
	w.volume(t, "plain", volumeOptions{})
	p := w.pod(t, "plain", "plain", "plain")
	w.listed(t, "plain", "plain")
	until(t, w, attachmentOf("plain", "plain"), "the attachment is held", held)
	w.kill(t, p)
	gone(t, w, attachmentOf("plain", "plain"))
	w.entryState(t, "plain", "plain", "")
	w.notListed(t, "plain", "plain")
	// A DELETE of the intent is sent again, in vain, if the intent goes while a pass is between its read and its delete.
	again := max(0, requests.count("DELETE volumeattachmentintents")-1)
	if n, seen := requests.writes(); n-again > 13 || again > 1 {
		t.Errorf("%d writes to attach and detach volume plain, want at most 13: %s", n, seen)
	}
}

func nothingIsDetachedWhileTheNodesListCannotBeWritten(t *testing.T, w *world) {
	api := &refusals{what: "PATCH nodes/status", tried: make(chan struct{})}
	o := replace
	o.transport = api.transport
	_, stop := w.manage(t, o)
	defer stop()
	w.managedNode(t, "unwritten")
	w.volume(t, "unwritten", volumeOptions{})
	p := w.pod(t, "unwritten", "unwritten", "unwritten")
	w.listed(t, "unwritten", "unwritten")
	api.on.Store(true)
	w.kill(t, p)
	// It is tried again, and again in vain.
	for range 3 {
		select {
		case <-api.tried:
		case <-time.After(patience):
			t.Fatalf("the manager did not try to write the list of Node unwritten within %s, want it to retry", patience)
		}
	}
	until(t, w, attachmentOf("unwritten", "unwritten"), "it is attached", held)
	w.listed(t, "unwritten", "unwritten")
	api.on.Store(false)
	gone(t, w, attachmentOf("unwritten", "unwritten"))
	w.notListed(t, "unwritten", "unwritten")
}

func aVolumeThatTheKubeletReportsInUseStaysAttached(t *testing.T, w *world) {
	_, stop := w.manage(t, replace)
	defer stop()
	w.managedNode(t, "inuse")
	w.volume(t, "inuse", volumeOptions{})
	p := w.pod(t, "inuse", "inuse", "inuse")
	w.listed(t, "inuse", "inuse")
	w.kubeletUses(t, "inuse", "inuse")
	w.kill(t, p)
	// A second volume's whole life is time enough for the first one's detach.
	w.volume(t, "inuse-2", volumeOptions{})
	q := w.pod(t, "inuse-2", "inuse", "inuse-2")
	w.listed(t, "inuse", "inuse-2")
	w.kill(t, q)
	gone(t, w, attachmentOf("inuse-2", "inuse"))
	until(t, w, attachmentOf("inuse", "inuse"), "it is attached", held)
	w.entryState(t, "inuse", "inuse", volumesv1alpha1.AttachmentAttached)
	w.listed(t, "inuse", "inuse")
	w.kubeletUses(t, "inuse")
	gone(t, w, attachmentOf("inuse", "inuse"))
}

func aMountThatTheKubeletForgotKeepsTheVolumeAttached(t *testing.T, w *world) {
	_, stop := w.manage(t, replace)
	defer stop()
	a := w.managedNode(t, "forgot")
	w.volume(t, "forgot", volumeOptions{})
	p := w.pod(t, "forgot", "forgot", "forgot")
	w.listed(t, "forgot", "forgot")
	// The kubelet mounts it; the agent is slow to see that, and the kubelet, restarted, does not list it in use.
	a.set(func() { a.skipsChecks = true })
	w.kill(t, p)
	entry := w.entryState(t, "forgot", "forgot", volumesv1alpha1.AttachmentDetaching)
	w.notListed(t, "forgot", "forgot")
	a.set(func() { a.skipsChecks, a.mounted = false, map[string]bool{uniqueName("forgot"): true} })
	until(t, w, stateOf("forgot"), "the agent has looked", func(nvs *volumesv1alpha1.NodeVolumeState) bool {
		n := handshake.NodeOf(nvs, uniqueName("forgot"))
		return n.Looked && n.Use.InUse
	})
	w.volume(t, "forgot-2", volumeOptions{})
	q := w.pod(t, "forgot-2", "forgot", "forgot-2")
	w.listed(t, "forgot", "forgot-2")
	w.kill(t, q)
	gone(t, w, attachmentOf("forgot-2", "forgot"))
	va := until(t, w, attachmentOf("forgot", "forgot"), "it is there", exists)
	if va.DeletionTimestamp != nil || va.UID != entry.AttachmentUID {
		t.Errorf("attachment %s, which is mounted: %s; want it kept, UID %s", va.Name, dump(va), entry.AttachmentUID)
	}
	a.set(func() { a.mounted = nil })
	gone(t, w, attachmentOf("forgot", "forgot"))
}

func nothingIsDeletedBeforeTheAgentsCheck(t *testing.T, w *world) {
	_, stop := w.manage(t, replace)
	defer stop()
	a := w.managedNode(t, "look")
	w.volume(t, "look", volumeOptions{})
	p := w.pod(t, "look", "look", "look")
	w.listed(t, "look", "look")
	a.set(func() { a.skipsChecks = true })
	w.kill(t, p)
	w.notListed(t, "look", "look")
	until(t, w, stateOf("look"), "the agent is asked to look", func(nvs *volumesv1alpha1.NodeVolumeState) bool {
		e := handshake.AttachmentOf(nvs, uniqueName("look"))
		return e != nil && e.Protocol.UnlistedGeneration == nvs.Generation
	})
	until(t, w, attachmentOf("look", "look"), "it is not deleted", held)
	a.set(func() { a.skipsChecks = false })
	gone(t, w, attachmentOf("look", "look"))
}

func anAttachmentOfUpstreamIsAdoptedUnchanged(t *testing.T, w *world) {
	a := w.managedNode(t, "over")
	w.volume(t, "over", volumeOptions{})
	va := upstreamAttachment("", "over", "over")
	w.create(t, va)
	until(t, w, va, "upstream's attachment is attached", func(va *storagev1.VolumeAttachment) bool {
		return va.Status.Attached
	})
	uid := va.UID
	n := nodeNamed("over")
	w.changeStatus(t, n, func() {
		n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: corev1.UniqueVolumeName(uniqueName("over"))}}
	})
	w.kubeletUses(t, "over", "over")
	a.set(func() { a.mounted = map[string]bool{uniqueName("over"): true} })
	p := w.pod(t, "over", "over", "over")
	_, stop := w.manage(t, replace)
	defer stop()
	entry := w.entryState(t, "over", "over", volumesv1alpha1.AttachmentAttached)
	until(t, w, va, "it is held", held)
	if va.UID != uid || entry.AttachmentUID != uid {
		t.Errorf("attachment UID %s, in the entry %s; want that of upstream's, %s", va.UID, entry.AttachmentUID, uid)
	}
	w.listed(t, "over", "over")
	w.kill(t, p)
	a.set(func() { a.mounted = nil })
	w.kubeletUses(t, "over")
	gone(t, w, va)
}

func anAttachmentThatUpstreamLeftIsDetached(t *testing.T, w *world) {
	w.managedNode(t, "left")
	w.volume(t, "left", volumeOptions{})
	va := upstreamAttachment("", "left", "left")
	w.create(t, va)
	_, stop := w.manage(t, replace)
	defer stop()
	gone(t, w, va)
	w.entryState(t, "left", "left", "")
}

// aFailedAttachmentOfUpstreamIsDetached: an attachment that says that it is not attached may be.
func aFailedAttachmentOfUpstreamIsDetached(t *testing.T, w *world) {
	w.managedNode(t, "tried")
	w.volume(t, "tried", volumeOptions{})
	w.attacher.set("pv-tried", "rpc error: code = DeadlineExceeded", false)
	va := upstreamAttachment("", "tried", "tried")
	w.create(t, va)
	until(t, w, va, "the attacher has failed", func(va *storagev1.VolumeAttachment) bool {
		return va.Status.AttachError != nil
	})
	w.attacher.set("pv-tried", "", true)
	_, stop := w.manage(t, replace)
	defer stop()
	until(t, w, va, "the attacher is to detach it", terminating)
	w.attacher.set("pv-tried", "", false)
	gone(t, w, va)
	w.notListed(t, "tried", "tried")
	w.entryState(t, "tried", "tried", "")
}

func anAttachmentToAnUnmanagedNodeIsLeftAlone(t *testing.T, w *world) {
	w.node(t, "own")
	w.managedNode(t, "own-2")
	w.volume(t, "own", volumeOptions{})
	w.volume(t, "own-2", volumeOptions{})
	va, other := upstreamAttachment("", "own", "own"), upstreamAttachment("", "own-2", "own-2")
	w.create(t, va, other)
	_, stop := w.manage(t, replace)
	defer stop()
	gone(t, w, other)
	until(t, w, va, "it is untouched", released)
	w.delete(t, va)
	gone(t, w, va)
}

func aVolumeThatIsListedButNotAttachedIsUnlisted(t *testing.T, w *world) {
	w.managedNode(t, "ghost")
	w.volume(t, "ghost", volumeOptions{})
	n := nodeNamed("ghost")
	w.changeStatus(t, n, func() {
		n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: corev1.UniqueVolumeName(uniqueName("ghost"))}}
	})
	_, stop := w.manage(t, replace)
	defer stop()
	w.notListed(t, "ghost", "ghost")
	w.entryState(t, "ghost", "ghost", "")
}

func anIntentsVolumeIsNeverListed(t *testing.T, w *world) {
	_, stop := w.manage(t, replace)
	defer stop()
	w.managedNode(t, "agents")
	w.volume(t, "agents", volumeOptions{})
	intent := w.intent(t, "agents", "agents", "agents")
	until(t, w, intent, "the intent is Ready", isReady)
	w.notListed(t, "agents", "agents")
	before := until(t, w, nodeNamed("agents"), "the node is there", exists).ResourceVersion
	w.delete(t, intent)
	gone(t, w, attachmentOf("agents", "agents"))
	w.entryState(t, "agents", "agents", "")
	after := until(t, w, nodeNamed("agents"), "the node is there", exists)
	if after.ResourceVersion == before || after.Annotations["volumes.hawser.io/unlistings"] != "1" {
		t.Errorf("annotations of the Node after the unlisting: %v; want unlistings 1, so that earlier listings conflict",
			after.Annotations)
	}
}

func aNodeOutOfServiceIsUnlisted(t *testing.T, w *world) {
	_, stop := w.manage(t, replace)
	defer stop()
	a := w.managedNode(t, "dead")
	w.managedNode(t, "alive")
	w.volume(t, "dead", volumeOptions{})
	p := w.pod(t, "dead", "dead", "dead")
	w.listed(t, "dead", "dead")
	w.kubeletUses(t, "dead", "dead")
	a.set(func() { a.mounted = map[string]bool{uniqueName("dead"): true} })
	until(t, w, stateOf("dead"), "the agent sees the mount", func(nvs *volumesv1alpha1.NodeVolumeState) bool {
		return handshake.NodeOf(nvs, uniqueName("dead")).Use.InUse
	})
	w.powersOff(t, a)
	n := nodeNamed("dead")
	w.change(t, n, func() {
		n.Spec.Taints = []corev1.Taint{
			{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute, Value: "nodeshutdown"},
		}
	})
	w.kill(t, p)
	w.notListed(t, "dead", "dead")
	entry := w.entryState(t, "dead", "dead", volumesv1alpha1.AttachmentDetaching)
	if entry.Evidence.Type != volumesv1alpha1.EvidenceOutOfServiceTaint {
		t.Errorf("evidence of the detach of volume dead: %s; want OutOfServiceTaint", entry.Evidence.Type)
	}
	w.pod(t, "dead-2", "alive", "dead")
	w.listed(t, "alive", "dead")
}

// theNextManagerWritesTheBootOfAnUnlisting also while a pod waits on the node, so that the kubelet lists the
// volume in use. Without the boot nothing shows a reboot, and the pod waits without end.
func theNextManagerWritesTheBootOfAnUnlisting(t *testing.T, w *world) {
	var away, unlisted atomic.Bool
	g := newGate(func(what, name string) bool {
		if away.Load() && what == "PATCH nodes/status" && name == "unlisted" {
			unlisted.Store(true)
		}
		return unlisted.Load() && what == "PUT nodevolumestates" && name == "unlisted"
	})
	_, stop := w.manage(t, managerOptions{attachMode: controller.Replace, transport: g.transport})
	a := w.managedNode(t, "unlisted")
	n := nodeNamed("unlisted")
	w.changeStatus(t, n, func() { n.Status.NodeInfo.BootID = "boot-1" })
	w.volume(t, "unlisted", volumeOptions{})
	p := w.pod(t, "unlisted", "unlisted", "unlisted")
	w.listed(t, "unlisted", "unlisted")
	w.kubeletUses(t, "unlisted", "unlisted")
	a.set(func() { a.mounted = map[string]bool{uniqueName("unlisted"): true} })
	until(t, w, stateOf("unlisted"), "the agent sees the mount", func(nvs *volumesv1alpha1.NodeVolumeState) bool {
		return handshake.NodeOf(nvs, uniqueName("unlisted")).Use.InUse
	})
	w.powersOff(t, a)
	away.Store(true)
	w.change(t, n, func() {
		n.Spec.Taints = []corev1.Taint{
			{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute, Value: "nodeshutdown"},
		}
	})
	w.kill(t, p)
	select {
	case <-g.held:
	case <-time.After(patience):
		t.Fatalf("the manager did not try to write the boot of the unlisting to node state unlisted within %s, want it",
			patience)
	}
	stop()
	w.notListed(t, "unlisted", "unlisted")

	_, stop = w.manage(t, replace)
	defer stop()
	until(t, w, stateOf("unlisted"), "the boot is written", func(nvs *volumesv1alpha1.NodeVolumeState) bool {
		entry := handshake.AttachmentOf(nvs, uniqueName("unlisted"))
		return entry != nil && entry.Protocol.UnlistedBootID == "boot-1"
	})
}

func anExclusiveVolumeFollowsItsPod(t *testing.T, w *world) {
	_, stop := w.manage(t, replace)
	defer stop()
	w.managedNode(t, "from")
	w.managedNode(t, "to")
	w.volume(t, "moves", volumeOptions{})
	p := w.pod(t, "moves", "from", "moves")
	w.listed(t, "from", "moves")
	w.kubeletUses(t, "from", "moves")
	q := w.pod(t, "moves-2", "to", "moves")
	w.kill(t, p)
	w.kubeletUses(t, "from")
	w.listed(t, "to", "moves")
	if n := until(t, w, nodeNamed("from"), "the node is there", exists); lists(n, "moves") {
		t.Errorf("Node from lists %v, want it without volume moves, which Node to lists", n.Status.VolumesAttached)
	}
	w.kill(t, q)
	gone(t, w, attachmentOf("moves", "to"))
}

func podsAndIntentsKeepTheirVolumesThroughASwitchOfModes(t *testing.T, w *world) {
	a := w.managedNode(t, "switch")
	w.volume(t, "switch-pod", volumeOptions{})
	w.volume(t, "switch-intent", volumeOptions{})
	// Coexist: the pod's attachment is upstream's, the intent's is ours.
	_, stop := w.manage(t, managerOptions{})
	intent := w.intent(t, "switch", "switch", "switch-intent")
	until(t, w, intent, "the intent is Ready", isReady)
	pods, ours := upstreamAttachment("", "switch-pod", "switch"), attachmentOf("switch-intent", "switch")
	w.create(t, pods)
	until(t, w, ours, "the intent's attachment is held", held)
	until(t, w, pods, "upstream's is attached", func(va *storagev1.VolumeAttachment) bool { return va.Status.Attached })
	podsUID, oursUID := pods.UID, ours.UID
	n := nodeNamed("switch")
	w.changeStatus(t, n, func() {
		n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: corev1.UniqueVolumeName(uniqueName("switch-pod"))}}
	})
	w.kubeletUses(t, "switch", "switch-pod")
	a.set(func() { a.mounted = map[string]bool{uniqueName("switch-pod"): true} })
	p := w.pod(t, "switch", "switch", "switch-pod")
	stop()

	_, stop = w.manage(t, replace)
	w.entryState(t, "switch", "switch-pod", volumesv1alpha1.AttachmentAttached)
	until(t, w, pods, "the pod's attachment is held", held)
	stop()

	_, stop = w.manage(t, managerOptions{})
	defer stop()
	intents := &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := w.client.List(t.Context(), intents); err != nil {
		t.Fatal(err)
	}
	for i := range intents.Items {
		if in := &intents.Items[i]; in.Spec.Publisher == volumesv1alpha1.PublisherKubelet {
			gone(t, w, in)
		}
	}
	for va, uid := range map[*storagev1.VolumeAttachment]string{pods: string(podsUID), ours: string(oursUID)} {
		until(t, w, va, "it is held", held)
		if string(va.UID) != uid {
			t.Errorf("attachment %s has UID %s, want %s, not a new one", va.Name, va.UID, uid)
		}
	}
	w.listed(t, "switch", "switch-pod")
	// The pod is deleted; upstream unlists and, as the hold is off by then, detaches.
	w.kill(t, p)
	w.kubeletUses(t, "switch")
	a.set(func() { a.mounted = nil })
	until(t, w, pods, "the hold is off, the attachment stays", released)
	w.changeStatus(t, n, func() { n.Status.VolumesAttached = nil })
	gone(t, w, pods)
}
