/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package survey

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hawser-io/hawser/internal/explain/facts"
)

// Moment is something that happened to a volume.
type Moment struct {
	Time   time.Time `json:"time"`
	Object string    `json:"object"`
	What   string    `json:"what"`
}

// History is the timeline of a volume, the oldest moment first: what its objects record, the evidence of detaches, and
// the events of its objects. Events of the node states count if they name the volume.
func History(f *facts.Facts, events map[facts.Ref][]facts.Event) []Moment {
	v := &f.Volumes[0]
	moments := []Moment{}
	note := func(at time.Time, object, format string, args ...any) {
		if !at.IsZero() {
			moments = append(moments, Moment{at.UTC(), object, fmt.Sprintf(format, args...)})
		}
	}
	note(v.Volume.Value.CreationTimestamp.Time, v.Volume.Ref.String(), "created")
	for i := range v.Elsewhere.Items {
		va := &v.Elsewhere.Items[i]
		note(va.CreationTimestamp.Time, facts.KindAttachment+" "+va.Name, "created for node %s", va.Spec.NodeName)
	}
	intentMoments(v, note)
	nodeMoments(f, v, note)
	for ref, list := range events {
		for _, e := range list {
			if ref.Kind != facts.KindState || names(v, e.Message) {
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

// names reports whether the text is about the volume.
func names(v *facts.Volume, text string) bool {
	return strings.Contains(text, v.UniqueName) || strings.Contains(text, v.Volume.Ref.Name)
}

func intentMoments(v *facts.Volume, note func(time.Time, string, string, ...any)) {
	for i := range v.Intents.Items {
		intent := &v.Intents.Items[i]
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
}

func nodeMoments(f *facts.Facts, v *facts.Volume, note func(time.Time, string, string, ...any)) {
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
