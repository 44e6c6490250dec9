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
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/inflight"
)

// api counts what is asked of it.
type api struct {
	client.Client
	mu            sync.Mutex
	reads, writes int
	// first, when not nil, comes before each write.
	first func() error
	// down is the error of each read.
	down error
}

func newAPI(t *testing.T) *api {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	a := &api{}
	write := func() error {
		a.mu.Lock()
		a.writes++
		first := a.first
		a.mu.Unlock()
		if first == nil {
			return nil
		}
		return first()
	}
	a.Client = fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			a.mu.Lock()
			a.reads++
			a.mu.Unlock()
			if a.down != nil {
				return a.down
			}
			return c.Get(ctx, key, o, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := write(); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := write(); err != nil {
				return err
			}
			return c.Update(ctx, o, opts...)
		},
	}).Build()
	return a
}

// cache is what a process sees of the API: as of the last time that it was renewed.
type cache struct {
	client.Client
	seen map[client.ObjectKey]*corev1.ConfigMap
}

func (c *cache) renew(t *testing.T, volumes ...string) {
	t.Helper()
	for _, name := range volumes {
		object := &corev1.ConfigMap{}
		if err := c.Client.Get(t.Context(), Key(name), object); err != nil {
			t.Fatal(err)
		}
		c.seen[Key(name)] = object
	}
}

func (c *cache) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if object := c.seen[key]; object != nil {
		object.DeepCopyInto(o.(*corev1.ConfigMap))
		return nil
	}
	if c.seen == nil {
		return c.Client.Get(ctx, key, o, opts...)
	}
	empty := fake.NewClientBuilder().Build()
	return empty.Get(ctx, key, o)
}

// process is a store with a cache of its own.
func process(a *api) (*Store, *cache) {
	c := &cache{Client: a.Client, seen: map[client.ObjectKey]*corev1.ConfigMap{}}
	return New(c, a.Client, clock.RealClock{}, nil), c
}

func swap(t *testing.T, s *Store, volume string, old, next Lock) (Lock, bool) {
	t.Helper()
	stands, swapped, err := s.Swap(t.Context(), volume, old, next)
	if err != nil {
		t.Fatal(err)
	}
	return stands, swapped
}

// together are so many volumes with their locks in one ConfigMap.
func together(n int) []string {
	names := []string{"v0"}
	for i := 1; len(names) < n; i++ {
		if name := fmt.Sprintf("v%05d", i); Key(name) == Key("v0") {
			names = append(names, name)
		}
	}
	return names
}

func TestOnlyOneOfTwoProcessesTakesALock(t *testing.T) {
	a := newAPI(t)
	one, _ := process(a)
	other, _ := process(a)
	if lock, taken := swap(t, one, "v", Lock{}, Lock{Holder: "a"}); !taken || lock.Holder != "a" || lock.Since == "" ||
		lock.Write != 1 {
		t.Errorf("first lock of volume v: taken %t, %+v; want holder a by write 1", taken, lock)
	}
	if stands, taken := swap(t, other, "v", Lock{}, Lock{Holder: "b"}); taken || stands.Holder != "a" {
		t.Errorf("lock of volume v, held by node a, for node b: taken %t, stored is %+v; want it refused", taken, stands)
	}
}

func TestALockThatCannotBeReadIsNotAFreeOne(t *testing.T) {
	a := newAPI(t)
	a.down = errors.New("the API server is away")
	s, seen := process(a)
	if lock, err := s.Read(t.Context(), "v"); !errors.Is(err, a.down) {
		t.Errorf("lock of volume v: %+v, error %v; want %v", lock, err, a.down)
	}
	seen.seen = nil // so that the cache has no answer either
	if lock, err := s.Known(t.Context(), "v"); !errors.Is(err, a.down) {
		t.Errorf("known lock of volume v: %+v, error %v; want %v", lock, err, a.down)
	}
}

func TestALockThatWasMovedAwayAndBackIsAnotherLock(t *testing.T) {
	a := newAPI(t)
	sleeper, _ := process(a)
	other, _ := process(a)
	first, _ := swap(t, sleeper, "v", Lock{}, Lock{Holder: "a"})
	away, _ := swap(t, other, "v", first, Lock{Holder: "b"})
	back, moved := swap(t, other, "v", away, Lock{Holder: "a"})
	if !moved {
		t.Fatalf("lock of volume v, held by node b, was not moved to node a, want it moved: %+v", back)
	}
	if stands, moved := swap(t, sleeper, "v", first, Lock{Holder: "c"}); moved || stands != back {
		t.Errorf("moving lock %+v of volume v to node c: moved %t, stored is %+v; want it refused and %+v", first, moved,
			stands, back)
	}
}

