/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package exclusive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/batch"
	"github.com/hawser-io/hawser/internal/controller/inflight"
)

// +kubebuilder:rbac:groups="",resources=configmaps,namespace=hawser-system,verbs=get;list;watch;create;update

// commitTimeout bounds one group's write with its reruns; what did not make it is tried again with backoff.
const commitTimeout = 30 * time.Second

const (
	// mostLocks is up to which size a ConfigMap takes new locks, in bytes. The API server takes 1 MiB.
	mostLocks = 768 << 10
	// longestLock is what the line of a lock takes beside the volume's name.
	longestLock = 1 << 10
)

// ErrFull: the ConfigMap of the lock has as many locks as it takes.
var ErrFull = errors.New("no more locks of exclusive volumes fit into the ConfigMap of this one")

// Store is the only reader and writer of locks.
type Store struct {
	// Client writes, and reads from the cache.
	Client client.Client
	// Reader reads live.
	Reader client.Reader
	Clock  clock.PassiveClock

	newest  newest
	batches batch.Batches[*request]
	reads   *batch.Reads[table]
}

// New makes a store. Each of its writes holds one of the slots.
func New(c client.Client, reader client.Reader, now clock.PassiveClock, slots *inflight.Limiter) *Store {
	s := &Store{Client: c, Reader: reader, Clock: now, batches: batch.Batches[*request]{Limiter: slots}}
	// A caller may read a lock live within a write of something else, whose slot it has.
	s.reads = batch.NewReads(nil, func(ctx context.Context, name string) (table, error) {
		_, t, err := s.load(ctx, name)
		return t, err
	})
	return s
}

// request to put next in place of old.
type request struct {
	volume    string
	old, next Lock

	done    chan struct{}
	stands  Lock
	swapped bool
	err     error
}

// Known is the newest lock that is known here, as the cache has it or as it was last written.
func (s *Store) Known(ctx context.Context, volumeName string) (Lock, error) {
	_, t, err := s.known(ctx, Key(volumeName).Name)
	return t.Locks[volumeName], err
}

// Read reads the lock live, together with other callers.
func (s *Store) Read(ctx context.Context, volumeName string) (Lock, error) {
	t, err := s.reads.Get(ctx, Key(volumeName).Name)
	return t.Locks[volumeName], err
}

// Swap puts next in place of old; the zero Lock means none in both. It reports whether it did, and returns what
// is there: if old was not there any more, that was read live. The caller need not fill in when and with which
// write; while it waits, its slot is lent.
func (s *Store) Swap(ctx context.Context, volumeName string, old, next Lock) (Lock, bool, error) {
	r := &request{volume: volumeName, old: old, next: next, done: make(chan struct{})}
	s.batches.Add(Key(volumeName).Name, r, s.commit)
	if err := inflight.Await(ctx, r.done); err != nil {
		return Lock{}, false, err
	}
	return r.stands, r.swapped, r.err
}

// commit writes one group: upon the newest version that is known here and, where the API server knows a newer one,
// upon what is read live.
func (s *Store) commit(name string, group []*request) {
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	err := s.write(ctx, name, group)
	for _, r := range group {
		if err != nil { // otherwise a request may have one of its own
			r.stands, r.swapped, r.err = Lock{}, false, err
		}
		close(r.done)
	}
}

func (s *Store) write(ctx context.Context, name string, group []*request) error {
	object, t, err := s.known(ctx, name)
	for live := false; err == nil; live = true {
		t.Locks = maps.Clone(t.Locks)
		room := mostLocks
		if object != nil {
			room -= len(object.Data[dataKey])
		}
		if s.apply(&t, group, room) {
			if err = s.send(ctx, name, object, t); !outdated(object, err) || ctx.Err() != nil {
				return err
			}
		} else if live {
			return nil
		}
		// Where nothing was written, nothing proves either that what was known is still there.
		object, t, err = s.load(ctx, name)
	}
	return err
}

// outdated: the object is not what the write was based on. Where there was no object it is the namespace that is not
// found.
func outdated(object *corev1.ConfigMap, err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || object != nil && apierrors.IsNotFound(err)
}

// apply makes the changes of the group, and reports whether there were any. New locks take what room there is: one that
// does not fit must not keep the others of the group from being moved and removed.
func (s *Store) apply(t *table, group []*request, room int) bool {
	t.Writes++
	changed := false
	now := s.Clock.Now().UTC().Format(time.RFC3339)
	for _, r := range group {
		r.err = nil
		if _, there := t.Locks[r.volume]; !there && r.next != (Lock{}) {
			if room -= len(r.volume) + longestLock; room < 0 {
				r.stands, r.swapped, r.err = Lock{}, false, ErrFull
				continue
			}
		}
		r.stands, r.swapped = t.swap(r.volume, r.old, r.next, now)
		changed = changed || r.swapped
	}
	return changed
}

// send writes the table at the version of object, or creates it where that is nil.
func (s *Store) send(ctx context.Context, name string, object *corev1.ConfigMap, t table) error {
	data, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("encoding the locks of %s: %w", name, err)
	}
	next := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: key(name).Namespace, Name: name, Labels: map[string]string{volumesv1alpha1.ExclusiveLocksLabel: "true"},
	}}
	if object != nil {
		next = object.DeepCopy()
	}
	next.Data = map[string]string{dataKey: string(data)}
	if object == nil {
		err = s.Client.Create(ctx, next)
	} else {
		err = s.Client.Update(ctx, next)
	}
	if err != nil {
		return fmt.Errorf("writing the locks of %s: %w", name, err)
	}
	parsed.put(client.ObjectKeyFromObject(next), next.Data[dataKey], t)
	s.newest.wrote(next, t)
	return nil
}

// load reads a ConfigMap live; nil when there is none.
func (s *Store) load(ctx context.Context, name string) (*corev1.ConfigMap, table, error) {
	object := &corev1.ConfigMap{}
	err := s.Reader.Get(ctx, key(name), object)
	if apierrors.IsNotFound(err) {
		return nil, table{}, nil
	}
	if err != nil {
		return nil, table{}, fmt.Errorf("reading the locks of %s: %w", name, err)
	}
	t, err := parse(object)
	return object, t, err
}

// known is the newest version that is known here; nil when there is none. The caller must not change it.
func (s *Store) known(ctx context.Context, name string) (*corev1.ConfigMap, table, error) {
	cached := &corev1.ConfigMap{}
	err := s.Client.Get(ctx, key(name), cached)
	if apierrors.IsNotFound(err) {
		object := s.newest.get(name)
		t, err := parse(object)
		return object, t, err
	}
	if err != nil {
		return nil, table{}, fmt.Errorf("reading the locks of %s: %w", name, err)
	}
	return s.newest.of(cached)
}
