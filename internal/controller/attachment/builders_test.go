/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/resolve"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

// on builds one node's facts: a node whose agent has reported, with what the options add.
func on(name string, options ...func(*decision.Node)) *decision.Node {
	n := &decision.Node{Name: name, State: handshake.Node{Exists: true, Reported: true}}
	for _, o := range options {
		o(n)
	}
	return n
}

func wanted(names ...string) func(*decision.Node) {
	return func(n *decision.Node) {
		for _, name := range names {
			n.Wanted = append(n.Wanted, intentNamed(name))
		}
	}
}

func leaving(names ...string) func(*decision.Node) {
	return func(n *decision.Node) {
		for _, name := range names {
			n.Leaving = append(n.Leaving, intentNamed(name))
		}
	}
}

// intentNamed is an intent that resolves. Names sort by age; a name with a star is pinned already.
func intentNamed(name string) *decision.Intent {
	intent := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: strings.TrimSuffix(name, "*")},
	}
	if strings.HasSuffix(name, "*") {
		intent.Status.UniqueVolumeName = "v"
	}
	return &decision.Intent{
		Object: intent, Protected: true, Result: resolve.Result{
			OK: true, Pins: resolve.Pins{VolumeName: "pv"}, Source: volume.SourceOf(persistentVolume()),
		},
	}
}

// persistentVolume is the volume of the intents in the facts.
func persistentVolume() *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"},
		},
	}}
}

func entry(state handshake.State, uid types.UID) func(*decision.Node) {
	return func(n *decision.Node) {
		n.State.Entry = handshake.Entry{State: state, UID: uid}
		e := decision.EntryOf(&decision.Facts{Volume: "v"}, intentNamed("x"))
		e.State, e.AttachmentUID, e.AttachmentName = volumesv1alpha1.AttachmentState(state), uid, "va"
		e.Evidence = &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceAgentReleased}
		if state == handshake.Attached {
			e.Evidence = nil
		}
		n.Entry = &e
	}
}

func forced(n *decision.Node) { n.State.Entry.Forced = true }

func pods(n *decision.Node) { n.Pods = true }

func covered(n *decision.Node) { n.Covered = true }

func missing(n *decision.Node) { n.Missing = true }

func returned(n *decision.Node) { n.Returned = true }

func tainted(n *decision.Node) {
	n.Evidence = &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceOutOfServiceTaint}
}

func inUse(uid types.UID) func(*decision.Node) {
	return func(n *decision.Node) { n.State.Use = handshake.Use{UID: uid, InUse: true} }
}

// va adds an attachment; how is any of held, attached, terminating, name (held by our finalizer) and unpublished.
func va(uid types.UID, how ...string) func(*decision.Node) {
	return func(n *decision.Node) {
		is := func(s string) bool { return slices.Contains(how, s) }
		n.Attachments = append(n.Attachments,
			decision.Attachment{Name: "va-" + string(uid), Held: is("held"), Attachment: handshake.Attachment{
				Exists: true, UID: uid, Attached: is("attached"), Terminating: is("terminating"), NameHeld: is("name"),
				Unpublished: is("unpublished"),
			}})
	}
}

func lockOn(node string) handshake.Lock { return handshake.Lock{Exists: true, Holder: node} }

func describeStep(s decision.Step) string {
	d := fmt.Sprintf("%s %s", s.Act, s.Node.Name)
	if s.Attachment != nil {
		d += " " + string(s.Attachment.UID)
	}
	for _, i := range s.Intents {
		d += " " + i.Object.Name
	}
	if s.Evidence {
		d += " on evidence"
	}
	return d
}

// electAndDecide is one round of a pass.
func electAndDecide(f *decision.Facts, p handshake.Protocol) []decision.Step {
	decision.KeepOneUser(f)
	return decision.Decide(f, p)
}
