/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/fencing"
	"github.com/hawser-io/hawser/internal/handshake"
)

// Fences of machines. A program powers a machine off, shows that in an object of its own, and takes that back before
// the machine starts again. The object has the Node's name.

const powerOff, powerOn = "off", "on"

// fenceSources of the manager.
func (w *World) fenceSources() []*fencing.Source {
	if !w.fences {
		return nil
	}
	source, err := fencing.Compile(volumesv1alpha1.FenceSource{
		Name: "power", Group: "power.example.com", Version: "v1", Resource: "powerstates",
		NodeName: "object.metadata.name", Holds: "object.power == '" + powerOff + "'", Proves: volumesv1alpha1.FencePowerOff,
	})
	w.must(err)
	return []*fencing.Source{source}
}

// powerOf the Node's machine, as the program shows it; nil where it shows nothing.
func (w *World) powerOf(node string) *unstructured.Unstructured {
	o, err := w.api.get(&unstructured.Unstructured{}, client.ObjectKey{Name: node})
	if err != nil {
		return nil
	}
	return o.(*unstructured.Unstructured)
}

func holds(power *unstructured.Unstructured) bool {
	return power != nil && power.Object["power"] == powerOff
}

func (w *World) isFenced(node string) bool { return holds(w.powerOf(node)) }

// show the power of the Node's machine. The world is locked.
func (w *World) show(node, power string) {
	w.by = "the fencing program"
	before := w.powerOf(node)
	if before == nil {
		o := &unstructured.Unstructured{Object: map[string]any{"power": power}}
		o.SetName(node)
		w.create(o)
		return
	}
	after := before.DeepCopy()
	after.Object["power"] = power
	_, err := w.api.update(after, false)
	w.must(err)
}

// lift the fence of the node. Every second time its object goes, as that of a remediation does.
func (w *World) lift(node string) {
	if !w.isFenced(node) {
		return
	}
	if w.chance.draw("fence", "lift").IntN(2) == 0 {
		w.show(node, powerOn)
		return
	}
	w.by = "the fencing program"
	w.must(w.api.delete(w.powerOf(node), nil))
}

// locked has f run at a later time, with the world locked.
func (w *World) locked(d time.Duration, f func()) {
	w.later(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		f()
	})
}

// fence the machine: mostly it is powered off first. Else it runs, and its agent contradicts the fence.
func (m *machine) fence() {
	w := m.world
	wrongly := w.chance.draw("wish", "wrong fence").IntN(3) == 0
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case m.agent == nil || m.silent:
	case wrongly:
		w.chance.reach(wrongFence)
		w.show(m.name, powerOff)
		w.locked(w.chance.between(m.name, 10*time.Second, 3*time.Minute), func() { w.lift(m.name) })
	default:
		m.fenceOff()
	}
}

// fenceOff powers the machine off, and shows that some time later. The fence may be lifted before it counts.
func (m *machine) fenceOff() {
	w := m.world
	w.chance.reach(fenced)
	w.logLocked("%s is powered off", m.name)
	m.silent, m.off = true, true
	m.life++ // no other agent comes
	m.agent.kill()
	m.kubelet.kill()
	m.start() // nothing is mounted, and no call of before has its effect
	w.check()
	w.locked(w.chance.between(m.name, 0, time.Minute), m.showReady)
	w.locked(w.chance.between(m.name, 0, 30*time.Second), func() {
		w.show(m.name, powerOff)
		if !w.chance.ceased() && w.chance.draw("wish", "sleep before a fence").IntN(4) == 0 {
			w.leader.tired.Store(&nap{before: "get fence " + m.name, then: func() {
				w.locked(0, func() { w.lift(m.name) })
			}})
		}
		w.locked(w.chance.between(m.name, 5*time.Second, 4*time.Minute), func() {
			w.lift(m.name)
			w.locked(w.chance.between(m.name, 0, time.Minute), m.powerOn)
		})
	})
}