func TestARefusalIsDecidedOnALiveRead(t *testing.T) {
	a := newAPI(t)
	one, seen := process(a)
	other, _ := process(a)
	lock, _ := swap(t, one, "v", Lock{}, Lock{Holder: "a"})
	seen.renew(t, "v")
	given, _ := swap(t, other, "v", lock, Lock{})
	if (given != Lock{}) {
		t.Fatalf("lock of volume v after it was given up: %+v, want an empty one", given)
	}
	// What is known here, and what is cached, is the lock of a.
	if known, err := one.Known(t.Context(), "v"); err != nil || known != lock {
		t.Fatalf("known lock of volume v: %+v, error %v; want the cached one: %+v", known, err, lock)
	}
	if stands, taken := swap(t, one, "v", Lock{}, Lock{Holder: "b"}); !taken || stands.Holder != "b" {
		t.Errorf("lock of volume v, given up, for node b: taken %t, stored is %+v; want holder b", taken, stands)
	}
}

func TestVolumesWantedAtOnceShareAWriteAndLendTheirSlots(t *testing.T) {
	synctest.Test(t, lockTwenty)
}

func lockTwenty(t *testing.T) {
	a := newAPI(t)
	inFlight, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	a.first = func() error {
		once.Do(func() { close(inFlight); <-goOn })
		return nil
	}
	slots := inflight.New(2)
	s, _ := process(a)
	s.batches.Limiter = slots
	names := together(20)
	var wg sync.WaitGroup
	lock := func(name string) {
		wg.Go(func() {
			if err := slots.Do(t.Context(), func(ctx context.Context) error {
				_, taken, err := s.Swap(ctx, name, Lock{}, Lock{Holder: "a"})
				if !taken {
					err = errors.Join(err, errors.New("not taken"))
				}
				return err
			}); err != nil {
				t.Error(err)
			}
		})
	}
	lock(names[0])
	<-inFlight
	for _, name := range names[1:] {
		lock(name)
	}
	synctest.Wait()
	if n := s.batches.Waiting(Key("v0").Name); n != len(names)-1 {
		t.Errorf("%d locks wait for the second write of their ConfigMap, want %d", n, len(names)-1)
	}
	close(goOn)
	wg.Wait()
	if a.writes != 2 {
		t.Errorf("%d writes for %d locks, of which all but the first waited; want 2", a.writes, len(names))
	}
	for _, name := range names {
		if lock, err := s.Read(t.Context(), name); err != nil || lock.Holder != "a" {
			t.Errorf("lock of volume %s: %+v, error %v; want holder a", name, lock, err)
		}
	}
}

func TestARefusedLockDoesNotDelayTheOthers(t *testing.T) {
	a := newAPI(t)
	one, _ := process(a)
	other, _ := process(a)
	names := together(2)
	swap(t, other, names[0], Lock{}, Lock{Holder: "b"})
	refused := &request{volume: names[0], next: Lock{Holder: "a"}, done: make(chan struct{})}
	taken := &request{volume: names[1], next: Lock{Holder: "a"}, done: make(chan struct{})}
	one.commit(Key(names[0]).Name, []*request{refused, taken})
	if refused.swapped || refused.stands.Holder != "b" || refused.err != nil || !taken.swapped || taken.err != nil {
		t.Errorf("locks of one write: %s is %+v, %s is %+v; want the first refused for holder b, the second taken", names[0],
			refused, names[1], taken)
	}
}

func TestAFailedWriteIsReturnedToAllThatShareIt(t *testing.T) {
	a := newAPI(t)
	s, _ := process(a)
	swap(t, s, "v", Lock{}, Lock{Holder: "a"})
	a.first = func() error { return errors.ErrUnsupported }
	known, err := s.Known(t.Context(), "v")
	if err != nil {
		t.Fatal(err)
	}
	if stands, swapped, err := s.Swap(t.Context(), "v", known,
		Lock{Holder: "b"}); !errors.Is(err, errors.ErrUnsupported) || swapped || stands != (Lock{}) {
		t.Errorf("lock of volume v whose write fails: stored %+v, swapped %t, error %v; want error %v alone", stands, swapped,
			err, errors.ErrUnsupported)
	}
	if now, err := s.Known(t.Context(), "v"); err != nil || now != known {
		t.Errorf("known lock of volume v after a write that failed: %+v, error %v; want %+v", now, err, known)
	}
}

