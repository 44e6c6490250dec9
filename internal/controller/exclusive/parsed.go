/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package exclusive

import (
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// parsed has the tables of the newest texts of each ConfigMap. With 100,000 volumes a text has 100 KB, and each volume
// and each node that changes reads some of them. The tables must not be changed.
var parsed memory

// memory of tables by the text that they were parsed from. The zero value is ready to use.
type memory struct {
	mu    sync.Mutex
	texts map[client.ObjectKey][remembered]text
}

// remembered texts of one ConfigMap: a watch shows a version beside the one before it.
const remembered = 2

type text struct {
	data  string
	table table
}

func (m *memory) get(key client.ObjectKey, data string) (table, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, known := range m.texts[key] {
		if known.data == data {
			return known.table, true
		}
	}
	return table{}, false
}

// put remembers the table, and returns it with what is computed of it when that is asked for first.
func (m *memory) put(key client.ObjectKey, data string, t table) table {
	t.byNode = sync.OnceValue(func() map[string][]string { return volumesByNode(t.Locks) })
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.texts == nil {
		m.texts = map[client.ObjectKey][remembered]text{}
	}
	known := m.texts[key]
	copy(known[1:], known[:])
	known[0] = text{data, t}
	m.texts[key] = known
	return t
}
