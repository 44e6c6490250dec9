/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package exclusive keeps the locks of exclusive volumes: for each, the one node on which it may be usable.
//
// A lock is written by compare-and-swap, so that of two processes one is first. One ConfigMap holds many locks:
// those of volumes that come at once are written together.
package exclusive

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/install"
)

// parts is over how many ConfigMaps the locks are spread. The fewer, the more volumes share a write; the more, the
// less is written with each. It is part of the format: a process with another number would search for a lock where
// there is none.
const parts = 128

// dataKey is where a ConfigMap has its locks.
const dataKey = "locks.json"

// Key of the ConfigMap that has the volume's lock.
func Key(volumeName string) client.ObjectKey {
	sum := sha256.Sum256([]byte(volumeName))
	return key(fmt.Sprintf("%s%02x", volumesv1alpha1.ExclusiveLocksPrefix, sum[0]%parts))
}

func key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: install.Namespace(), Name: name}
}

// Lock of one volume as it was written. The zero value is none.
type Lock struct {
	// Holder is the node that has it; empty for no node.
	Holder string `json:"node,omitempty"`
	// MovedFrom is the node that had it before, as long as that is not fenced.
	MovedFrom string `json:"movedFrom,omitempty"`
	// User is the one intent that may use a volume for a single user; zero for other volumes, and in lines of older
	// managers, which drop it when they write.
	User User `json:"user,omitzero"`
	// Since is when Holder got it, in RFC 3339.
	Since string `json:"since,omitempty"`
	// Write is the number of the write that made the lock what it is: one that was moved away and back is not the same.
	Write int64 `json:"write"`
}

// User is an intent, with its name for readers of the line.
type User struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// Handshake is the lock as the protocol sees it.
func (c Lock) Handshake() handshake.Lock {
	return handshake.Lock{Exists: c != Lock{}, Holder: c.Holder, MovedFrom: c.MovedFrom, User: c.User.UID}
}

// table is the content of one ConfigMap.
type table struct {
	// Writes counts them.
	Writes int64 `json:"writes"`
	// Locks by the unique name of the volume.
	Locks map[string]Lock `json:"locks,omitempty"`
	// byNode has the volumes of each node; nil where nothing was read.
	byNode func() map[string][]string
}

// Locks in the ConfigMap by the unique name of their volume; none where it is nil.
func Locks(object *corev1.ConfigMap) (map[string]Lock, error) {
	t, err := parse(object)
	return t.Locks, err
}

// ByNode returns the volumes whose locks in the ConfigMap name a node, as their holder or as the one before it.
func ByNode(object *corev1.ConfigMap) (map[string][]string, error) {
	t, err := parse(object)
	if err != nil || t.byNode == nil {
		return nil, err
	}
	return t.byNode(), nil
}

func volumesByNode(locks map[string]Lock) map[string][]string {
	volumes := map[string][]string{}
	for name, lock := range locks {
		for _, node := range []string{lock.Holder, lock.MovedFrom} {
			if node != "" {
				volumes[node] = append(volumes[node], name)
			}
		}
	}
	return volumes
}

func parse(object *corev1.ConfigMap) (table, error) {
	if object == nil || object.Data[dataKey] == "" {
		return table{}, nil
	}
	key, data := client.ObjectKeyFromObject(object), object.Data[dataKey]
	if t, ok := parsed.get(key, data); ok {
		return t, nil
	}
	var t table
	if err := json.Unmarshal([]byte(data), &t); err != nil {
		return t, &UnreadableError{key.String(), err}
	}
	return parsed.put(key, data, t), nil
}

// UnreadableError means that the content of a ConfigMap cannot be read. No volume whose lock is in it is attached or
// moved until that is repaired.
type UnreadableError struct {
	// ConfigMap is its namespace and name.
	ConfigMap string
	Err       error
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("the locks of exclusive volumes in ConfigMap %s cannot be read: %v", e.ConfigMap, e.Err)
}

func (e *UnreadableError) Unwrap() error { return e.Err }

// swap puts next, written now, in place of old if old is there. It reports whether it did, and what is there then.
func (t *table) swap(volumeName string, old, next Lock, now string) (Lock, bool) {
	stands := t.Locks[volumeName]
	if stands != old {
		return stands, false
	}
	if next == (Lock{}) {
		delete(t.Locks, volumeName)
		return next, true
	}
	if next.Since = old.Since; next.Holder != old.Holder {
		next.Since = now
	}
	next.Write = t.Writes
	if t.Locks == nil {
		t.Locks = map[string]Lock{}
	}
	t.Locks[volumeName] = next
	return next, true
}