func TestWithoutItsNamespaceAWriteIsNotRepeated(t *testing.T) {
	a := newAPI(t)
	a.first = func() error {
		return apierrors.NewNotFound(corev1.Resource("namespaces"), volumesv1alpha1.InstallNamespace)
	}
	s, _ := process(a)
	if _, taken, err := s.Swap(t.Context(), "v", Lock{}, Lock{Holder: "a"}); taken || !apierrors.IsNotFound(err) ||
		a.writes != 1 {
		t.Errorf("lock of volume v without its namespace: taken %t after %d writes, error %v; want not found after 1", taken,
			a.writes, err)
	}
}

func TestAConfigMapDeletedBeforeTheWatchReportedItIsCreatedAgain(t *testing.T) {
	a := newAPI(t)
	s, seen := process(a)
	lock, _ := swap(t, s, "v", Lock{}, Lock{Holder: "a"})
	seen.renew(t, "v")
	if err := a.Client.Delete(t.Context(), seen.seen[Key("v")].DeepCopy()); err != nil {
		t.Fatal(err)
	}
	if stands, moved := swap(t, s, "v", lock, Lock{Holder: "b"}); moved || stands != (Lock{}) {
		t.Errorf("lock of volume v, whose ConfigMap was deleted: moved %t, stored is %+v; want it refused and none", moved,
			stands)
	}
	if _, taken := swap(t, s, "v", Lock{}, Lock{Holder: "b"}); !taken {
		t.Error("lock of volume v, whose ConfigMap was deleted, was not taken, want it taken")
	}
}

func TestAnUnreadableConfigMapIsNotOverwritten(t *testing.T) {
	a := newAPI(t)
	broken := &corev1.ConfigMap{Data: map[string]string{dataKey: "{"}}
	broken.Namespace, broken.Name = Key("v").Namespace, Key("v").Name
	if err := a.Client.Create(t.Context(), broken); err != nil {
		t.Fatal(err)
	}
	s, _ := process(a)
	if _, taken, err := s.Swap(t.Context(), "v", Lock{}, Lock{Holder: "a"}); taken || err == nil ||
		!strings.Contains(err.Error(), broken.Name) {
		t.Errorf("lock of volume v in a broken ConfigMap: taken %t, error %v; want an error that names %s", taken, err,
			broken.Name)
	}
}

func TestOnlyAChangeByAnotherClientEnqueuesItsVolume(t *testing.T) {
	a := newAPI(t)
	one, seen := process(a)
	other, _ := process(a)
	names := together(3)
	var before *corev1.ConfigMap
	changed := func() []string {
		t.Helper()
		seen.renew(t, names[0])
		after := seen.seen[Key(names[0])]
		volumes, err := one.Changed(before, after)
		if err != nil {
			t.Fatal(err)
		}
		before = after
		return volumes
	}
	first, _ := swap(t, one, names[0], Lock{}, Lock{Holder: "a"})
	if woken := changed(); len(woken) > 0 {
		t.Errorf("volumes that the manager's own write wakes: %v, want none", woken)
	}
	swap(t, other, names[1], Lock{}, Lock{Holder: "b"})
	swap(t, one, names[2], Lock{}, Lock{Holder: "c"})
	if woken := changed(); !slices.Equal(woken, names[1:2]) {
		t.Errorf("volumes that another client's lock wakes: %v, want %s", woken, names[1])
	}
	swap(t, other, names[0], first, Lock{})
	if woken := changed(); !slices.Equal(woken, names[:1]) {
		t.Errorf("volumes that the end of a lock wakes: %v, want %s", woken, names[0])
	}
	// A manager that starts checks every lock once.
	again, _ := process(a)
	if woken, err := again.Changed(nil, before); err != nil || !slices.Equal(woken, names[1:]) {
		t.Errorf("volumes that a new manager's first change wakes: %v, error %v; want %v", woken, err, names[1:])
	}
}

