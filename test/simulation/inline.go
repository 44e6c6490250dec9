/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent"
)

// inlinePod plays a pod with the inline volume of an intent, and the kubelet's calls for it. The pod is no object of
// the API: the agent never asks for it. A pod outlives the agent, and a reboot, after which its kubelet asks again.
type inlinePod struct {
	m              *machine
	name           string
	intent, volume string
	// until is when the pod ends.
	until time.Time
}

// inlineBind is what a pod has at its target path.
type inlineBind struct {
	volume string
	boot   int
}

const (
	inlinePrefix = "inline-"
	// inlineVolume is the name of the volume in the pod.
	inlineVolume = "data"
)

var errNoAgent = errors.New("no agent answers")

// serve has the agent's plugin called once the agent has started, as with the agent's socket.
func (m *machine) serve(ctx context.Context, p *process, a *agent.Agent) {
	select {
	case <-ctx.Done():
		return
	case <-p.dead:
		return
	case <-a.Started():
	}
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	if m.agent == p {
		m.plugin = a.PodPlugin()
	}
}

// inlinePodsComeAndGo until the trouble ceases.
func (m *machine) inlinePodsComeAndGo() {
	w, who := m.world, "inline pods of "+m.name
	for serial := 1; ; serial++ {
		if sleep(w.ctx, w.chance.between(who, 0, 40*time.Second)) != nil || w.chance.ceased() || w.isBroken() {
			return
		}
		r := w.chance.draw(who, "intent")
		volume := []string{"rwo", "pod", "rwx"}[r.IntN(3)]
		p := &inlinePod{m: m, name: fmt.Sprintf("%s%d", inlinePrefix, serial), volume: volume,
			intent: fmt.Sprintf("%s-%s-%d", volume, m.name, r.IntN(2)),
			until:  time.Now().Add(w.chance.between(who, 10*time.Second, 4*time.Minute))}
		w.running.Go(p.live)
	}
}

func (p *inlinePod) dir() string { return filepath.Join(p.m.podsDir(), p.name) }

func (p *inlinePod) target() string {
	return filepath.Join(p.dir(), "volumes", "kubernetes.io~csi", inlineVolume, "mount")
}

func (p *inlinePod) handle() string { return "csi-" + p.name }

// live asks for the volume, again and again, until the pod ends. Then it gives the volume back. The kubelet's record
// is there before the first call: without it the agent counts the mount for whatever volume it may belong to.
func (p *inlinePod) live() {
	w := p.m.world
	w.mu.Lock()
	w.must(p.m.writeRecordOf(filepath.Dir(p.target()), "", map[string]string{"driverName": volumesv1alpha1.InlineDriver,
		"volumeHandle": p.handle(), "specVolID": inlineVolume, "volumeLifecycleMode": "Ephemeral"}))
	w.mu.Unlock()
	for time.Now().Before(p.until) && !w.isBroken() {
		if p.call(p.publish) == nil && !p.has() {
			return
		}
		if sleep(w.ctx, w.chance.between(p.who(), time.Second, 30*time.Second)) != nil {
			return
		}
	}
	w.mu.Lock()
	delete(p.m.bound, p.target())
	w.mu.Unlock()
	for p.call(p.unpublish) != nil {
		if sleep(w.ctx, w.chance.between(p.who(), time.Second, 10*time.Second)) != nil {
			return
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if e, ok := p.m.at(p.target()); ok {
		w.breaks("nothing is left of a pod: on %s %s", p.m.name, e.describe())
	}
	w.must(p.m.removeRecord(filepath.Dir(p.target()), filepath.Base(p.target())))
}

func (p *inlinePod) who() string { return p.m.name + " " + p.name }

// has notes that the pod has its volume; false if that is not so.
func (p *inlinePod) has() bool {
	w := p.m.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if b, kept := p.m.bound[p.target()]; kept && b.boot == p.m.boot {
		w.chance.reach(keptInline)
	} else {
		w.chance.reach(boundInline)
		w.logLocked("%s has %s of intent %s", p.who(), p.volume, p.intent)
	}
	p.m.bound[p.target()] = inlineBind{volume: p.volume, boot: p.m.boot}
	w.check()
	return w.broken == ""
}

// call the plugin of the agent that runs now. A call ends with the agent, whatever it has done.
func (p *inlinePod) call(method func(context.Context, csi.NodeServer) error) error {
	w := p.m.world
	w.mu.Lock()
	plugin, server := p.m.plugin, p.m.agent
	w.mu.Unlock()
	if plugin == nil || server.isDead() {
		return errNoAgent
	}
	ctx, cancel := context.WithTimeout(w.ctx, 2*time.Minute)
	defer cancel()
	answer := make(chan error, 1)
	w.running.Go(func() { answer <- method(ctx, plugin) })
	select {
	case err := <-answer:
		return err
	case <-server.dead:
		return errNoAgent
	}
}

func (p *inlinePod) publish(ctx context.Context, plugin csi.NodeServer) error {
	_, err := plugin.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: p.handle(), TargetPath: p.target(),
		VolumeContext: map[string]string{"intent": p.intent, "csi.storage.k8s.io/pod.namespace": "default",
			"csi.storage.k8s.io/pod.name": p.name, "csi.storage.k8s.io/pod.uid": p.name, "csi.storage.k8s.io/ephemeral": "true"},
		VolumeCapability: &csi.VolumeCapability{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}},
	})
	return err
}

func (p *inlinePod) unpublish(ctx context.Context, plugin csi.NodeServer) error {
	_, err := plugin.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: p.handle(),
		TargetPath: p.target()})
	return err
}

// isInline reports whether the path is in the directory of such a pod.
func (m *machine) isInline(path string) bool {
	return strings.HasPrefix(path, filepath.Join(m.podsDir(), inlinePrefix))
}

// checkInline: a pod keeps the volume that it got, and is the only pod that has a volume for a single one.
func (w *World) checkInline(m *machine) {
	single := ""
	for target, b := range m.bound {
		if b.boot != m.boot {
			continue // its kubelet asks again
		}
		e, ok := m.at(target)
		if !ok || e.handle != "vol-"+b.volume {
			w.breaks("a pod keeps its inline volume: on %s at %s is %s, want %s", m.name, short(target), e.describe(), b.volume)
		}
		if b.volume != "pod" || w.forced[e.uid] {
			continue
		}
		if single != "" {
			w.breaks("single user: on %s pods have the volume at %s and %s", m.name, short(single), short(target))
		}
		single = target
	}
}
