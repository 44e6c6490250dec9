/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/inline"
	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/podstats"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/internal/status"
)

// Mounts also serves the plugin for pods.
var _ inline.Mounts = boundedMounts{}

// podPlugin is the node plugin for pods, and what wakes the calls that wait in it.
type podPlugin struct {
	*inline.Plugin
	changes *inline.Changes
	// holders keep volumes in the directories of pods, by the paths of their places.
	holders *operation.Holders

	mu sync.Mutex
	// failed is why it does not serve.
	failed error
}

func (a *Agent) newPodPlugin() *podPlugin {
	changes := inline.NewChanges(a.Clock)
	holders := operation.NewHolders(a.Log, func(places []string) {
		for _, path := range places {
			a.plugin.RetrySoon(inline.Place{Directory: filepath.Dir(path), Intent: filepath.Base(path)})
		}
	})
	return &podPlugin{changes: changes, holders: holders, Plugin: inline.New(inline.Options{
		NodeName: a.NodeName, Version: a.Version, Paths: a.paths, BootID: a.bootID, Mounts: a.Mounts, Pods: a.pods,
		Intents: publishedIntents{a}, Changes: changes, Recorder: a.Recorder, Clock: a.Clock,
		Log: a.Log.WithName("pods"), Step: a.step,
		FileLabel: a.fileLabel,
		Booted:    func() time.Time { return a.Clock.Now().Add(-a.Uptime()) },
		Released:  func(volume string) { a.requeue(volume, operation.MountsChanged) }, Enqueue: a.enqueuePlace,
		Held: func(place inline.Place, held *mount.HeldError) {
			holders.Await(filepath.Join(place.Directory, place.Intent), held)
		},
	})}
}

func (a *Agent) enqueuePlace(place inline.Place) { a.queue.queue.Add(key{place: place}) }

// PodPlugin is the node plugin for inline volumes of pods, for a kubelet that calls it without a socket. It may be
// called once the agent has started.
func (a *Agent) PodPlugin() csi.NodeServer { return a.plugin }

// intentChanged wakes the calls that wait for the intent, and has it shown in directories, or taken out of them.
func (p *podPlugin) intentChanged(intent types.NamespacedName) {
	p.changes.Notify(intent)
	p.IntentChanged(intent)
}

// notify lets what depends on an intent which uses the volume go on.
func (p *podPlugin) notify(r *record.Record) {
	for _, u := range r.Uses {
		p.intentChanged(types.NamespacedName{Namespace: u.Intent.Namespace, Name: u.Intent.Name})
	}
}

// servePods serves until ctx ends. What keeps it from that must not stop the agent, which has volumes to release.
func (a *Agent) servePods(ctx context.Context) {
	for attempts := int32(1); ; attempts++ {
		err := a.plugin.Serve(ctx)
		a.setServing(err)
		if err == nil {
			return
		}
		a.Log.Error(err, "the plugin for inline volumes does not serve, trying again")
		select {
		case <-ctx.Done():
			return
		case <-a.Clock.After(status.Backoff(attempts)):
		}
	}
}

func (a *Agent) setServing(err error) {
	a.plugin.mu.Lock()
	defer a.plugin.mu.Unlock()
	a.plugin.failed = err
}

// ServingPods returns why the agent cannot give pods their inline volumes; nil while nothing keeps it from that.
func (a *Agent) ServingPods() error {
	a.plugin.mu.Lock()
	defer a.plugin.mu.Unlock()
	return a.plugin.failed
}

// publishedIntents are what the plugin needs of the agent.
type publishedIntents struct{ agent *Agent }

var _ inline.Intents = publishedIntents{}

// Cached returns the intent from the cache, with what the agent itself has reported since.
func (p publishedIntents) Cached(ctx context.Context,
	key types.NamespacedName) (*volumesv1alpha1.VolumeAttachmentIntent, error) {
	i := &volumesv1alpha1.VolumeAttachmentIntent{}
	if err := p.agent.Cache.Get(ctx, key, i); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return p.agent.intents.Newest(i), nil
}

// Live reads the intent from the API server.
func (p publishedIntents) Live(ctx context.Context,
	key types.NamespacedName) (*volumesv1alpha1.VolumeAttachmentIntent, error) {
	i := &volumesv1alpha1.VolumeAttachmentIntent{}
	return i, p.agent.Live.Get(ctx, key, i)
}

