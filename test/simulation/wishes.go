/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

const (
	// troubled is how long wishes and trouble last.
	troubled = 8 * time.Minute
	// patience is how long it may take, once all trouble has ceased, until everything is as it is wanted.
	patience = 30 * time.Minute
	// meanwhile is how long administrators leave a pod that waits without end.
	meanwhile = 5 * time.Minute
)

// live through the whole story: wishes and trouble, then peace, then the end of all wishes.
func (w *World) live(nodes, volumes []string) {
	end := time.Now().Add(troubled)
	for time.Now().Before(end) && !w.isBroken() {
		time.Sleep(w.chance.between("wish", 0, 20*time.Second))
		w.act(nodes, volumes)
	}
	w.chance.cease()
	w.mu.Lock()
	w.leader.tired.Store(nil)
	w.mu.Unlock()
	w.log("all trouble ceases")
	for _, node := range nodes {
		w.untaint(node)
	}
	w.withdraw(func(i *volumesv1alpha1.VolumeAttachmentIntent) bool { return !w.compatible(i) })
	w.withdrawPods(func(p *corev1.Pod) bool { return !w.podFits(p) })
	w.await("what is wanted is not there", w.missing)
	w.withdraw(func(*volumesv1alpha1.VolumeAttachmentIntent) bool { return true })
	w.withdrawPods(func(*corev1.Pod) bool { return true })
	w.await("something is left over", w.leftovers)
}

// await until nothing is left to complain of.
func (w *World) await(what string, complaints func() []string) {
	end := time.Now().Add(patience)
	for {
		w.mu.Lock()
		now, broken := complaints(), w.broken != ""
		if !broken && len(now) > 0 && time.Now().After(end) {
			w.breaks("%s: %s", what, strings.Join(now, "; "))
			broken = true
		}
		w.mu.Unlock()
		if broken || len(now) == 0 {
			return
		}
		if time.Until(end) < patience-meanwhile {
			w.relieve()
		}
		time.Sleep(5 * time.Second)
	}
}

// act is one wish, or one blow.
func (w *World) act(nodes, volumes []string) {
	r := w.chance.draw("wish", "what")
	node, volume := nodes[r.IntN(len(nodes))], volumes[r.IntN(len(volumes))]
	name := fmt.Sprintf("%s-%s-%d", volume, node, r.IntN(2))
	if w.replace && w.actOnPods(node, volume) {
		return
	}
	if w.machines && w.chance.draw("wish", "succession").IntN(12) == 0 {
		w.succeed(node)
		return
	}
	if w.fences && w.chance.draw("wish", "fence").IntN(10) == 0 {
		w.nodes[node].fence()
		return
	}
	switch n := r.IntN(24); {
	case n < 9:
		w.want(name, node, volume)
	case n < 14:
		w.unwant(name)
	case n < 16:
		if w.unwant(name) {
			w.chance.reach(remade)
			w.wantLater(w.chance.between("wish", 0, 30*time.Second), name, node, volume)
		}
	case n == 16:
		w.nodes[node].reboot()
	case n == 17:
		w.nodes[node].restart()
	case n == 18:
		w.lower(name)
	case n == 19 || n == 20:
		w.nodes[node].unmountStage("vol-" + volume)
	case n == 22:
		w.wantTwice(node)
	case n == 21:
		w.nodes[node].fallSilent()
	case n == 23:
		w.nodes[node].taintWrongly()
	}
}

func (w *World) want(name, node, volume string) { w.wantMounted(name, node, volume, nil) }

// wantMounted creates an intent that has the volume mounted in that way.
func (w *World) wantMounted(name, node, volume string, how *volumesv1alpha1.MountSpec) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != "" || w.intent(name) != nil {
		return
	}
	w.by = "somebody"
	claim := &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: w.claimOfVolume(volume)}
	w.create(&volumesv1alpha1.VolumeAttachmentIntent{
		// The finalizer is what the admission policy sets.
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, Finalizers: []string{volumesv1alpha1.ReleaseFinalizer},
		},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{
			NodeName: node, Volume: volumesv1alpha1.VolumeSource{PersistentVolumeClaim: claim}, Mount: how,
		},
	})
}