func TestADeletedConfigMapIsForgotten(t *testing.T) {
	a := newAPI(t)
	s, seen := process(a)
	swap(t, s, "v", Lock{}, Lock{Holder: "a"})
	seen.renew(t, "v")
	object := seen.seen[Key("v")]
	if err := a.Client.Delete(t.Context(), object.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	delete(seen.seen, Key("v"))
	if woken, err := s.Changed(object, nil); err != nil || !slices.Equal(woken, []string{"v"}) {
		t.Errorf("volumes that the deleted ConfigMap wakes: %v, error %v; want v", woken, err)
	}
	if known, err := s.Known(t.Context(), "v"); err != nil || known != (Lock{}) {
		t.Errorf("known lock of volume v after its ConfigMap was deleted: %+v, error %v; want an empty one", known, err)
	}
}

func TestLocksWithAndWithoutAUserAreReadByOldAndNewManagers(t *testing.T) {
	user := User{Namespace: "default", Name: "data", UID: "uid"}
	line, err := json.Marshal(Lock{Holder: "a", MovedFrom: "b", User: user, Since: "then", Write: 7})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"node":"a","movedFrom":"b","user":{"namespace":"default","name":"data","uid":"uid"},` +
		`"since":"then","write":7}`
	if string(line) != want {
		t.Errorf("lock of node a is written as\n%s, want\n%s", line, want)
	}
	var old struct {
		Holder    string `json:"node,omitempty"`
		MovedFrom string `json:"movedFrom,omitempty"`
		Since     string `json:"since,omitempty"`
		Write     int64  `json:"write"`
	}
	if err := json.Unmarshal(line, &old); err != nil || old.Holder != "a" || old.MovedFrom != "b" || old.Write != 7 {
		t.Errorf("lock as an older manager reads it: %+v, error %v; want holder a, moved from b, write 7", old, err)
	}
	var lock Lock
	if err := json.Unmarshal([]byte(`{"node":"a","since":"then","write":7}`), &lock); err != nil ||
		lock != (Lock{Holder: "a", Since: "then", Write: 7}) {
		t.Errorf("lock that an older manager wrote: %+v, error %v; want holder a, then, write 7 and no user", lock, err)
	}
	if line, err := json.Marshal(lock); err != nil || strings.Contains(string(line), "user") {
		t.Errorf("lock without a user is written as %s, error %v; want no user in it", line, err)
	}
}

func TestTheConfigMapOfALockDoesNotChange(t *testing.T) {
	// A process that searched elsewhere would not find the locks of the others.
	if key := Key("kubernetes.io/csi/loop.csi.hawser.io^vol-1"); key.Namespace != volumesv1alpha1.InstallNamespace ||
		key.Name != "hawser-exclusive-locks-14" {
		t.Errorf("ConfigMap of the lock of vol-1: %s, want %s/hawser-exclusive-locks-14", key,
			volumesv1alpha1.InstallNamespace)
	}
}

// The names of volumes decide on the ConfigMap, so one author may fill one with many volumes.
func TestAFullConfigMapTakesNoNewLocksAndMovesThoseThatItHas(t *testing.T) {
	a := newAPI(t)
	s := New(a, a, clock.RealClock{}, nil)
	const mine = "kubernetes.io/csi/d^mine"
	full := table{Locks: map[string]Lock{mine: {Holder: "a", Write: 1}, "gone": {Holder: "a", Write: 1}}}
	for k := 0; len(full.Locks)*350 < mostLocks; k++ {
		full.Locks[fmt.Sprintf("crowd-%s-%d", strings.Repeat("x", 300), k)] = Lock{Holder: strings.Repeat("n", 63), Write: 1}
	}
	data, err := json.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	object := &corev1.ConfigMap{Data: map[string]string{dataKey: string(data)}}
	object.Namespace, object.Name = Key(mine).Namespace, Key(mine).Name
	if err := a.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	add := &request{volume: "new", next: Lock{Holder: "b"}}
	move := &request{volume: mine, old: Lock{Holder: "a", Write: 1}, next: Lock{Holder: "b", MovedFrom: "a"}}
	remove := &request{volume: "gone", old: Lock{Holder: "a", Write: 1}}
	group := []*request{add, move, remove}
	for _, r := range group {
		r.done = make(chan struct{})
	}
	s.commit(object.Name, group)
	if !errors.Is(add.err, ErrFull) || add.swapped {
		t.Errorf("a new lock in a ConfigMap with %d bytes: written %t, error %v; want %v", len(data), add.swapped, add.err,
			ErrFull)
	}
	if move.err != nil || !move.swapped || remove.err != nil || !remove.swapped {
		t.Errorf("beside it a lock is moved: %t, %v, and one removed: %t, %v; want both done", move.swapped, move.err,
			remove.swapped, remove.err)
	}
	live, err := s.Read(t.Context(), mine)
	if err != nil || live.Holder != "b" {
		t.Errorf("the lock that was moved is %+v, error %v; want it on node b", live, err)
	}
}
