/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
)

// differences are the places where an object is not as it is wanted, each with what is there instead; nil is nothing.
// What others added is no difference: a field, or an element of a list whose elements have keys.
type differences map[string]any

// differ compares what is wanted with what is there.
func differ(want, have *unstructured.Unstructured) differences {
	found := differences{}
	found.compare(layoutOf(want), "", want.Object, have.Object)
	return found
}

// first is the first place, by name.
func (d differences) first() string {
	return slices.Min(slices.Collect(maps.Keys(d)))
}

// without returns the differences that are not among others.
func (d differences) without(others differences) differences {
	rest := maps.Clone(d)
	maps.DeleteFunc(rest, func(where string, value any) bool {
		other, there := others[where]
		return there && reflect.DeepEqual(value, other)
	})
	return rest
}

// compare adds the differences below a path.
func (d differences) compare(l layout, path string, want, have any) {
	switch want := want.(type) {
	case map[string]any:
		have, _ := have.(map[string]any)
		for name, inner := range want {
			d.compare(l.field(name, inner), path+"."+name, inner, have[name])
		}
		return
	case []any:
		have, _ := have.([]any)
		if l.merged || len(want) == len(have) {
			d.compareElements(l, path, want, have)
			return
		}
	}
	if !reflect.DeepEqual(want, have) {
		d[path] = have
	}
}

func (d differences) compareElements(l layout, path string, want, have []any) {
	for i, inner := range want {
		if !l.merged {
			d.compare(layout{lookup: l.lookup}, fmt.Sprintf("%s[%d]", path, i), inner, have[i])
			continue
		}
		key := l.keyOf(inner)
		where := fmt.Sprintf("%s[%v]", path, key)
		at := slices.IndexFunc(have, func(other any) bool { return reflect.DeepEqual(l.keyOf(other), key) })
		if at < 0 {
			d[where] = nil
			continue
		}
		d.compare(layout{lookup: l.lookup}, where, inner, have[at])
	}
}

// layout of a value. The zero value knows of no keys.
type layout struct {
	// lookup finds the fields of the value, or those of its elements if it is a list.
	lookup strategicpatch.LookupPatchMeta
	// merged lists have several owners. Their elements are known by the field key, or are keys themselves without one.
	merged bool
	key    string
}

// layoutOf a kind is that of its Go type. The lists of a kind that has none here have one owner.
func layoutOf(object *unstructured.Unstructured) layout {
	typed, err := scheme.Scheme.New(object.GroupVersionKind())
	if err != nil {
		return layout{}
	}
	lookup, err := strategicpatch.NewPatchMetaFromStruct(typed)
	if err != nil {
		return layout{}
	}
	return layout{lookup: lookup}
}

// field has the layout of one field with the value.
func (l layout) field(name string, value any) layout {
	if l.lookup == nil {
		return layout{}
	}
	find := l.lookup.LookupPatchMetadataForStruct
	if _, list := value.([]any); list {
		find = l.lookup.LookupPatchMetadataForSlice
	}
	lookup, meta, err := find(name)
	if err != nil { // a map, such as that of labels, has no fields
		return layout{}
	}
	return layout{lookup: lookup, merged: slices.Contains(meta.GetPatchStrategies(), "merge"),
		key: meta.GetPatchMergeKey()}
}

func (l layout) keyOf(element any) any {
	if fields, ok := element.(map[string]any); ok {
		return fields[l.key]
	}
	return element
}
