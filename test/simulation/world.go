/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package simulation runs the real agents and the real manager in worlds of which everything else is made up: an API
// server in memory, machines with mount tables and drivers, an attacher, people who wish, and trouble of every kind,
// all chosen by a seed. Time is virtual.
//
// Every step of the real code that asks something of its world takes a time that the seed has chosen (process.pass).
// Under testing/synctest time goes on only when everybody waits, so these times alone say in which order things
// happen: a seed is one story. The world knows what nobody in it does, such as the attachment that each mount belongs
// to, and checks the invariants of package handshake whenever something changes.
package simulation

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	kresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/controller/cached"
)

// World is one story.
type World struct {
	chance *chance
	dir    string
	// verbose has the processes' own log lines in the trace.
	verbose bool
	// harsh: a driver that is restarted takes the next call while what it had begun goes on, and the numbers of devices
	// come again.
	harsh bool
	// replace: the manager attaches for pods too, and each machine has a kubelet.
	replace bool
	// inline: pods with inline volumes come and go on each machine.
	inline bool
	// twins: two PersistentVolumes have the handle of the shared volume.
	twins bool
	// sickness: filesystems fall sick.
	sickness bool
	// fences of machines are set and lifted.
	fences bool
	// managesTaint: the manager sets the out-of-service taint on a fence.
	managesTaint bool
	// machines come and go under the names of nodes.
	machines bool
	// away are the machines that are on while another one acts for their node. installations counts those that came
	// later.
	away          []*machine
	installations int
	// asleep are the attachments before whose finalizer the attacher sleeps.
	asleep map[string]bool

	ctx     context.Context
	cancel  context.CancelFunc
	over    chan struct{}
	running sync.WaitGroup

	mu    sync.Mutex
	api   *api
	nodes map[string]*machine
	// by is who makes the present change of the API.
	by string
	// writer is that process, where it is one.
	writer *process
	// late: it has given up the write that arrives now.
	late bool
	// groups have the files of these volumes.
	groups map[string]int64
	// forced are the attachments that were taken away on other evidence than the agent's word.
	forced map[types.UID]bool
	// ended are those of which an administrator has declared that nothing uses them any more.
	ended    map[types.UID]bool
	managers int
	leader   *process
	// clocks are how far the clocks of machines are off.
	clocks map[string]time.Duration
	// heir is when the next manager falls asleep.
	heir   *nap
	begun  time.Time
	trace  []string
	broken string
}

// volumeModes are the access modes of the world's volumes, by name.
var volumeModes = map[string]corev1.PersistentVolumeAccessMode{
	"rwo": corev1.ReadWriteOnce, "pod": corev1.ReadWriteOncePod, "rwx": corev1.ReadWriteMany,
}

// rawDevice is a volume that is published as a device. No pod of the world wants it.
const rawDevice = "raw"

func newWorld(seed uint64, dir string) *World {
	w := &World{
		chance: newChance(seed), dir: dir, over: make(chan struct{}), nodes: map[string]*machine{},
		begun: time.Now(), forced: map[types.UID]bool{}, ended: map[types.UID]bool{}, clocks: map[string]time.Duration{},
		asleep: map[string]bool{}, groups: map[string]int64{},
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.api = newAPI()
	w.api.wrote = w.wrote
	return w
}

// populate makes nodes and volumes, and starts everybody.
func (w *World) populate(nodes, volumes []string) {
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
	w.mu.Lock()
	for _, n := range nodes {
		w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: n, Labels: map[string]string{corev1.LabelHostname: n},
			Annotations: map[string]string{cached.ManagedNodeAnnotation: fmt.Sprint(w.replace)},
		},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{ready}}})
		w.create(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n},
			Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driverName, NodeID: n}}}})
		w.nodes[n] = w.machine(n)
		w.register(w.nodes[n])
	}
	for _, v := range volumes {
		if v == rawDevice {
			w.volume(v, corev1.ReadWriteOnce, corev1.PersistentVolumeBlock)
		} else {
			w.volume(v, volumeModes[v], corev1.PersistentVolumeFilesystem)
		}
	}
	if w.twins {
		w.volume(twin, volumeModes["rwx"], corev1.PersistentVolumeFilesystem)
	}
	w.mu.Unlock()
	w.running.Go(w.attach)
	if w.machines {
		w.later(0, w.endOthers)
	}
	w.manage()
	for _, n := range nodes {
		w.nodes[n].launchAfter(0)
		w.nodes[n].startKubeletAfter(0)
		if w.inline {
			w.running.Go(w.nodes[n].inlinePodsComeAndGo)
		}
		if w.sickness {
			w.running.Go(w.nodes[n].filesystemsFallSick)
		}
	}
}

func (w *World) create(o client.Object) client.Object {
	created, err := w.api.create(o)
	w.must(err)
	return created
}

// volume makes a claim that is bound to a volume.
func (w *World) volume(name string, access corev1.PersistentVolumeAccessMode, mode corev1.PersistentVolumeMode) {
	modes := []corev1.PersistentVolumeAccessMode{access}
	capacity := corev1.ResourceList{corev1.ResourceStorage: kresource.MustParse("1Gi")}
	claim := w.create(&corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, VolumeMode: ptr.To(mode), StorageClassName: ptr.To(""),
			VolumeName: name, Resources: corev1.VolumeResourceRequirements{Requests: capacity},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: capacity, AccessModes: modes},
	})
	w.create(&corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: modes, VolumeMode: ptr.To(mode), Capacity: capacity,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driverName, VolumeHandle: handleOf(name), FSType: "ext4",
			}},
			ClaimRef: &corev1.ObjectReference{Namespace: claim.GetNamespace(), Name: claim.GetName(), UID: claim.GetUID()},
		},
	})
}

// later has f run at a later time, unless the world is over by then.
func (w *World) later(d time.Duration, f func()) {
	go func() {
		select {
		case <-time.After(d):
			if w.ctx.Err() == nil {
				f()
			}
		case <-w.over:
		}
	}()
}

// end ends everybody, also who is dead.
func (w *World) end() {
	w.cancel()
	time.Sleep(time.Minute) // whoever is about to start has done so by then
	close(w.over)
	w.running.Wait()
	time.Sleep(5 * time.Minute) // for what sleeps whatever happens
}

func (w *World) must(err error) {
	if err != nil {
		panic(fmt.Sprintf("the world itself: %v", err))
	}
}

func (w *World) log(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.logLocked(format, args...)
}

func (w *World) logLocked(format string, args ...any) {
	at := time.Since(w.begun)
	w.trace = append(w.trace, fmt.Sprintf("%8.3f %s", at.Seconds(), fmt.Sprintf(format, args...)))
}

// logger puts a process' own lines into the trace.
func (w *World) logger(name string) logr.Logger {
	if !w.verbose {
		return logr.Discard()
	}
	return funcr.New(func(prefix, args string) {
		if w.mu.TryLock() {
			w.logLocked("    %s %s%s", name, prefix, args)
			w.mu.Unlock()
		}
	}, funcr.Options{})
}

// failure is what was broken first, with the story.
func (w *World) failure() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken == "" {
		return ""
	}
	return w.broken + "\n" + strings.Join(w.trace, "\n")
}

func (w *World) isBroken() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.broken != ""
}