func (m *machine) powerOn() {
	w := m.world
	w.logLocked("%s is powered on", m.name)
	m.silent, m.off = false, false
	m.start()
	w.later(0, func() {
		m.startKubeletAfter(w.chance.between(m.name, time.Second, time.Minute))
		m.launchAfter(w.chance.between(m.name, time.Second, time.Minute))
	})
	w.locked(w.chance.between(m.name, time.Second, time.Minute), m.showReady)
}

// showReady writes into the Node whether its machine reports. The world is locked.
func (m *machine) showReady() {
	w := m.world
	node := w.nodeLocked(m.name).DeepCopy()
	node.Status.Conditions[0].Status = corev1.ConditionTrue
	if m.silent {
		node.Status.Conditions[0].Status = corev1.ConditionUnknown
	}
	w.by = "the node lifecycle"
	_, err := w.api.update(node, true)
	w.must(err)
}

// assertsDeath is how an administrator asserts that the machine is off, and takes that back: by a taint or, in every
// second of the lives with fences, by a fence.
func (m *machine) assertsDeath() (assert, takeBack func()) {
	w := m.world
	if !w.fences || w.chance.draw("wish", "silent fence").IntN(2) == 0 {
		return func() {
			w.taint(m.name, corev1.Taint{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute})
		}, func() { w.untaint(m.name) }
	}
	w.chance.reach(silentFence)
	return func() {
			w.show(m.name, powerOff)
			w.locked(w.chance.between(m.name, 0, time.Minute), m.showReady)
		}, func() {
			w.locked(0, func() { w.lift(m.name) })
			w.locked(w.chance.between(m.name, time.Second, time.Minute), m.showReady)
		}
}

// heldFor is how long a manager needs at most from its reads to the write that relies on them.
const heldFor = time.Minute

// heldFence is when a process last read the fence of a node that held.
type heldFence struct {
	uid types.UID
	at  time.Time
}

// hasRead reports whether the process that writes now has read the fence of the node right before, and it held.
func (w *World) hasRead(node string) (types.UID, bool) {
	held, ever := w.writer.held[node]
	return held.uid, ever && (time.Since(held.at) <= heldFor || w.isOutdated())
}

// isOutdated reports whether what is written now was decided at any time before.
func (w *World) isOutdated() bool { return w.late || !w.writer.asleep.IsZero() }

// checkFenced: a fence counts while the manager's record of it is uncontradicted, if it held when it was read live, and
// only about the machine that has registered the Node.
func (w *World) checkFenced(s *volumesv1alpha1.NodeVolumeState, e *volumesv1alpha1.NodeAttachment) {
	w.chance.reach(fencedAway)
	if !slices.ContainsFunc(s.Status.Node.Fences, func(r volumesv1alpha1.FenceObservation) bool {
		return r.FenceReference == *e.Evidence.Fence && r.Contradicted == nil
	}) {
		w.breaks("a fence counts while it is recorded: %s is taken away from %s on %v", e.AttachmentUID, s.Name,
			e.Evidence.Fence)
	}
	if uid, read := w.hasRead(s.Name); !read || uid != e.Evidence.Fence.UID {
		w.breaks("a fence counts if it was read to hold: %s is taken away from %s on %v", e.AttachmentUID, s.Name,
			e.Evidence.Fence)
	}
	for _, m := range w.away {
		if m.name == s.Name && slices.ContainsFunc(m.inUse(), func(u mounted) bool { return u.uid == e.AttachmentUID }) {
			w.breaks("a fence is about the machine of the Node: %s is taken away from %s, and another machine uses it",
				e.AttachmentUID, s.Name)
		}
	}
}

