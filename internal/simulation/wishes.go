/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

const (
	// troubled is how long wishes and trouble last.
	troubled = 8 * time.Minute
	// patience is how long it may take, once all trouble has ceased, until everything is as it is wanted.
	patience = 30 * time.Minute
)

// live through the whole story: wishes and trouble, then peace, then the end of all wishes.
func (w *World) live(nodes, volumes []string) {
	end := time.Now().Add(troubled)
	for time.Now().Before(end) && !w.isBroken() {
		time.Sleep(w.chance.between("wish", 0, 20*time.Second))
		w.act(nodes, volumes)
	}
	w.chance.cease()
	w.log("all trouble ceases")
	w.withdraw(func(i *volumesv1alpha1.VolumeAttachmentIntent) bool { return !w.compatible(i) })
	w.await("what is wanted is not there", w.missing)
	w.withdraw(func(*volumesv1alpha1.VolumeAttachmentIntent) bool { return true })
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
		time.Sleep(5 * time.Second)
	}
}

// act is one wish, or one blow.
func (w *World) act(nodes, volumes []string) {
	r := w.chance.draw("wish", "what")
	node, volume := nodes[r.IntN(len(nodes))], volumes[r.IntN(len(volumes))]
	name := fmt.Sprintf("%s-%s-%d", volume, node, r.IntN(2))
	switch n := r.IntN(20); {
	case n < 9:
		w.want(name, node, volume)
	case n < 14:
		w.unwant(name)
	case n < 16:
		if w.unwant(name) {
			w.chance.reach(remade)
			w.later(w.chance.between("wish", 0, 30*time.Second), func() { w.want(name, node, volume) })
		}
	case n == 16:
		w.nodes[node].reboot()
	case n == 17:
		w.nodes[node].restart()
	case n == 18:
		w.lower(name)
	}
}

func (w *World) want(name, node, volume string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != "" || w.chance.ceased() || w.intent(name) != nil {
		return
	}
	w.by = "somebody"
	claim := &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: volume}
	w.create(&volumesv1alpha1.VolumeAttachmentIntent{
		// The finalizer is what the admission policy sets.
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, Finalizers: []string{volumesv1alpha1.ReleaseFinalizer},
		},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{
			NodeName: node, Volume: volumesv1alpha1.VolumeSource{PersistentVolumeClaim: claim},
		},
	})
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
	for _, o := range w.api.list(&volumesv1alpha1.VolumeAttachmentIntent{}) {
		if i := o.(*volumesv1alpha1.VolumeAttachmentIntent); which(i) {
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
	if volume == "rwx" {
		return true
	}
	for _, o := range w.api.list(&volumesv1alpha1.VolumeAttachmentIntent{}) {
		other := o.(*volumesv1alpha1.VolumeAttachmentIntent)
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
	stop()
	m.launchAfter(20 * time.Second)
}