// Published compares the record of the last reconcile with the mount table and the node's state.
func (p publishedIntents) Published(i *volumesv1alpha1.VolumeAttachmentIntent) (*inline.Publication, error) {
	view, known := p.agent.views.Load(i.Status.UniqueVolumeName)
	nvs := p.agent.state.Newest()
	if !known || nvs == nil {
		return nil, nil
	}
	r := view.(*record.Record)
	u := r.UseOf(i.UID)
	if u == nil {
		return nil, nil
	}
	table, err := p.agent.Mounts.Table()
	if err != nil {
		return nil, err
	}
	f := p.facts(r, nvs)
	f.Intents = []*volumesv1alpha1.VolumeAttachmentIntent{i}
	f.Compare(table)
	e, mounted := table.At(u.Path)
	if !mounted || p.agent.examine(p.agent.steps.Lifetime, r) || p.hasMoved(*u, r) || !f.Bindable(*u) {
		return nil, nil
	}
	whole := ""
	if driver, ok := table.At(u.Target); ok && u.SubPath() != "" {
		whole = record.SourceOf(driver)
	}
	return &inline.Publication{VolumeName: r.VolumeName, AttachmentUID: r.AttachmentUID, Path: u.Path,
		Source: record.SourceOf(e), Whole: whole, Unhealthy: r.Health,
		SinglePod: slices.Contains(f.VolumeSource().AccessModes, corev1.ReadWriteOncePod)}, nil
}

// hasMoved reports whether the sub path of a publication names another directory by now. The kernel reports no rename,
// there or back, so the volume is reconciled then. That waits a little: who renames decides how often.
func (p publishedIntents) hasMoved(u record.Use, r *record.Record) bool {
	moved := p.agent.moved(p.agent.steps.Lifetime, u)
	if moved || u.Moved {
		p.agent.queue.queue.AddAfter(key{volume: r.VolumeName}, status.FirstBackoff)
	}
	return moved
}

// facts are what is known of the volume without its intents and the mount table.
func (p publishedIntents) facts(r *record.Record, nvs *volumesv1alpha1.NodeVolumeState) plan.Facts {
	return plan.Facts{Name: r.VolumeName, Paths: p.agent.paths, Now: p.agent.now(), Record: r,
		Entry: handshake.AttachmentOf(nvs, r.VolumeName), Node: handshake.NodeOf(nvs, r.VolumeName),
		Unconfirmed: !p.agent.state.Confirmed()}
}

// InNamespace lists the node's intents in the namespace, from the cache.
func (p publishedIntents) InNamespace(ctx context.Context,
	namespace string) ([]*volumesv1alpha1.VolumeAttachmentIntent, error) {
	list := &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := p.agent.Cache.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing intents: %w", err)
	}
	var intents []*volumesv1alpha1.VolumeAttachmentIntent
	for i := range list.Items {
		intents = append(intents, &list.Items[i])
	}
	return intents, nil
}

// ForcedAway reports whether the attachment of a bind was taken away while something of it is on the node.
func (p publishedIntents) ForcedAway(b record.PodBind) bool {
	view, known := p.agent.views.Load(b.VolumeName)
	nvs := p.agent.state.Newest()
	if !known || nvs == nil {
		return false
	}
	r := view.(*record.Record)
	return r.AttachmentUID == b.AttachmentUID && p.facts(r, nvs).Stale()
}

// OwnDevice reports whether the record of the volume has a block device of its own, in this boot and on the attachment
// of the bind. The release of the volume opens it exclusively.
func (p publishedIntents) OwnDevice(b record.PodBind) bool {
	view, known := p.agent.views.Load(b.VolumeName)
	if !known {
		return false
	}
	r := view.(*record.Record)
	return r.AttachmentUID == b.AttachmentUID && r.OnOwnDevice(p.agent.bootID)
}

// +kubebuilder:rbac:groups="",resources=pods,verbs=get

// Pod reads the pod from the API server.
func (p publishedIntents) Pod(ctx context.Context, pod record.PodReference) (*corev1.Pod, error) {
	read := &corev1.Pod{}
	return read, p.agent.Live.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, read)
}

