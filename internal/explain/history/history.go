/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package history puts what objects and events record about a subject in order. It is pure.
package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// Moment is something that happened to an object.
type Moment struct {
	Time   time.Time `json:"time"`
	Object string    `json:"object"`
	What   string    `json:"what"`
}

// Of is the timeline of a subject, the oldest moment first: what its objects record, the evidence of detaches, and the
// events of its objects. Events of node states count if they name a volume of the subject, or the node is the subject.
func Of(f *facts.Facts, events map[facts.Ref][]facts.Event) []Moment {
	moments := []Moment{}
	note := func(at time.Time, object, format string, args ...any) {
		m := Moment{at.UTC(), object, fmt.Sprintf(format, args...)}
		if !at.IsZero() && !slices.Contains(moments, m) {
			moments = append(moments, m)
		}
	}
	subjectMoments(f, note)
	for i := range f.Volumes {
		volumeMoments(f, &f.Volumes[i], note)
	}
	for _, intent := range f.Intents() {
		intentMoments(intent, note)
	}
	for ref, list := range events {
		for _, e := range list {
			if ref.Kind != facts.KindState || f.Subject.Kind == facts.KindNode || names(f, e.Message) {
				note(e.Last, ref.String(), "%s: %s", e.Reason, e.Message)
			}
		}
	}
	slices.SortStableFunc(moments, func(a, b Moment) int {
		if n := a.Time.Compare(b.Time); n != 0 {
			return n
		}
		return strings.Compare(a.Object, b.Object)
	})
	return moments
}

// names reports whether the text is about a volume of the subject.
func names(f *facts.Facts, text string) bool {
	return slices.ContainsFunc(f.Volumes, func(v facts.Volume) bool {
		return v.UniqueName != "" && strings.Contains(text, v.UniqueName) ||
			v.Volume.Ref.Name != "" && strings.Contains(text, v.Volume.Ref.Name)
	})
}

// noting adds a moment, unless it has no time.
type noting func(at time.Time, object, format string, args ...any)

// subjectMoments are the creation, the deletion and the conditions of the subject, as far as they have times.
func subjectMoments(f *facts.Facts, note noting) {
	object, conditions := f.Object()
	if object == nil {
		return
	}
	note(object.GetCreationTimestamp().Time, f.Subject.String(), "created")
	if deleted := object.GetDeletionTimestamp(); deleted != nil {
		note(deleted.Time, f.Subject.String(), "deleted")
	}
	for _, c := range conditions {
		note(c.LastTransitionTime.Time, f.Subject.String(), "%s is %s: %s: %s", c.Type, c.Status, c.Reason, c.Message)
	}
}

func volumeMoments(f *facts.Facts, v *facts.Volume, note noting) {
	if v.Volume.Found {
		note(v.Volume.Value.CreationTimestamp.Time, v.Volume.Ref.String(), "created")
	}
	if v.Claim.Found {
		note(v.Claim.Value.CreationTimestamp.Time, v.Claim.Ref.String(), "created")
	}
	if v.Attachment.Found {
		attachmentMoments(v.Attachment.Value, note)
	}
	for i := range v.Elsewhere.Items {
		attachmentMoments(&v.Elsewhere.Items[i], note)
	}
	nodeMoments(f, v, note)
}

func attachmentMoments(va *storagev1.VolumeAttachment, note noting) {
	object := facts.KindAttachment + " " + va.Name
	note(va.CreationTimestamp.Time, object, "created for node %s", va.Spec.NodeName)
	if va.DeletionTimestamp != nil {
		note(va.DeletionTimestamp.Time, object, "deleted")
	}
	if e := va.Status.AttachError; e != nil {
		note(e.Time.Time, object, "attach failed: %s", e.Message)
	}
	if e := va.Status.DetachError; e != nil {
		note(e.Time.Time, object, "detach failed: %s", e.Message)
	}
}

func intentMoments(intent *volumesv1alpha1.VolumeAttachmentIntent, note noting) {
	object := facts.KindIntent + " " + intent.Namespace + "/" + intent.Name
	note(intent.CreationTimestamp.Time, object, "created for node %s", intent.Spec.NodeName)
	if intent.DeletionTimestamp != nil {
		note(intent.DeletionTimestamp.Time, object, "deleted")
	}
	if t := intent.Status.Timeline; t != nil {
		for what, at := range map[string]*metav1.MicroTime{"attached": t.Attached, "staged": t.Staged,
			"published": t.Published} {
			if at != nil {
				note(at.Time, object, "%s", what)
			}
		}
	}
}

func nodeMoments(f *facts.Facts, v *facts.Volume, note noting) {
	for i := range f.Nodes {
		n := &f.Nodes[i]
		if !n.State.Found {
			continue
		}
		for j := range n.State.Value.Spec.Attachments {
			e := &n.State.Value.Spec.Attachments[j]
			if e.VolumeName != v.UniqueName || e.Evidence == nil {
				continue
			}
			note(e.Evidence.Time.Time, n.State.Ref.String(), "detach decided on evidence %s: %s", e.Evidence.Type,
				e.Evidence.Message)
			if e.DetachedTime != nil {
				note(e.DetachedTime.Time, n.State.Ref.String(), "the attachment is gone")
			}
		}
	}
}
