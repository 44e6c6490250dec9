/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package controller_test

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
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller"
	"github.com/hawser-io/hawser/internal/handshake"
)

var (
	leadersSeed  = flag.Uint64("leaders.seed", 0, "seed of the tests with two leaders; 0 for one of the day")
	leadersSteps = flag.Int("leaders.steps", 8, "changes of the wish for each volume in these tests")
)

// leaders are two managers that both act, over volumes that want to be on several nodes.
type leaders struct {
	*world
	mode    controller.AttachMode
	prefix  string
	seed    uint64
	truth   *truth
	sleeps  *sleeps
	witness *witness
	nodes   []string
	volumes []string
	// stop the two.
	stop []func()
}

// TestTwoLeaders runs what two managers do that both act, on one control plane.
func TestTwoLeaders(t *testing.T) {
	w := newWorld(t)
	for _, s := range []struct {
		name     string
		scenario func(*testing.T, *world)
	}{
		{"never make an exclusive volume usable on two nodes, beside upstream", neverUsableOnTwoNodes(controller.Coexist)},
		{"never make an exclusive volume usable on two nodes, in place of upstream", neverUsableOnTwoNodes(controller.Replace)},
		{"one that slept does not say of a new attachment that it is unlisted", oneThatSleptDoesNotSayOfANewAttachmentThatItIsUnlisted},
		{"a pod that comes while its volume is on the way out gets it again", aPodThatComesWhileItsVolumeIsOnTheWayOutGetsItAgain},
		{"one that takes an exclusive volume for a shared one does not make it usable on two nodes", oneThatKnowsOldAccessModes},
		{"one that keeps the rules after a long sleep does no harm", oneThatOverslept(false)},
		// It leaves a volume on two nodes.
		{"one that ignores conflicts is found", oneThatOverslept(true)},
	} {
		t.Run(s.name, func(t *testing.T) { s.scenario(t, w) })
	}
}

// neverUsableOnTwoNodes: whatever either of them sleeps over.
func neverUsableOnTwoNodes(mode controller.AttachMode) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		l := w.leaders(t, mode, cmp.Or(*leadersSeed, uint64(time.Now().UnixNano())))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		l.verdict(t, l.play(ctx))
	}
}

// leaders starts two managers with three nodes and three volumes.
func (w *world) leaders(t *testing.T, mode controller.AttachMode, seed uint64) *leaders {
	t.Helper()
	t.Logf("-leaders.seed=%d", seed)
	l := &leaders{
		world: w, mode: mode, prefix: strings.ToLower(string(mode)), seed: seed, truth: newTruth(), sleeps: newSleeps(seed),
	}
	l.witness = w.witness(t, l.prefix+"-sentinel")
	for i := range 3 {
		name := fmt.Sprintf("%s-v%d", l.prefix, i)
		w.volume(t, name, volumeOptions{})
		l.truth.volumes["pv-"+name] = uniqueName(name)
		l.volumes = append(l.volumes, name)
	}
	w.attacher.tell(l.truth.driver)
	for i := range 3 {
		name := fmt.Sprintf("%s-n%d", l.prefix, i)
		l.nodes = append(l.nodes, name)
		w.host(t, name, l.truth, seed+uint64(i))
	}
	for leader := range 2 {
		_, stop := w.manage(t, managerOptions{attachMode: mode, transport: l.sleeps.transport(leader)})
		l.stop = append(l.stop, stop)
	}
	t.Cleanup(l.sleeps.end)
	l.sleeps.begin()
	return l
}

// report what is attached and detached.
func (a *attacher) tell(driver func(*storagev1.VolumeAttachment, bool)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.driver = driver
}

