/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kubelet plays the volume manager of a machine's kubelet. It reports which volumes it uses, and mounts what the Node
// lists as attached. It keeps records beside its mounts, and undoes everything once no container of a pod runs any
// more. A restarted kubelet knows only what it reads in the records of its pods.
type kubelet struct {
	m      *machine
	p      *process
	api    live
	driver *driverOf
	ctx    context.Context
	stop   context.CancelFunc

	mu sync.Mutex
	// synced: the pods have been listed.
	synced  bool
	pods    map[types.UID]*corev1.Pod
	volumes map[string]*podVolume
	// ending are the pods whose containers are being stopped.
	ending map[types.UID]bool
}

// podVolume is what a kubelet knows of one volume. The kubelet's lock guards it.
type podVolume struct {
	// name of the claim and of the PersistentVolume.
	name string
	// attached: the kubelet has found the volume attached once, and does not ask again.
	attached bool
	// reported: a pod wants the volume, and the Node has listed it as in use since then.
	reported bool
	// staged, and perhaps staged: a call may have had its effect.
	staged, mayBeStaged bool
	// published for these pods; false where a call may have had its effect.
	published map[types.UID]bool
	wake      chan struct{}
}

func (v *podVolume) handle() string { return "vol-" + v.name }

// startKubeletAfter starts a kubelet after that time, unless a later start replaces this one.
func (m *machine) startKubeletAfter(d time.Duration) {
	if !m.world.replace {
		return
	}
	m.world.mu.Lock()
	m.kubeletLife++
	life := m.kubeletLife
	m.world.mu.Unlock()
	m.world.later(d, func() { m.startKubelet(life) })
}

func (m *machine) startKubelet(life int) {
	w := m.world
	p := w.process("kubelet of "+m.name, kubeletKilled, func() {
		m.startKubeletAfter(w.chance.between(m.name, time.Second, 30*time.Second))
	})
	p.prompt = true
	ctx, cancel := context.WithCancel(w.ctx)
	k := &kubelet{
		m: m, p: p, api: live{p}, driver: &driverOf{m: m, p: p}, ctx: ctx, stop: cancel,
		pods: map[types.UID]*corev1.Pod{}, volumes: map[string]*podVolume{}, ending: map[types.UID]bool{},
	}
	w.mu.Lock()
	if life != m.kubeletLife || m.off {
		w.mu.Unlock()
		cancel()
		return
	}
	m.kubelet = k
	w.logLocked("%s starts", p.name)
	k.reconstruct()
	w.mu.Unlock()
	w.running.Go(k.follow)
	w.running.Go(k.report)
	for _, name := range slices.Sorted(maps.Keys(k.volumes)) {
		v := k.volumes[name]
		w.running.Go(func() { k.run(v) })
	}
}

// kill the kubelet. Its containers go on. The world is locked.
func (k *kubelet) kill() {
	if k != nil {
		k.p.kill()
		k.stop()
	}
}

// restartKubelet kills the kubelet, and another one comes.
func (m *machine) restartKubelet() {
	w := m.world
	w.chance.reach(kubeletKilled)
	w.mu.Lock()
	m.kubelet.kill()
	w.logLocked("the kubelet of %s is restarted", m.name)
	w.mu.Unlock()
	m.startKubeletAfter(w.chance.between(m.name, time.Second, 20*time.Second))
}

func (k *kubelet) isOver() bool { return k.p.isDead() || k.ctx.Err() != nil }

// pause for a time between these; false once the kubelet has ended.
func (k *kubelet) pause(least, most time.Duration) bool {
	return sleep(k.ctx, k.p.between(least, most)) == nil && !k.isOver()
}

