/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inline

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/record"
)

// ReasonVolumeNotShown is the reason of the event on a pod whose directory selects a volume and cannot show it.
const ReasonVolumeNotShown = "VolumeNotShown"

// Place is the place of an intent in the directory of a pod.
type Place struct {
	// Directory is the target path of the directory.
	Directory string
	// Intent is the name of the place, and of the intent in the pod's namespace.
	Intent string
}

func (l Place) target() string { return filepath.Join(l.Directory, l.Intent) }

// places is what the plugin remembers of directories that no record has.
type places struct {
	mu sync.Mutex
	// ending are the directories whose pods have ended.
	ending map[string]bool
	// changing are, by directory, the reconciles of its places.
	changing map[string]*changing
}

// changing counts reconciles. The last one closes idle.
type changing struct {
	count int
	idle  chan struct{}
}

// beginEnd lets no reconcile of a place of the directory begin any more, and waits for those that have begun: they may
// be about to show a volume.
func (p *Plugin) beginEnd(ctx context.Context, directory string) error {
	p.places.mu.Lock()
	p.places.ending[directory] = true
	c := p.places.changing[directory]
	p.places.mu.Unlock()
	if c == nil {
		return nil
	}
	select {
	case <-c.idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// forgetEnd lets places of a directory at that path be reconciled again.
func (p *Plugin) forgetEnd(directory string) {
	p.places.mu.Lock()
	defer p.places.mu.Unlock()
	delete(p.places.ending, directory)
}

// beginChange returns false if the directory is on its way out. Otherwise its end waits until done is called.
func (p *Plugin) beginChange(directory string) (done func(), ok bool) {
	p.places.mu.Lock()
	defer p.places.mu.Unlock()
	if p.places.ending[directory] {
		return nil, false
	}
	if p.places.changing[directory] == nil {
		p.places.changing[directory] = &changing{idle: make(chan struct{})}
	}
	p.places.changing[directory].count++
	return func() { p.endChange(directory) }, true
}

func (p *Plugin) endChange(directory string) {
	p.places.mu.Lock()
	defer p.places.mu.Unlock()
	c := p.places.changing[directory]
	if c.count--; c.count == 0 {
		close(c.idle)
		delete(p.places.changing, directory)
	}
}

// placesOf are the places that the directory has, and those that it may get.
func (p *Plugin) placesOf(ctx context.Context, directory record.PodBind) []Place {
	var names []string
	for _, b := range p.Pods.InDirectory(directory.Target) {
		names = append(names, filepath.Base(b.Target))
	}
	list, err := p.Intents.InNamespace(ctx, directory.Pod.Namespace)
	if err != nil { // the cache is read after its start, so this is an error of the program
		p.Log.Error(err, "the intents of a directory are not known", "directory", directory.Target)
	}
	for _, i := range list {
		names = append(names, i.Name)
	}
	slices.Sort(names)
	var all []Place
	for _, name := range slices.Compact(names) {
		all = append(all, Place{Directory: directory.Target, Intent: name})
	}
	return all
}

// EnqueueAll has every place of every directory reconciled.
func (p *Plugin) EnqueueAll(ctx context.Context) {
	for _, b := range p.Pods.All() {
		if !b.IsDirectory() {
			continue
		}
		for _, place := range p.placesOf(ctx, b) {
			p.Enqueue(place)
		}
	}
}

// IntentChanged has the places of the intent reconciled.
func (p *Plugin) IntentChanged(intent types.NamespacedName) {
	for _, b := range p.Pods.Directories(intent.Namespace) {
		p.Enqueue(Place{Directory: b.Target, Intent: intent.Name})
	}
}

// ReconcilePlace shows the volume of the intent at its place in the directory, or takes it away. It returns after how
// long to try again what a process of the pod keeps; zero if there is nothing to wait for.
func (p *Plugin) ReconcilePlace(ctx context.Context, place Place) (retry time.Duration, err error) {
	done, ok := p.beginChange(place.Directory)
	if !ok {
		return 0, nil
	}
	defer done()
	unlock, err := p.targets.lock(ctx, place.target())
	if err != nil {
		return 0, err
	}
	defer unlock()
	directory, known := p.Pods.Get(place.Directory)
	if !known || !directory.IsDirectory() {
		return 0, nil
	}
	for range 2 { // what is taken away may have to be shown as it is now
		f, err := p.factsOf(ctx, directory, place)
		if err != nil {
			return 0, err
		}
		switch decide(f) {
		case show:
			return 0, p.show(ctx, directory, place, f)
		case takeAway:
			if wait := p.holds.wait(place.target()); wait > 0 {
				return wait, nil
			}
			if err := p.clear(ctx, *f.bind); err != nil {
				return p.noteHeld(*f.bind, err)
			}
		default:
			p.holds.forget(place.target())
			return 0, nil
		}
	}
	return 0, nil
}

func (p *Plugin) factsOf(ctx context.Context, directory record.PodBind, place Place) (placeFacts, error) {
	var f placeFacts
	var err error
	if directory.Selector != "" {
		if f.selector, err = labels.Parse(directory.Selector); err != nil {
			return f, fmt.Errorf("reading the selector of directory %s: %w", directory.Target, err)
		}
	}
	key := types.NamespacedName{Namespace: directory.Pod.Namespace, Name: place.Intent}
	if f.intent, err = p.Intents.Cached(ctx, key); err != nil {
		return f, err
	}
	if f.intent != nil {
		if f.published, err = p.Intents.Published(f.intent); err != nil {
			return f, err
		}
	}
	b, bound := p.Pods.Get(place.target())
	if !bound {
		return f, nil
	}
	table, err := p.Mounts.Table()
	if err != nil {
		return f, err
	}
	f.bind, f.forcedAway = &b, p.Intents.ForcedAway(b)
	f.mounted = record.PresenceOfPart(table, b.Target, b.Source) == record.Present
	return f, nil
}

// show binds the publication at the place, unless the pod is gone. A publication that goes meanwhile comes back as
// another change.
//
// A pod that was deleted with force may run on, and its namespace may be that of another tenant by now. So the pod is
// read after the intent was found: while it exists, no later namespace of that name can have an intent.
func (p *Plugin) show(ctx context.Context, directory record.PodBind, place Place, f placeFacts) error {
	r := request{pod: directory.Pod, target: place.target(), directory: directory.Target, readOnly: directory.ReadOnly,
		intent: types.NamespacedName{Namespace: f.intent.Namespace, Name: f.intent.Name}}
	pod, err := p.livePod(ctx, r.pod)
	switch {
	case err != nil: // no event: it would be about the API server, not about the volume
		return fmt.Errorf("whether pod %s still exists is not known: %w", r.pod, err)
	case pod == nil:
		p.noteGone(r)
		return nil
	}
	if f.bind != nil {
		err = p.mountAgain(ctx, *f.bind, *f.published)
	} else {
		err = p.bind(ctx, r, found{intent: f.intent, Publication: *f.published})
	}
	switch {
	case err == nil:
		p.holds.forget(r.target)
		return nil
	case errors.Is(err, record.ErrOtherPod):
		p.noteNotShown(r, f.intent, "another pod has the volume, whose access mode is ReadWriteOncePod")
		return nil
	case errors.Is(err, errGone):
		return nil
	}
	p.noteNotShown(r, f.intent, status.Convert(err).Message())
	return err
}

// mountAgain brings back a mount that has gone, under the record that it has. A volume that was staged again may have
// another device number. Then the record has it before the bind, as it does before a first one.
func (p *Plugin) mountAgain(ctx context.Context, b record.PodBind, f Publication) error {
	if b.Source != f.Source || b.Whole != f.Whole {
		b.Source, b.Whole = f.Source, f.Whole
		if err := p.addBind(b, f.SinglePod); err != nil {
			return err
		}
	}
	return p.mount(ctx, b, f.Path)
}

// noteGone logs once that a pod gets nothing new. An event would be one of a pod that others may not know.
func (p *Plugin) noteGone(r request) {
	if p.holds.news(r.target, "the pod is gone from the API") {
		p.Log.Info("a volume is not shown in a directory whose pod is gone from the API", "pod", r.pod, "uid", r.pod.UID,
			"intent", r.intent)
	}
}

// noteNotShown reports, once for each cause, that a volume does not appear.
func (p *Plugin) noteNotShown(r request, i *volumesv1alpha1.VolumeAttachmentIntent, because string) {
	if p.holds.news(r.target, because) {
		intent := volumesv1alpha1.IntentReference{Namespace: i.Namespace, Name: i.Name, UID: i.UID}
		p.event(r.pod, operation.IntentObject(intent), ReasonVolumeNotShown, fmt.Sprintf(
			"the volume of VolumeAttachmentIntent %s is not in the directory of the pod: %s", r.intent, because))
	}
}
