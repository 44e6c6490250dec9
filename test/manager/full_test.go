/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller"
)

// want is a volume that is wanted on a node and that nothing there uses: only the intent or, in Replace, the pod keeps
// it attached.
type want struct {
	*world
	claim, node string
	intent      *volumesv1alpha1.VolumeAttachmentIntent
	pod         *corev1.Pod
}

func (w *world) wantAttached(t *testing.T, mode controller.AttachMode, name, claim, node string) *want {
	t.Helper()
	x := &want{world: w, claim: claim, node: node}
	if mode == controller.Replace {
		x.pod = w.pod(t, name, node, claim)
		return x
	}
	x.intent = newIntent(name+"-on-"+node, node, claim)
	setOnlyAttached(x.intent)
	w.create(t, x.intent)
	return x
}

// awaitCondition waits until the intent's Attached has this status and reason, and returns its message.
func (x *want) awaitCondition(t *testing.T, value metav1.ConditionStatus, reason string) string {
	t.Helper()
	if x.pod != nil {
		x.intent = x.podIntents(t, x.pod, x.claim)[0]
	}
	return x.reason(t, x.intent, volumesv1alpha1.ConditionAttached, value, reason)
}

// awaitAttached waits until the volume is there, and returns its attachment.
func (x *want) awaitAttached(t *testing.T) *storagev1.VolumeAttachment {
	t.Helper()
	x.awaitCondition(t, metav1.ConditionTrue, volumesv1alpha1.ReasonAttached)
	if x.pod != nil {
		x.listed(t, x.node, x.claim)
	}
	return until(t, x.world, attachmentOf(x.claim, x.node), "it is attached", func(va *storagev1.VolumeAttachment) bool {
		return va.Status.Attached
	})
}

func (x *want) drop(t *testing.T) {
	t.Helper()
	if x.pod != nil {
		x.kill(t, x.pod)
		return
	}
	x.delete(t, x.intent)
}

// awaitDetached waits until nothing of the volume is left on the node.
func (x *want) awaitDetached(t *testing.T) {
	t.Helper()
	gone(t, x.world, attachmentOf(x.claim, x.node))
	x.entryState(t, x.node, x.claim, "")
	x.notListed(t, x.node, x.claim)
}

// attachAndRelease creates an intent for a new volume, deletes it, and waits until the volume is detached. All other
// work that was due for the manager is done by then too.
func (w *world) attachAndRelease(t *testing.T, name, node string) {
	t.Helper()
	w.volume(t, name, volumeOptions{})
	intent := w.intent(t, name, node, name)
	until(t, w, intent, "the intent is Ready", isReady)
	w.delete(t, intent)
	gone(t, w, intent)
	gone(t, w, attachmentOf(name, node))
	w.entryState(t, node, name, "")
}

// disturbances reports what happened to these attachments in a history, which must not affect them. Those that are
// listed must stay listed.
func disturbances(history []apiChange, attachments, listed []*storagev1.VolumeAttachment) []string {
	var wrong []string
	for _, h := range history {
		for _, va := range attachments {
			if what := disturbance(h, va, slices.Contains(listed, va)); what != "" {
				wrong = append(wrong, va.Name+" on "+va.Spec.NodeName+" "+what)
			}
		}
	}
	return slices.Compact(wrong)
}

func disturbance(h apiChange, va *storagev1.VolumeAttachment, listed bool) string {
	switch o := h.object.(type) {
	case *storagev1.VolumeAttachment:
		switch {
		case o.UID != va.UID:
		case h.deleted || o.DeletionTimestamp != nil:
			return "was deleted"
		case !held(o):
			return "lost its hold"
		}
	case *volumesv1alpha1.NodeVolumeState:
		attached := slices.ContainsFunc(o.Spec.Attachments, func(e volumesv1alpha1.NodeAttachment) bool {
			return e.AttachmentUID == va.UID && e.State == volumesv1alpha1.AttachmentAttached
		})
		if o.Name == va.Spec.NodeName && !attached {
			return "lost its entry"
		}
	case *corev1.Node:
		claim := strings.TrimPrefix(*va.Spec.Source.PersistentVolumeName, "pv-")
		if o.Name == va.Spec.NodeName && listed && !lists(o, claim) {
			return "was unlisted"
		}
	}
	return ""
}

// nothingIsDetachedBeforeEveryCacheIsFull: managers start that cannot see one kind of objects each. To any of them
// that did not wait for it something that is wanted would seem to be unwanted.
func nothingIsDetachedBeforeEveryCacheIsFull(t *testing.T, w *world, mode controller.AttachMode) {
	name := "full-" + strings.ToLower(string(mode))
	w.managedNode(t, name)
	w.volume(t, name+"-intent", volumeOptions{})
	w.volume(t, name+"-pod", volumeOptions{})
	_, stop := w.manage(t, replace)
	byIntent := w.wantAttached(t, controller.Coexist, name, name+"-intent", name)
	byPod := w.wantAttached(t, controller.Replace, name, name+"-pod", name)
	attachments := []*storagev1.VolumeAttachment{byIntent.awaitAttached(t), byPod.awaitAttached(t)}
	if mode == controller.Coexist {
		// As after a switch from Replace: the pod alone keeps what was attached for it.
		stop()
		_, stop = w.manage(t, managerOptions{})
		w.podIntents(t, byPod.pod)
	}
	recorder := w.record(t, name+"-sentinel")

	type late struct {
		blocker  *blocker
		requests *requestCounter
		stop     func()
	}
	managers := map[string]late{}
	for _, resource := range resources {
		c := newBlocker(resource)
		requests, _, stop := w.start(t, managerOptions{attachMode: mode, transport: c.transport})
		managers[resource] = late{c, requests, stop}
	}
	for _, m := range managers {
		m.blocker.awaitRequests(t)
	}
	t.Run("another volume is attached and detached meanwhile", func(t *testing.T) {
		w.attachAndRelease(t, name+"-meanwhile", name)
	})
	for resource, m := range managers {
		if resource == "leases" {
			// They are in no cache. A manager that sees no Leases may write, but nothing that harms what is attached.
			continue
		}
		if n, what := m.requests.writes(); n > 0 {
			t.Errorf("the manager without a cache of %s made %d writes, want none: %s", resource, n, what)
		}
	}
	stop()
	for resource, m := range managers {
		m.blocker.unblock()
		w.attachAndRelease(t, name+"-"+resource, name)
		m.stop()
	}
	for _, wrong := range disturbances(recorder.history(t.Context()), attachments, attachments[1:]) {
		t.Errorf("history in %s: %s; want no disturbance", mode, wrong)
	}

	_, stop = w.manage(t, replace)
	defer stop()
	byIntent.drop(t)
	byPod.drop(t)
	byIntent.awaitDetached(t)
	byPod.awaitDetached(t)
}