// wantLater wants it unless all trouble has ceased by then.
func (w *World) wantLater(d time.Duration, name, node, volume string) {
	w.later(d, func() {
		if !w.chance.ceased() {
			w.want(name, node, volume)
		}
	})
}

// wantTwice has two intents want the volume for a single user in one second. The manager may be asleep before it knows
// of the second one, which the next manager takes for the older.
func (w *World) wantTwice(node string) {
	first, second := "pod-"+node+"-1", "pod-"+node+"-0"
	before := first
	if w.chance.draw("wish", "sleep").IntN(2) == 0 {
		before = ""
	}
	w.want(first, node, "pod")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leader.tired.Store(&nap{before: before, then: func() { w.wantLater(0, second, node, "pod") }})
}

func (w *World) unwant(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := w.intent(name)
	if i == nil || i.DeletionTimestamp != nil {
		return false
	}
	w.by = "somebody"
	w.must(w.api.delete(i, nil))
	return true
}

// lower what is wanted to Staged, or raise it again.
func (w *World) lower(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := w.intent(name)
	if i == nil || i.DeletionTimestamp != nil {
		return
	}
	i = i.DeepCopyObject().(*volumesv1alpha1.VolumeAttachmentIntent)
	if i.Spec.DesiredState == volumesv1alpha1.DesiredPublished {
		i.Spec.DesiredState = volumesv1alpha1.DesiredStaged
	} else {
		i.Spec.DesiredState = volumesv1alpha1.DesiredPublished
	}
	w.by = "somebody"
	_, err := w.api.update(i, false)
	w.must(err)
}

// withdraw wishes.
func (w *World) withdraw(which func(*volumesv1alpha1.VolumeAttachmentIntent) bool) {
	w.mu.Lock()
	var names []string
	for _, i := range w.intents() {
		if which(i) {
			names = append(names, i.Name)
		}
	}
	w.mu.Unlock()
	for _, n := range names {
		w.unwant(n)
	}
}

// compatible says whether the wish can be had beside those before it in order of name.
func (w *World) compatible(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
	volume := i.Spec.Volume.PersistentVolumeClaim.ClaimName
	if handleOf(volume) == handleOf(twin) {
		return w.besideTwin(i)
	}
	for _, other := range w.intents() {
		if other.Name == i.Name {
			return true
		}
		same := other.Spec.Volume.PersistentVolumeClaim.ClaimName == volume
		if same && (volume == "pod" || other.Spec.NodeName != i.Spec.NodeName) {
			return false
		}
	}
	return true
}

// restart the agent in good order.
func (m *machine) restart() {
	m.world.chance.reach(agentStopped)
	m.world.log("the agent of %s is restarted", m.name)
	m.world.mu.Lock()
	stop := m.stop
	m.world.mu.Unlock()
	if stop == nil {
		return // a machine that was started just now
	}
	stop()
	m.launchAfter(20 * time.Second)
}

// unmountStage is a person at work on the machine.
func (m *machine) unmountStage(handle string) {
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	if _, err := os.Stat(filepath.Join(m.stageDir(handle), recordFile)); err == nil {
		return // the kubelet would not notice, and would publish a directory of the node's disk
	}
	for _, e := range m.of(handle) {
		if filepath.Base(e.Path) == "globalmount" {
			m.world.chance.reach(unmounted)
			m.world.logLocked("somebody unmounts on %s %s", m.name, e.describe())
			m.umount(e.Path)
			return
		}
	}
}