// StatsOfPods returns the figures of the volumes that pods have as inline volumes, under the claims of their intents.
// The figures are those that the drivers reported last.
func (a *Agent) StatsOfPods(ctx context.Context) []podstats.Volume {
	var volumes []podstats.Volume
	a.views.Range(func(_, view any) bool {
		r := view.(*record.Record)
		if r == nil {
			return true
		}
		binds := a.pods.OfVolume(r.VolumeName)
		figures := a.volume(r.VolumeName).Figures()
		if len(binds) == 0 || figures == nil {
			return true
		}
		for _, b := range binds {
			if claim := a.claimOf(ctx, r.VolumeName, b); claim != "" {
				volumes = append(volumes, podstats.Volume{Namespace: b.Intent.Namespace, Claim: claim, Figures: *figures})
			}
		}
		return true
	})
	return volumes
}

// StatsOfPublished returns the figures of all volumes that intents publish, as the drivers reported them last.
func (a *Agent) StatsOfPublished() []podstats.Published {
	var volumes []podstats.Published
	a.views.Range(func(_, view any) bool {
		if r := view.(*record.Record); r != nil && publishedPath(r) != "" {
			if figures := a.volume(r.VolumeName).Figures(); figures != nil {
				volumes = append(volumes, podstats.Published{Driver: r.Driver, Figures: *figures})
			}
		}
		return true
	})
	return volumes
}

// claimOf is the claim of the intent whose volume a pod has; empty if the intent is gone or has another volume by now.
func (a *Agent) claimOf(ctx context.Context, volume string, b record.PodBind) string {
	i := &volumesv1alpha1.VolumeAttachmentIntent{}
	key := types.NamespacedName{Namespace: b.Intent.Namespace, Name: b.Intent.Name}
	if err := a.Cache.Get(ctx, key, i); err != nil || i.Status.UniqueVolumeName != volume ||
		i.Spec.Volume.PersistentVolumeClaim == nil {
		return ""
	}
	return i.Spec.Volume.PersistentVolumeClaim.ClaimName
}

// recoverPods loads the pod binds of earlier processes, and makes records of those that only the mount table shows.
func (a *Agent) recoverPods(ctx context.Context, records []*record.Record) error {
	table, err := a.Mounts.Table()
	if err != nil {
		return err
	}
	broken, err := a.pods.Recover(table)
	if err != nil {
		return fmt.Errorf("recovering pod binds: %w", err)
	}
	for _, b := range broken {
		a.Log.Error(b.Err, "the record of a pod bind is unreadable; the mount table is used instead", "file", b.Name)
	}
	var failures []error
	for _, e := range table.Entries() {
		if b, ok := a.unrecorded(e, records); ok {
			a.Log.Info("rebuilding the record of a pod bind from the mount table", "target", b.Target, "volume", b.VolumeName)
			failures = append(failures, a.pods.Add(b, false))
		}
	}
	a.plugin.EnqueueAll(ctx)
	return errors.Join(failures...)
}

// unrecorded is the pod bind that a mount is, if it has no record. The kubelet's own record beside it names the plugin.
func (a *Agent) unrecorded(e mount.Entry, records []*record.Record) (record.PodBind, bool) {
	target, directory := e.Path, ""
	pod, ok := a.paths.PodOfVolume(target)
	if !ok {
		directory, _, pod, ok = a.paths.PlaceInVolume(e.Path)
		target = directory
	}
	if _, known := a.pods.Get(e.Path); !ok || known ||
		kubelet.InlineDriver(filepath.Dir(target)) != volumesv1alpha1.InlineDriver {
		return record.PodBind{}, false
	}
	b := record.PodBind{Target: e.Path, Pod: record.PodReference{UID: pod}, Source: record.SourceOf(e),
		ReadOnly: e.ReadOnly(), BootID: a.bootID, Directory: directory}
	if e.IsDirectory() && directory == "" {
		b.Directory = e.Path
		return b, true
	}
	for _, r := range records {
		if stage, known := record.ParseSource(r.Stage.Source); known && e.PartOf(stage) {
			b.VolumeName, b.AttachmentUID, b.Whole = r.VolumeName, r.AttachmentUID, r.Stage.Source
		}
		for _, u := range r.Uses {
			if u.Source == b.Source && u.BootID == a.bootID {
				b.VolumeName, b.AttachmentUID, b.Intent = r.VolumeName, r.AttachmentUID, u.Intent
				return b, true
			}
		}
	}
	return b, b.VolumeName != ""
}
