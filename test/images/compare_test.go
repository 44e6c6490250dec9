/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package images

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hawser-io/hawser/test/csiloop/ledger"
)

// object returns an object without a namespace.
func object(kind, name string, metadata, status map[string]any) unstructured.Unstructured {
	all := map[string]any{"name": name, "resourceVersion": "1", "generation": int64(1)}
	for field, value := range metadata {
		all[field] = value
	}
	return unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind, "metadata": all,
		"status": status}}
}

func TestWhatHawserLeavesBehindIsFound(t *testing.T) {
	node := func(metadata, status map[string]any) unstructured.Unstructured {
		return object("Node", "a", metadata, status)
	}
	before := []unstructured.Unstructured{node(nil, nil), object("PersistentVolume", "v", nil, nil)}
	for _, test := range []struct {
		name string
		now  []unstructured.Unstructured
		want int
	}{
		{"nothing", before, 0},
		{"an object", append(slices.Clone(before), object("Lease", "hawser-manager", nil, nil)), 1},
		{"a label", []unstructured.Unstructured{node(map[string]any{"labels": map[string]any{"x": "y"}}, nil), before[1]}, 1},
		{"an annotation", []unstructured.Unstructured{node(map[string]any{"annotations": map[string]any{"x": "y"}}, nil),
			before[1]}, 1},
		{"a finalizer", []unstructured.Unstructured{before[0],
			object("PersistentVolume", "v", map[string]any{"finalizers": []any{"volumes.hawser.io/x"}}, nil)}, 1},
		{"the attacher's finalizer is upstream's", []unstructured.Unstructured{before[0],
			object("PersistentVolume", "v", map[string]any{"finalizers": []any{"external-attacher/x"}}, nil)}, 0},
		{"a volume of a Node", []unstructured.Unstructured{
			node(nil, map[string]any{"volumesAttached": []any{map[string]any{"name": "v"}}}), before[1]}, 1},
		{"the version of an object is upstream's",
			[]unstructured.Unstructured{node(map[string]any{"resourceVersion": "2"}, nil), before[1]}, 0},
		{"an object that is gone", before[:1], 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			was, is := inventory{}, inventory{}
			check(t, was.add(copies(before)))
			check(t, is.add(copies(test.now)))
			if found := was.compare(is); len(found) != test.want {
				t.Errorf("found %q, want %d differences", found, test.want)
			}
		})
	}
}

func copies(objects []unstructured.Unstructured) []unstructured.Unstructured {
	var all []unstructured.Unstructured
	for i := range objects {
		all = append(all, *objects[i].DeepCopy())
	}
	return all
}

func TestWhatTheDriverDidNotUndoIsFound(t *testing.T) {
	call := func(method, node, stage, target, code string) ledger.Entry {
		return ledger.Entry{Phase: ledger.Effect, Method: method, Node: node, Volume: "v", StagingPath: stage,
			TargetPath: target, Code: code}
	}
	attach, stage := call("ControllerPublishVolume", "a", "", "", "OK"), call("NodeStageVolume", "a", "/s", "", "OK")
	publish := call("NodePublishVolume", "a", "/s", "/t", "OK")
	unpublish, unstage := call("NodeUnpublishVolume", "a", "", "/t", "OK"), call("NodeUnstageVolume", "a", "/s", "", "OK")
	detach := call("ControllerUnpublishVolume", "a", "", "", "OK")
	for name, test := range map[string]struct {
		entries []ledger.Entry
		want    []string
	}{
		"everything is undone":           {[]ledger.Entry{attach, stage, publish, unpublish, unstage, detach}, nil},
		"a call that failed did nothing": {[]ledger.Entry{call("NodeStageVolume", "a", "/s", "", "Internal")}, nil},
		"a stage": {[]ledger.Entry{attach, stage, publish, unpublish, detach},
			[]string{"NodeStageVolume of v on a at /s"}},
		"a publication": {[]ledger.Entry{attach, stage, publish, unstage, detach},
			[]string{"NodePublishVolume of v on a at /t"}},
		"an attachment of another node": {[]ledger.Entry{attach, call("ControllerUnpublishVolume", "b", "", "", "OK")},
			[]string{"ControllerPublishVolume of v on a at "}},
		"an undo that failed": {[]ledger.Entry{attach, call("ControllerUnpublishVolume", "a", "", "", "Internal")},
			[]string{"ControllerPublishVolume of v on a at "}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := unfinished(test.entries); !slices.Equal(got, test.want) {
				t.Errorf("not undone: %q, want %q", got, test.want)
			}
		})
	}
}