// fallSilent has the machine lose its agent. An administrator takes it for dead and says so, although it goes on with
// what it has mounted.
func (m *machine) fallSilent() {
	w := m.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.agent == nil || m.silent {
		return
	}
	w.chance.reach(outOfService)
	w.logLocked("%s falls silent and is put out of service", m.name)
	assert, takeBack := m.assertsDeath()
	m.silent = true
	m.life++ // no other agent comes
	m.agent.kill()
	if w.chance.draw("wish", "whole").IntN(2) == 0 {
		m.kubeletLife++
		m.kubelet.kill()
	}
	assert()
	if w.chance.draw("wish", "word").IntN(3) > 0 {
		w.later(w.chance.between(m.name, time.Minute, 3*time.Minute), m.declare)
	}
	w.later(w.chance.between(m.name, 20*time.Second, 5*time.Minute), func() {
		left := !w.chance.ceased() && w.chance.draw("wish", "left taint").IntN(2) == 0
		if left {
			w.chance.reach(leftTaint)
			w.later(w.chance.between(m.name, time.Minute, 4*time.Minute), takeBack)
		} else {
			takeBack()
		}
		w.mu.Lock()
		m.silent = false
		stopped := m.kubelet == nil || m.kubelet.p.isDead()
		w.mu.Unlock()
		if stopped {
			m.startKubeletAfter(w.chance.between(m.name, time.Second, time.Minute))
		}
		m.launchAfter(w.chance.between(m.name, time.Second, time.Minute))
	})
}

// taintWrongly has an administrator take a machine for dead that is not. Every second time its agent has just died, and
// another one comes.
func (m *machine) taintWrongly() {
	w := m.world
	early := w.chance.draw("wish", "early taint").IntN(2) == 0
	w.mu.Lock()
	if m.agent == nil || m.silent {
		w.mu.Unlock()
		return
	}
	after := time.Duration(0)
	if early {
		w.chance.reach(earlyTaint)
		m.agent.kill()
		after = w.chance.between(m.name, 0, 10*time.Second)
	} else {
		w.chance.reach(wrongTaint)
	}
	w.logLocked("%s is taken for dead (its agent has just died: %t)", m.name, early)
	w.mu.Unlock()
	if early {
		m.launchAfter(w.chance.between(m.name, time.Second, 2*time.Minute))
	}
	w.later(after, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.chance.ceased() {
			w.taint(m.name, corev1.Taint{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute})
		}
	})
	w.later(after+w.chance.between(m.name, 10*time.Second, 3*time.Minute), func() { w.untaint(m.name) })
}

// untaint is the last step of an administrator.
func (w *World) untaint(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.taint(name)
}

// declare has an administrator give the word that the machine has let go of everything that was forced away from it. It
// has not: what was mounted is mounted still.
func (m *machine) declare() {
	w := m.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != "" || w.chance.ceased() {
		return
	}
	state := w.state(m.name).DeepCopy()
	if state.Name == "" {
		return // no manager has made it yet
	}
	for _, e := range state.Spec.Attachments {
		if w.forced[e.AttachmentUID] {
			w.chance.reach(declared)
			w.logLocked("somebody declares %s released on %s", e.AttachmentUID, m.name)
			metav1.SetMetaDataAnnotation(&state.ObjectMeta,
				volumesv1alpha1.DeclaredReleasedPrefix+string(e.AttachmentUID), "dead")
			w.ended[e.AttachmentUID] = true
		}
	}
	w.by = "somebody"
	_, err := w.api.update(state, false)
	w.must(err)
}

// taint the Node with these alone, unless the manager has set one of its own.
func (w *World) taint(name string, taints ...corev1.Taint) {
	o, err := w.api.get(&corev1.Node{}, client.ObjectKey{Name: name})
	w.must(err)
	if len(taints) > 0 {
		w.powerOffShown(name)
	}
	node := o.DeepCopyObject().(*corev1.Node)
	if handshake.SetByHawser(handshake.OutOfService(node)) {
		return // that of the manager is left to it
	}
	node.Spec.Taints = taints
	w.by = "somebody"
	_, err = w.api.update(node, false)
	w.must(err)
}
