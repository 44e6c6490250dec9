/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package batch

import (
	"slices"
	"testing"

	"github.com/hawser-io/hawser/internal/controller/inflight"
)

func TestARequestDuringTheWaitForASlotIsPartOfThatCommit(t *testing.T) {
	b := Batches[int]{Limiter: inflight.New(1)}
	groups := make(chan []int)
	leave := b.Limiter.Take()
	for i := range 3 {
		b.Add("key", i, func(_ string, group []int) { groups <- group })
	}
	leave()
	if group := <-groups; !slices.Equal(group, []int{0, 1, 2}) {
		t.Errorf("first commit of key: %v, want 0, 1 and 2", group)
	}
	b.Limiter.Take()()
}

func TestKeysDoNotWaitForEachOther(t *testing.T) {
	var b Batches[int]
	begun, goOn := make(chan string), make(chan struct{})
	for _, key := range []string{"a", "b"} {
		b.Add(key, 1, func(key string, _ []int) { begun <- key; <-goOn })
	}
	if keys := []string{<-begun, <-begun}; keys[0] == keys[1] {
		t.Errorf("commits at the same time: %v, want one of each key", keys)
	}
	close(goOn)
}
