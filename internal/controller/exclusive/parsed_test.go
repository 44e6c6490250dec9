/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package exclusive

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestTheTwoNewestTextsOfAConfigMapAreNotParsedAgain(t *testing.T) {
	var m memory
	key, other := client.ObjectKey{Name: "a"}, client.ObjectKey{Name: "b"}
	for i, data := range []string{"one", "two", "three"} {
		m.put(key, data, table{Writes: int64(i + 1)})
	}
	for data, want := range map[string]int64{"one": 0, "two": 2, "three": 3} {
		if got, known := m.get(key, data); known != (want > 0) || got.Writes != want {
			t.Errorf("text %q, after two more than which one is forgotten: write %d, known %t; want %d", data, got.Writes, known,
				want)
		}
	}
	if _, known := m.get(other, "three"); known {
		t.Error("a text of another ConfigMap is known, want each to have its own")
	}
}

// TestAWriteChangesNothingThatWasReadBefore: a table that was parsed once is given to all who read it.
func TestAWriteChangesNothingThatWasReadBefore(t *testing.T) {
	a := newAPI(t)
	s, c := process(a)
	first, _ := swap(t, s, "v", Lock{}, Lock{Holder: "a"})
	c.renew(t, "v")
	object := &corev1.ConfigMap{}
	if err := a.Client.Get(t.Context(), Key("v"), object); err != nil {
		t.Fatal(err)
	}
	before, err := Locks(object)
	if err != nil {
		t.Fatal(err)
	}
	was := maps.Clone(before)
	if _, swapped := swap(t, s, "v", first, Lock{Holder: "b", MovedFrom: "a"}); !swapped {
		t.Fatal("the lock was not moved, want it moved")
	}
	again, err := Locks(object)
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(before, was) || !maps.Equal(again, was) {
		t.Errorf("after the lock was moved an earlier version says %v, and read again %v; want %v", before, again, was)
	}
}

func TestTheVolumesOfANodeAreThoseOfTheNewestWrite(t *testing.T) {
	a := newAPI(t)
	s, c := process(a)
	byNode := func() map[string][]string {
		object := &corev1.ConfigMap{}
		if err := a.Client.Get(t.Context(), Key("v"), object); err != nil {
			t.Fatal(err)
		}
		volumes, err := ByNode(object)
		if err != nil {
			t.Fatal(err)
		}
		return volumes
	}
	first, _ := swap(t, s, "v", Lock{}, Lock{Holder: "a"})
	c.renew(t, "v")
	if got := byNode(); len(got) != 1 || !slices.Equal(got["a"], []string{"v"}) {
		t.Errorf("volume v is locked for node a, the nodes have %v", got)
	}
	if _, swapped := swap(t, s, "v", first, Lock{Holder: "b", MovedFrom: "a"}); !swapped {
		t.Fatal("the lock was not moved, want it moved")
	}
	if got := byNode(); len(got) != 2 || !slices.Equal(got["a"], []string{"v"}) || !slices.Equal(got["b"], []string{"v"}) {
		t.Errorf("the lock of volume v was moved from node a to b, the nodes have %v, want it of both", got)
	}
	if got, err := ByNode(nil); len(got) != 0 || err != nil {
		t.Errorf("no ConfigMap has %v, %v; want no volumes", got, err)
	}
}
