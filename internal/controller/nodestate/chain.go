/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package nodestate

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// Point is a NodeVolumeState as its spec was at one time. Each write of the spec makes a new one; those of the status and
// of annotations do not. The zero value is none.
type Point struct {
	UID        types.UID
	Generation int64
}

// PointOf nvs, which may be nil.
func PointOf(nvs *volumesv1alpha1.NodeVolumeState) Point {
	if nvs == nil {
		return Point{}
	}
	return Point{UID: nvs.UID, Generation: nvs.Generation}
}

// Unbroken says whether nobody but this writer has written the spec of nvs since that point, up to nvs itself. A no means that it
// does not know.
func (w *Writer) Unbroken(nvs *volumesv1alpha1.NodeVolumeState, since Point) bool {
	now := PointOf(nvs)
	switch {
	case since.UID == "" || since.Generation == 0 || now.UID != since.UID:
		return false
	case now.Generation == since.Generation:
		return true
	}
	own := w.chains.of(nvs.Name)
	return own.uid == now.UID && own.from <= since.Generation && since.Generation < now.Generation && now.Generation <= own.to
}

// chain is a row of generations of one node's state, each of which but the first this writer has made of the one before.
type chain struct {
	uid      types.UID
	from, to int64
}

// chains are the latest of each node. The zero value is ready to use.
type chains struct {
	mu   sync.Mutex
	last map[string]chain
}

// note that what was known at base was written, and that this made it answer. A write that changes nothing of the spec makes no generation.
func (c *chains) note(node string, base, answer Point) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		c.last = map[string]chain{}
	}
	from := base.Generation
	if own := c.last[node]; own.uid == base.UID && own.to == base.Generation {
		from = own.from
	}
	c.last[node] = chain{uid: answer.UID, from: from, to: answer.Generation}
}

// end the node's chain: what became of a write is not known, or the state is gone.
func (c *chains) end(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.last, node)
}

func (c *chains) of(node string) chain {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last[node]
}