// verdict of the judges.
func (l *leaders) verdict(t *testing.T, failed error) {
	t.Helper()
	l.sleeps.end()
	for _, stop := range l.stop {
		stop()
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	story := l.witness.story(ctx)
	wrong := append(l.truth.violations(), judge(story)...)
	for _, v := range wrong {
		t.Error(v)
	}
	if failed != nil {
		t.Error(failed)
	}
	if t.Failed() {
		t.Logf("the latest requests:\n%s", l.sleeps.last(200))
		t.Logf("what happened last:\n%s", tellStory(story[max(0, len(story)-60):]))
	}
	late := strings.Count(l.sleeps.last(1<<20), "late")
	t.Logf("%d changes were judged; %d requests came late", len(story), late)
}

// play lets the wishes for all volumes come and go, until each of them is on the one node where it is wanted, and
// then on none.
func (l *leaders) play(ctx context.Context) error {
	wishes := make([]*wish, len(l.volumes))
	for i, volume := range l.volumes {
		wishes[i] = &wish{leaders: l, volume: volume, random: rand.New(rand.NewPCG(l.seed, uint64(10+i))), stands: map[string]client.Object{}}
	}
	if err := each(wishes, func(w *wish) error { return w.play(ctx) }); err != nil {
		return err
	}
	if err := l.attachedWhereWanted(ctx, wishes); err != nil {
		return err
	}
	if err := each(wishes, func(w *wish) error { return w.dropAll(ctx, "") }); err != nil {
		return err
	}
	l.sleeps.end()
	return l.attachedWhereWanted(ctx, nil)
}

func each(wishes []*wish, do func(*wish) error) error {
	var group sync.WaitGroup
	failed := make([]error, len(wishes))
	for i, w := range wishes {
		group.Go(func() { failed[i] = do(w) })
	}
	group.Wait()
	return errors.Join(failed...)
}

// attachedWhereWanted waits until nothing is anywhere but where it is wanted.
func (l *leaders) attachedWhereWanted(ctx context.Context, wishes []*wish) error {
	wanted := map[place]bool{}
	for _, w := range wishes {
		for node := range w.stands {
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
	return []place{{l.truth.volumes[*va.Spec.Source.PersistentVolumeName], va.Spec.NodeName}}
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

// awaitAll waits, by a watch, until all objects of a kind are as they should be.
func (w *world) awaitAll(ctx context.Context, list client.ObjectList, ok func([]client.Object) bool) error {
	watcher, err := w.client.Watch(ctx, list)
	if err != nil {
		return err
	}
	defer watcher.Stop()
	if w.isSo(ctx, list, ok) {
		return nil
	}
	objects := map[types.UID]client.Object{}
	for e := range watcher.ResultChan() {
		o, isObject := e.Object.(client.Object)
		if !isObject {
			return fmt.Errorf("watching %T: %v", list, e.Object)
		}
		set(objects, o.GetUID(), o, e.Type == watch.Deleted)
		// The first events show what there is one by one; a state in between is no answer.
		if ok(slices.Collect(maps.Values(objects))) && w.isSo(ctx, list, ok) {
			return nil
		}
	}
	return fmt.Errorf("waiting for %T: %w: %s", list, ctx.Err(), dump(slices.Collect(maps.Values(objects))))
}

func (w *world) isSo(ctx context.Context, list client.ObjectList, ok func([]client.Object) bool) bool {
	if err := w.client.List(ctx, list); err != nil {
		return false
	}
	var objects []client.Object
	if err := meta.EachListItem(list, func(o runtime.Object) error {
		objects = append(objects, o.(client.Object))
		return nil
	}); err != nil {
		return false
	}
	return ok(objects)
}

// wish is where one volume is wanted.
type wish struct {
	*leaders
	volume string
	random *rand.Rand
	count  int
	// stands on which node.
	stands map[string]client.Object
}

func (w *wish) play(ctx context.Context) error {
	for range *leadersSteps {
		// Mostly there and back: that is where an earlier life meets a later one.
		node := w.nodes[min(w.random.IntN(5)/2, len(w.nodes)-1)]
		var err error
		if w.stands[node] == nil {
			err = w.create(ctx, node)
		} else {
			err = w.drop(ctx, node)
		}
		if err == nil && w.random.IntN(3) > 0 {
			err = w.comesTrue(ctx)
		}
		if err != nil {
			return err
		}
	}
	return w.settle(ctx)
}

// create asks for the volume on the node: by an intent or, in Replace, by one or a pod.
func (w *wish) create(ctx context.Context, node string) error {
	w.count++
	name := fmt.Sprintf("%s-%d", w.volume, w.count)
	var o client.Object = newIntent(name, node, w.volume)
	if w.mode == controller.Replace && w.random.IntN(3) > 0 {
		o = newPod(name, node, w.volume)
	}
	w.stands[node] = o
	return w.client.Create(ctx, o)
}

func (w *wish) drop(ctx context.Context, node string) error {
	o := w.stands[node]
	delete(w.stands, node)
	return w.client.Delete(ctx, o, client.GracePeriodSeconds(0))
}

// comesTrue waits until the volume can be used somewhere where it is wanted.
func (w *wish) comesTrue(ctx context.Context) error {
	if len(w.stands) == 0 {
		return nil
	}
	what := fmt.Sprintf("%s is mounted on one of %q", w.volume, slices.Sorted(maps.Keys(w.stands)))
	return w.truth.await(ctx, what, func() bool {
		for node := range w.stands {
			if w.truth.isMounted(place{uniqueName(w.volume), node}) {
				return true
			}
		}
		return false
	})
}

// settle wants the volume on one node only, until it can be used there.
func (w *wish) settle(ctx context.Context) error {
	last := w.nodes[w.random.IntN(len(w.nodes))]
	if w.stands[last] == nil {
		if err := w.create(ctx, last); err != nil {
			return err
		}
	}
	return errors.Join(w.dropAll(ctx, last), w.comesTrue(ctx))
}

// dropAll wishes but that for one node.
func (w *wish) dropAll(ctx context.Context, but string) error {
	for node := range maps.Clone(w.stands) {
		if node == but {
			continue
		}
		if err := w.drop(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

// oneThatSleptDoesNotSayOfANewAttachmentThatItIsUnlisted: it unlisted the volume for an attachment that is over by now.
func oneThatSleptDoesNotSayOfANewAttachmentThatItIsUnlisted(t *testing.T, w *world) {
	witness := w.witness(t, "slept-sentinel")
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
	for _, wrong := range judge(witness.story(t.Context())) {
		t.Error(wrong)
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

// aPodThatComesWhileItsVolumeIsOnTheWayOutGetsItAgain: from then on the kubelet lists the volume as in use, before it
// has it.
func aPodThatComesWhileItsVolumeIsOnTheWayOutGetsItAgain(t *testing.T, w *world) {
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
