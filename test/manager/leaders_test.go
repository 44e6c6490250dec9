/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller"
	"github.com/hawser-io/hawser/internal/handshake"
)

var (
	leadersSeed  = flag.Uint64("leaders.seed", 0, "seed of the tests with two leaders; 0 for one of the day")
	leadersSteps = flag.Int("leaders.steps", 8, "changes of what is wanted for each volume in these tests")
)

// leaders are two managers that both act, and volumes that are wanted on several nodes.
type leaders struct {
	*world
	mode     controller.AttachMode
	prefix   string
	seed     uint64
	mounts   *mountChecker
	delays   *delays
	recorder *recorder
	nodes    []string
	volumes  []string
	// stop the two.
	stop []func()
}

// TestTwoLeaders runs two managers that both act, on one control plane.
func TestTwoLeaders(t *testing.T) {
	w := newWorld(t)
	for _, s := range []struct {
		name     string
		scenario func(*testing.T, *world)
	}{
		{"never make an exclusive volume usable on two nodes, in mode Coexist", neverUsableOnTwoNodes(controller.Coexist)},
		{"never make an exclusive volume usable on two nodes, in mode Replace", neverUsableOnTwoNodes(controller.Replace)},
		{"a late write does not mark a new attachment as unlisted", aLateWriteDoesNotMarkANewAttachmentAsUnlisted},
		{"a pod created during the detach of its volume gets it again", aPodCreatedDuringTheDetachOfItsVolumeGetsItAgain},
		{"one with stale access modes does not make an exclusive volume usable on two nodes", leaderWithStaleAccessModes},
		{"a late write of one that respects conflicts does no harm", leaderWithLateWrite(false)},
		// It leaves a volume on two nodes.
		{"a late write of one that ignores conflicts is detected", leaderWithLateWrite(true)},
	} {
		t.Run(s.name, func(t *testing.T) { s.scenario(t, w) })
	}
}

// neverUsableOnTwoNodes: whichever requests of either are late.
func neverUsableOnTwoNodes(mode controller.AttachMode) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		l := w.leaders(t, mode, cmp.Or(*leadersSeed, uint64(time.Now().UnixNano())))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		l.check(t, l.exercise(ctx))
	}
}

// leaders starts two managers with three nodes and three volumes.
func (w *world) leaders(t *testing.T, mode controller.AttachMode, seed uint64) *leaders {
	t.Helper()
	t.Logf("-leaders.seed=%d", seed)
	l := &leaders{
		world: w, mode: mode, prefix: strings.ToLower(string(mode)), seed: seed, mounts: newMountChecker(),
		delays: newDelays(seed),
	}
	l.recorder = w.record(t, l.prefix+"-sentinel")
	for i := range 3 {
		name := fmt.Sprintf("%s-v%d", l.prefix, i)
		w.volume(t, name, volumeOptions{})
		l.mounts.volumes["pv-"+name] = uniqueName(name)
		l.volumes = append(l.volumes, name)
	}
	w.attacher.setDriver(l.mounts.driver)
	for i := range 3 {
		name := fmt.Sprintf("%s-n%d", l.prefix, i)
		l.nodes = append(l.nodes, name)
		w.host(t, name, l.mounts, seed+uint64(i))
	}
	for leader := range 2 {
		_, stop := w.manage(t, managerOptions{attachMode: mode, transport: l.delays.transport(leader)})
		l.stop = append(l.stop, stop)
	}
	t.Cleanup(l.delays.end)
	l.delays.begin()
	return l
}