// follow the pods that are bound to the node.
func (k *kubelet) follow() {
	on := client.MatchingFields{"spec.nodeName": k.m.name}
	for !k.isOver() {
		pods := &corev1.PodList{}
		if err := k.api.List(k.ctx, pods, on); err != nil {
			k.pause(time.Second, 5*time.Second)
			continue
		}
		k.learn(func() {
			clear(k.pods)
			for i := range pods.Items {
				k.pods[pods.Items[i].UID] = &pods.Items[i]
			}
			k.synced = true
		})
		events, err := k.api.Watch(k.ctx, pods, on)
		if err != nil {
			k.pause(time.Second, 5*time.Second)
			continue
		}
		k.take(events)
	}
}

// take the events of a watch until it ends.
func (k *kubelet) take(events watch.Interface) {
	defer events.Stop()
	for {
		select {
		case <-k.ctx.Done():
			return
		case e, open := <-events.ResultChan():
			if !open {
				return
			}
			pod := e.Object.(*corev1.Pod)
			k.learn(func() {
				if e.Type == watch.Deleted {
					delete(k.pods, pod.UID)
				} else {
					k.pods[pod.UID] = pod
				}
			})
		}
	}
}

// learn something new about pods.
func (k *kubelet) learn(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
	for _, v := range k.volumes {
		v.rouse()
	}
}

func (v *podVolume) rouse() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// report the Node's status every few seconds, where it differs from what the kubelet knows.
func (k *kubelet) report() {
	for k.pause(2*time.Second, 10*time.Second) {
		inUse := k.inUse()
		boot := k.m.bootID()
		node := k.m.world.node(k.m.name)
		if !slices.Equal(inUse, node.Status.VolumesInUse) || node.Status.NodeInfo.BootID != boot {
			body, err := json.Marshal(map[string]any{"status": map[string]any{
				"volumesInUse": inUse, "nodeInfo": map[string]any{"bootID": boot},
			}})
			k.m.world.must(err)
			node := &corev1.Node{}
			node.Name = k.m.name
			if k.api.Status().Patch(k.ctx, node, client.RawPatch(types.MergePatchType, body)) != nil {
				continue
			}
		}
		k.reported(inUse)
	}
}

// inUse are the volumes that pods want or that are attached.
func (k *kubelet) inUse() []corev1.UniqueVolumeName {
	names := []corev1.UniqueVolumeName{}
	for _, name := range slices.Sorted(maps.Keys(k.volumes)) {
		wanted := len(k.users(name)) > 0
		k.mu.Lock()
		if v := k.volumes[name]; wanted || v.attached {
			names = append(names, corev1.UniqueVolumeName(uniqueName(v.handle())))
		}
		k.mu.Unlock()
	}
	return names
}

// reported notes that the Node lists these volumes as in use.
func (k *kubelet) reported(names []corev1.UniqueVolumeName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, v := range k.volumes {
		if slices.Contains(names, corev1.UniqueVolumeName(uniqueName(v.handle()))) && !v.reported {
			v.reported = true
			v.rouse()
		}
	}
}

// users are the pods that keep the volume: those that are not being deleted, and those of which a container runs.
func (k *kubelet) users(volume string) map[types.UID]*corev1.Pod {
	k.m.world.mu.Lock()
	running := maps.Clone(k.m.containers)
	k.m.world.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	users := map[types.UID]*corev1.Pod{}
	for uid, pod := range k.pods {
		if claimOf(pod) == volume && pod.DeletionTimestamp == nil {
			users[uid] = pod
		}
	}
	for uid, name := range running {
		if name == volume {
			users[uid] = k.pods[uid]
		}
	}
	return users
}

func claimOf(pod *corev1.Pod) string { return pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName }

// run passes over the volume whenever there may be something to do, until the kubelet ends.
func (k *kubelet) run(v *podVolume) {
	for wait := time.Duration(0); !k.isOver(); {
		again := (<-chan time.Time)(nil)
		if k.pass(v) {
			wait = 0
		} else {
			wait = min(max(2*wait, 500*time.Millisecond), 16*time.Second)
			again = time.After(wait)
		}
		select {
		case <-again:
		case <-v.wake:
		case <-k.p.dead:
		case <-k.ctx.Done():
		}
	}
}