// noteManagersTaint: the manager sets its taint on a fence that it has read to hold, and removes it once nothing is
// left of what was forced away.
func (w *World) noteManagersTaint(before client.Object, node *corev1.Node) {
	old, ok := before.(*corev1.Node)
	if !ok {
		return
	}
	was, is := handshake.SetByHawser(handshake.OutOfService(old)), handshake.SetByHawser(handshake.OutOfService(node))
	switch {
	case !was && is:
		w.chance.reach(putOut)
		w.logLocked("%s sets the taint of %s", w.by, node.Name)
		if _, read := w.hasRead(node.Name); !read {
			w.breaks("a fence counts if it was read to hold: %s is put out of service", node.Name)
		}
	case was && !is:
		w.chance.reach(putIn)
		w.logLocked("%s removes the taint of %s", w.by, node.Name)
		if m := w.nodes[node.Name]; m.off && time.Since(m.since) > heldFor && !w.isOutdated() {
			w.breaks("a node is in service once its agent has reported: %s is off for %s", node.Name, time.Since(m.since))
		}
		for _, m := range w.all() {
			for _, u := range m.inUse() {
				if m.name == node.Name && w.forced[u.uid] && !w.ended[u.uid] {
					w.breaks("a node is in service once nothing is left: on %s %s", m.name, u.describe())
				}
			}
		}
	}
}

// assertionsLeft are the taints and the records of fences that nothing asserts any more.
func (w *World) assertionsLeft(node string) (left []string) {
	for _, t := range w.nodeLocked(node).Spec.Taints {
		left = append(left, fmt.Sprintf("the taint %s of %s", t.ToString(), node))
	}
	for _, r := range w.state(node).Status.Node.Fences {
		left = append(left, fmt.Sprintf("the record of fence %s of %s", r.Name, node))
	}
	return left
}

// fenceObjects is a process' client for the objects of fences.
type fenceObjects struct {
	dynamic.NamespaceableResourceInterface // what is not known here
	live                                   live
}

var _ dynamic.Interface = fenceObjects{}

// IsWatchListSemanticsUnSupported has informers list before they watch.
func (fenceObjects) IsWatchListSemanticsUnSupported() bool { return true }

func (c fenceObjects) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return c
}

func (c fenceObjects) Namespace(string) dynamic.ResourceInterface { return c }

func (c fenceObjects) Get(
	ctx context.Context, name string, _ metav1.GetOptions, _ ...string,
) (*unstructured.Unstructured, error) {
	if err := c.live.request(ctx, "get fence "+name); err != nil {
		return nil, err
	}
	w := c.live.world
	w.mu.Lock()
	found, err := w.api.get(&unstructured.Unstructured{}, client.ObjectKey{Name: name})
	if power := w.powerOf(name); holds(power) {
		c.live.held[name] = heldFence{uid: power.GetUID(), at: time.Now()}
	} else if len(w.state(name).Status.Node.Fences) > 0 {
		w.chance.reach(liftedSince)
	}
	w.mu.Unlock()
	if gone := c.live.answer(ctx); gone != nil || err != nil {
		if gone != nil {
			err = gone
		}
		return nil, err
	}
	return found.DeepCopyObject().(*unstructured.Unstructured), nil
}

func (c fenceObjects) List(ctx context.Context, _ metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	if err := c.live.request(ctx, "list fence"); err != nil {
		return nil, err
	}
	w, list := c.live.world, &unstructured.UnstructuredList{Object: map[string]any{}}
	w.mu.Lock()
	for _, o := range w.api.list(&unstructured.Unstructured{}) {
		list.Items = append(list.Items, *o.DeepCopyObject().(*unstructured.Unstructured))
	}
	list.SetResourceVersion(strconv.FormatUint(w.api.version, 10))
	w.mu.Unlock()
	return list, c.live.answer(ctx)
}

func (c fenceObjects) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if err := c.live.request(ctx, "watch fence"); err != nil {
		return nil, err
	}
	return c.live.world.stream(c.live.process, &unstructured.Unstructured{}, &client.ListOptions{},
		options.ResourceVersion), nil
}