// check reports what the checkers found.
func (l *leaders) check(t *testing.T, failed error) {
	t.Helper()
	l.delays.end()
	for _, stop := range l.stop {
		stop()
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	history := l.recorder.history(ctx)
	wrong := append(l.mounts.violations(), checkHistory(history)...)
	for _, v := range wrong {
		t.Errorf("history: %s; want no violation", v)
	}
	if failed != nil {
		t.Errorf("leaders: error %v, want none", failed)
	}
	if t.Failed() {
		t.Logf("the latest requests:\n%s", l.delays.last(200))
		t.Logf("what happened last:\n%s", formatHistory(history[max(0, len(history)-60):]))
	}
	late := strings.Count(l.delays.last(1<<20), "late")
	t.Logf("%d changes were checked; %d requests came late", len(history), late)
}

// exercise wants all volumes on changing nodes, until each is on the one node where it is wanted last, and then on
// none.
func (l *leaders) exercise(ctx context.Context) error {
	placements := make([]*placement, len(l.volumes))
	for i, volume := range l.volumes {
		placements[i] = &placement{leaders: l, volume: volume, random: rand.New(rand.NewPCG(l.seed, uint64(10+i))),
			wanted: map[string]client.Object{}}
	}
	if err := each(placements, func(w *placement) error { return w.exercise(ctx) }); err != nil {
		return err
	}
	if err := l.attachedWhereWanted(ctx, placements); err != nil {
		return err
	}
	if err := each(placements, func(w *placement) error { return w.removeAll(ctx, "") }); err != nil {
		return err
	}
	l.delays.end()
	return l.attachedWhereWanted(ctx, nil)
}

func each(placements []*placement, do func(*placement) error) error {
	var group sync.WaitGroup
	failed := make([]error, len(placements))
	for i, w := range placements {
		group.Go(func() { failed[i] = do(w) })
	}
	group.Wait()
	return errors.Join(failed...)
}

// attachedWhereWanted waits until nothing is anywhere but where it is wanted.
func (l *leaders) attachedWhereWanted(ctx context.Context, placements []*placement) error {
	wanted := map[place]bool{}
	for _, w := range placements {
		for node := range w.wanted {
			wanted[place{uniqueName(w.volume), node}] = true
		}
	}
	is := func(what func(client.Object) []place) func([]client.Object) bool {
		return func(objects []client.Object) bool {
			places := map[place]bool{}
			for _, o := range objects {
				for _, p := range what(o) {
					if strings.HasPrefix(p.node, l.prefix+"-n") {
						places[p] = true
					}
				}
			}
			return maps.Equal(places, wanted)
		}
	}
	return errors.Join(
		l.awaitAll(ctx, &storagev1.VolumeAttachmentList{}, is(l.attachedAt)),
		l.awaitAll(ctx, &volumesv1alpha1.NodeVolumeStateList{}, is(l.notedAt)),
		l.awaitAll(ctx, &volumesv1alpha1.VolumeAttachmentIntentList{}, is(l.wantedAt)),
		l.awaitAll(ctx, &corev1.NodeList{}, func(nodes []client.Object) bool {
			return !slices.ContainsFunc(nodes, func(o client.Object) bool {
				return slices.ContainsFunc(l.listedAt(o), func(p place) bool { return !wanted[p] })
			})
		}),
	)
}

func (l *leaders) attachedAt(o client.Object) []place {
	va := o.(*storagev1.VolumeAttachment)
	return []place{{l.mounts.volumes[*va.Spec.Source.PersistentVolumeName], va.Spec.NodeName}}
}

func (l *leaders) notedAt(o client.Object) []place {
	var places []place
	nvs := o.(*volumesv1alpha1.NodeVolumeState)
	for _, e := range nvs.Spec.Attachments {
		places = append(places, place{e.VolumeName, nvs.Name})
	}
	for _, v := range nvs.Status.Volumes {
		places = append(places, place{v.VolumeName, nvs.Name})
	}
	return places
}

func (l *leaders) wantedAt(o client.Object) []place {
	i := o.(*volumesv1alpha1.VolumeAttachmentIntent)
	return []place{{uniqueName(i.Spec.Volume.PersistentVolumeClaim.ClaimName), i.Spec.NodeName}}
}

func (l *leaders) listedAt(o client.Object) []place {
	var places []place
	node := o.(*corev1.Node)
	for _, v := range node.Status.VolumesAttached {
		places = append(places, place{string(v.Name), node.Name})
	}
	for _, name := range node.Status.VolumesInUse {
		places = append(places, place{string(name), node.Name})
	}
	return places
}

// placement is the nodes on which one volume is wanted.
type placement struct {
	*leaders
	volume string
	random *rand.Rand
	count  int
	// wanted has the intent or pod by node.
	wanted map[string]client.Object
}

func (w *placement) exercise(ctx context.Context) error {
	for range *leadersSteps {
		// Mostly the same two nodes: there an earlier attachment meets a later one.
		node := w.nodes[min(w.random.IntN(5)/2, len(w.nodes)-1)]
		var err error
		if w.wanted[node] == nil {
			err = w.create(ctx, node)
		} else {
			err = w.remove(ctx, node)
		}
		if err == nil && w.random.IntN(3) > 0 {
			err = w.awaitMounted(ctx)
		}
		if err != nil {
			return err
		}
	}
	return w.settle(ctx)
}

// create asks for the volume on the node: by an intent or, in Replace, by one or a pod.
func (w *placement) create(ctx context.Context, node string) error {
	w.count++
	name := fmt.Sprintf("%s-%d", w.volume, w.count)
	var o client.Object = newIntent(name, node, w.volume)
	if w.mode == controller.Replace && w.random.IntN(3) > 0 {
		o = newPod(name, node, w.volume)
	}
	w.wanted[node] = o
	return w.client.Create(ctx, o)
}

func (w *placement) remove(ctx context.Context, node string) error {
	o := w.wanted[node]
	delete(w.wanted, node)
	return w.client.Delete(ctx, o, client.GracePeriodSeconds(0))
}

// awaitMounted waits until the volume can be used somewhere where it is wanted.
func (w *placement) awaitMounted(ctx context.Context) error {
	if len(w.wanted) == 0 {
		return nil
	}
	what := fmt.Sprintf("%s is mounted on one of %q", w.volume, slices.Sorted(maps.Keys(w.wanted)))
	return w.mounts.await(ctx, what, func() bool {
		for node := range w.wanted {
			if w.mounts.isMounted(place{uniqueName(w.volume), node}) {
				return true
			}
		}
		return false
	})
}

// settle wants the volume on one node only, until it can be used there.
func (w *placement) settle(ctx context.Context) error {
	last := w.nodes[w.random.IntN(len(w.nodes))]
	if w.wanted[last] == nil {
		if err := w.create(ctx, last); err != nil {
			return err
		}
	}
	return errors.Join(w.removeAll(ctx, last), w.awaitMounted(ctx))
}

// removeAll deletes every intent and pod but that of one node.
func (w *placement) removeAll(ctx context.Context, but string) error {
	for node := range maps.Clone(w.wanted) {
		if node == but {
			continue
		}
		if err := w.remove(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

// aLateWriteDoesNotMarkANewAttachmentAsUnlisted: it unlisted the volume for an attachment that is over by now.
func aLateWriteDoesNotMarkANewAttachmentAsUnlisted(t *testing.T, w *world) {
	recorder := w.record(t, "slept-sentinel")
	w.managedNode(t, "slept")
	w.volume(t, "slept", volumeOptions{})
	p := w.pod(t, "slept", "slept", "slept")

	unlisted := false
	first := newGate(func(what, name string) bool {
		if what == "PATCH nodes/status" {
			// The first lists the volume, the second unlists it.
			listing := !unlisted && !w.detaching(t, "slept", "slept")
			unlisted = !listing
		}
		return unlisted && what == "PUT nodevolumestates" && name == "slept"
	})
	_, stopFirst := w.manage(t, managerOptions{attachMode: controller.Replace, transport: first.transport})
	w.listed(t, "slept", "slept")
	w.kill(t, p)
	<-first.held

	// Another leader carries on: detached, attached again for another pod, and on the way out once more.
	again := false
	second := newGate(func(what, _ string) bool {
		return what == "PATCH nodes/status" && again && w.detaching(t, "slept", "slept")
	})
	_, stopSecond := w.manage(t, managerOptions{attachMode: controller.Replace, transport: second.transport})
	w.entryState(t, "slept", "slept", "")
	q := w.pod(t, "slept-2", "slept", "slept")
	w.listed(t, "slept", "slept")
	again = true
	w.kill(t, q)
	<-second.held

	close(first.open)
	w.entryState(t, "slept", "slept", "")
	close(second.open)
	stopFirst()
	stopSecond()
	for _, wrong := range checkHistory(recorder.history(t.Context())) {
		t.Errorf("history of volume slept: %s; want no violation", wrong)
	}
}

func (w *world) detaching(t *testing.T, node, claim string) bool {
	nvs := stateOf(node)
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(nvs), nvs); err != nil {
		return false
	}
	e := handshake.AttachmentOf(nvs, uniqueName(claim))
	return e != nil && e.State == volumesv1alpha1.AttachmentDetaching
}

// aPodCreatedDuringTheDetachOfItsVolumeGetsItAgain: from then on the kubelet lists the volume as in use, before it
// has it.
func aPodCreatedDuringTheDetachOfItsVolumeGetsItAgain(t *testing.T, w *world) {
	w.managedNode(t, "crossed")
	w.volume(t, "crossed", volumeOptions{})
	dropped := atomic.Bool{}
	g := newGate(func(what, _ string) bool { return dropped.Load() && what == "PUT nodevolumestates" })
	w.manage(t, managerOptions{attachMode: controller.Replace, transport: g.transport})
	intent := w.intent(t, "crossed", "crossed", "crossed")
	until(t, w, intent, "the intent is Ready", isReady)
	dropped.Store(true)
	w.delete(t, intent)
	<-g.held
	w.kubeletUses(t, "crossed", "crossed")
	p := w.pod(t, "crossed", "crossed", "crossed")
	close(g.open)
	w.listed(t, "crossed", "crossed")
	w.kubeletUses(t, "crossed")
	w.kill(t, p)
	gone(t, w, attachmentOf("crossed", "crossed"))
}
