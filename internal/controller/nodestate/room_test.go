/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package nodestate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// entryIn adds an entry of the namespace, of about four KiB.
func entryIn(namespace, name string) Mutation {
	return func(context.Context, *volumesv1alpha1.NodeVolumeState) (Change, error) {
		return func(nvs *volumesv1alpha1.NodeVolumeState) {
			nvs.Spec.Attachments = append(nvs.Spec.Attachments, volumesv1alpha1.NodeAttachment{
				VolumeName: namespace + "-" + name, Namespace: namespace, FSType: strings.Repeat("x", 3600),
				State: volumesv1alpha1.AttachmentAttached,
			})
		}, nil
	}
}

// fill adds entries of the namespace, many at a time, until one is refused. It returns how many there are.
func fill(t *testing.T, w *Writer, namespace string) int {
	t.Helper()
	const together = 20
	for filled := 0; filled < 2*SizeLimit/4096; {
		errs := make([]error, together)
		for k := range together {
			go func() {
				_, errs[k] = w.Apply(t.Context(), node, entryIn(namespace, fmt.Sprint(filled+k)))
			}()
		}
		synctest.Wait()
		for _, err := range errs {
			switch {
			case err == nil:
				filled++
			case !errors.Is(err, ErrShare):
				t.Fatalf("adding entries of namespace %s: error %v, want none or %v", namespace, err, ErrShare)
			}
		}
		if errs[together-1] != nil {
			return filled
		}
	}
	t.Fatalf("namespace %s fills the node state and is never refused", namespace)
	return 0
}

func TestANamespaceThatFillsANodeLeavesRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := writer(t, nil)
		var filled []int
		for _, namespace := range []string{"first", "second", "third"} {
			filled = append(filled, fill(t, w, namespace))
		}
		if filled[0] < 100 || filled[1] < filled[0]/4 || filled[2] < filled[1]/4 {
			t.Errorf("namespaces that fill the node state have %v entries, want at least a quarter of the one before", filled)
		}
		if _, err := w.Apply(t.Context(), node, entryIn("victim", "data")); err != nil {
			t.Errorf("an entry of a namespace that has none, beside three that fill the node: error %v, want none", err)
		}
		// One of the three lets go of what it has, and the others find room.
		_, err := w.Apply(t.Context(), node, func(context.Context, *volumesv1alpha1.NodeVolumeState) (Change, error) {
			return func(nvs *volumesv1alpha1.NodeVolumeState) {
				for i := range nvs.Spec.Attachments {
					if nvs.Spec.Attachments[i].Namespace == "first" {
						nvs.Spec.Attachments[i].State = volumesv1alpha1.AttachmentDetaching
					}
				}
			}, nil
		})
		if err != nil {
			t.Errorf("marking the entries of one namespace Detaching on a full node: error %v, want none", err)
		}
	})
}

func TestTheShareOfANamespace(t *testing.T) {
	state := func(namespaces ...string) *volumesv1alpha1.NodeVolumeState {
		nvs := &volumesv1alpha1.NodeVolumeState{}
		for i, namespace := range namespaces {
			nvs.Spec.Attachments = append(nvs.Spec.Attachments, volumesv1alpha1.NodeAttachment{
				VolumeName: fmt.Sprint(i), Namespace: namespace, FSType: strings.Repeat("x", SizeLimit/5),
				State: volumesv1alpha1.AttachmentAttached})
		}
		return nvs
	}
	for _, c := range []struct {
		name      string
		was, next *volumesv1alpha1.NodeVolumeState
		want      error
	}{
		{"two fifths are nobody's business", state("a"), state("a", "a"), nil},
		{"three fifths are more than is free", state("a", "a"), state("a", "a", "a"), ErrShare},
		{"a fifth of another namespace beside two", state("a", "a"), state("a", "a", "b"), nil},
		{"a second one of it, for there is a fifth left", state("a", "a", "b"), state("a", "a", "b", "b"), ErrShare},
		{"a third namespace", state("a", "a", "b"), state("a", "a", "b", "c"), ErrShare},
		{"entries of an earlier version count for none", state("", "", ""), state("", "", "", ""), nil},
		{"a state beyond the limit", state("a", "b", "c", "d"), state("a", "b", "c", "d", "e"), ErrTooLarge},
		{"nothing new", state("a", "a", "a", "a", "a"), state("a", "a", "a", "a"), nil},
	} {
		if got := refusal(c.was, c.next); !errors.Is(got, c.want) || c.want == nil && got != nil {
			t.Errorf("%s: refused with %v, want %v; %d bytes are free", c.name, got, c.want, SizeLimit-Size(c.next))
		}
	}
}
