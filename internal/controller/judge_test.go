/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package controller_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/handshake"
)

// happening is one change of one object. The versions of all objects come from one counter, so they put all changes
// in order.
type happening struct {
	version uint64
	object  client.Object
	gone    bool
}

// witness has seen every change since it began.
type witness struct {
	*testing.T
	client   client.WithWatch
	sentinel string

	mu        sync.Mutex
	seen      []happening
	sentinels map[string]chan struct{}
}

// witness watches everything that the handshake is kept in.
func (w *world) witness(t *testing.T, name string) *witness {
	t.Helper()
	s := &witness{T: t, client: w.client, sentinel: name, sentinels: map[string]chan struct{}{}}
	for _, o := range s.sentinelObjects() {
		s.sentinels[fmt.Sprintf("%T", o)] = make(chan struct{})
	}
	for _, list := range []client.ObjectList{
		&volumesv1alpha1.NodeVolumeStateList{}, &corev1.NodeList{}, &storagev1.VolumeAttachmentList{}, &corev1.ConfigMapList{},
	} {
		watcher, err := w.client.Watch(t.Context(), list)
		if err != nil {
			t.Fatalf("watching %T: %v", list, err)
		}
		done := make(chan struct{})
		t.Cleanup(func() { watcher.Stop(); <-done })
		go func() {
			defer close(done)
			for e := range watcher.ResultChan() {
				s.see(e)
			}
		}()
	}
	return s
}

func (s *witness) see(e watch.Event) {
	o, ok := e.Object.(client.Object)
	if !ok && s.Context().Err() != nil {
		return
	}
	if !ok {
		s.Errorf("the witness went blind: %v", e.Object)
		return
	}
	version, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		s.Errorf("a version that is no number: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.GetName() == s.sentinel {
		if e.Type == watch.Added {
			close(s.sentinels[fmt.Sprintf("%T", o)])
		}
		return
	}
	s.seen = append(s.seen, happening{version: version, object: o, gone: e.Type == watch.Deleted})
}

// sentinelObjects are created last: a watcher that has seen them has seen everything.
func (s *witness) sentinelObjects() []client.Object {
	named := metav1.ObjectMeta{Name: s.sentinel}
	return []client.Object{
		&volumesv1alpha1.NodeVolumeState{ObjectMeta: named},
		&corev1.Node{ObjectMeta: named},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: s.sentinel}},
		&storagev1.VolumeAttachment{ObjectMeta: named, Spec: storagev1.VolumeAttachmentSpec{
			Attacher: s.sentinel, NodeName: s.sentinel, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &s.sentinel},
		}},
	}
}

// story is everything that happened until now, in order.
func (s *witness) story(ctx context.Context) []happening {
	s.Helper()
	for _, o := range s.sentinelObjects() {
		if err := s.client.Create(ctx, o); err != nil {
			s.Fatalf("creating a sentinel: %v", err)
		}
		select {
		case <-s.sentinels[fmt.Sprintf("%T", o)]:
		case <-ctx.Done():
			s.Fatalf("the witness did not see its %T", o)
		}
	}
	return s.seenSoFar()
}

// seenSoFar is what the witness knows already, in order.
func (s *witness) seenSoFar() []happening {
	s.mu.Lock()
	defer s.mu.Unlock()
	story := slices.Clone(s.seen)
	slices.SortStableFunc(story, func(a, b happening) int { return cmp.Compare(a.version, b.version) })
	return story
}

// picture is the content of the API at one version.
type picture struct {
	states map[string]*volumesv1alpha1.NodeVolumeState
	nodes  map[string]*corev1.Node
	// attachments by UID.
	attachments map[types.UID]*storagev1.VolumeAttachment
	// locks by the name of their ConfigMap and the volume.
	locks map[string]map[string]exclusive.Lock
	// final are the attachments that were Detaching once.
	final map[types.UID]bool
}

func newPicture() *picture {
	return &picture{
		map[string]*volumesv1alpha1.NodeVolumeState{}, map[string]*corev1.Node{}, map[types.UID]*storagev1.VolumeAttachment{},
		map[string]map[string]exclusive.Lock{}, map[types.UID]bool{},
	}
}

func set[K comparable, V any](m map[K]V, key K, value V, gone bool) {
	if gone {
		delete(m, key)
		return
	}
	m[key] = value
}

// add draws a happening in, and returns what must not have happened.
func (p *picture) add(h happening) []string {
	var wrong []string
	switch o := h.object.(type) {
	case *volumesv1alpha1.NodeVolumeState:
		set(p.states, o.Name, o, h.gone)
		for _, e := range o.Spec.Attachments {
			if e.State == volumesv1alpha1.AttachmentDetaching {
				p.final[e.AttachmentUID] = true
			} else if p.final[e.AttachmentUID] {
				wrong = append(wrong, fmt.Sprintf("Detaching of %s on %s was taken back", short(e.VolumeName), o.Name))
			}
		}
	case *corev1.Node:
		set(p.nodes, o.Name, o, h.gone)
	case *storagev1.VolumeAttachment:
		before := p.attachments[o.UID]
		deleted := h.gone || o.DeletionTimestamp != nil
		if deleted && before != nil && before.DeletionTimestamp == nil {
			wrong = append(wrong, p.deleted(o)...)
		}
		set(p.attachments, o.UID, o, h.gone)
	case *corev1.ConfigMap:
		locks, err := exclusive.Locks(o)
		if err != nil {
			wrong = append(wrong, err.Error())
		}
		set(p.locks, o.Name, locks, h.gone)
	}
	return append(wrong, p.standing()...)
}

// deleted: nothing is deleted that its node uses, or that is not Detaching.
func (p *picture) deleted(va *storagev1.VolumeAttachment) []string {
	var wrong []string
	nvs := p.states[va.Spec.NodeName]
	if nvs == nil {
		return nil
	}
	detaching := false
	for _, e := range nvs.Spec.Attachments {
		if e.AttachmentUID != va.UID {
			continue
		}
		detaching = detaching || e.State == volumesv1alpha1.AttachmentDetaching
		if e.Evidence != nil && e.Evidence.Type != volumesv1alpha1.EvidenceAgentReleased {
			continue
		}
		if line := handshake.VolumeOf(nvs, e.VolumeName); line != nil && line.InUse {
			wrong = append(wrong, fmt.Sprintf("the attachment of %s to %s is deleted while %s uses it", short(e.VolumeName), nvs.Name, line.PublishedBy))
		}
	}
	if !detaching {
		wrong = append(wrong, fmt.Sprintf("attachment %s to %s is deleted without Detaching", va.UID, nvs.Name))
	}
	return wrong
}

// standing is what is wrong at present.
func (p *picture) standing() []string {
	var wrong []string
	usable := map[string][]string{}
	for _, node := range slices.Sorted(maps.Keys(p.states)) {
		nvs := p.states[node]
		for i := range nvs.Spec.Attachments {
			e := &nvs.Spec.Attachments[i]
			wrong = append(wrong, p.entry(node, e)...)
			line := handshake.VolumeOf(nvs, e.VolumeName)
			if p.live(e) && line != nil && line.InUse && line.AttachmentUID == e.AttachmentUID {
				usable[e.VolumeName] = append(usable[e.VolumeName], node)
			}
		}
	}
	for _, volume := range slices.Sorted(maps.Keys(usable)) {
		if nodes := usable[volume]; len(nodes) > 1 {
			wrong = append(wrong, fmt.Sprintf("%s is usable on %q", short(volume), nodes))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.nodes)) {
		for _, v := range p.nodes[name].Status.VolumesAttached {
			if nvs := p.states[name]; nvs == nil || handshake.AttachmentOf(nvs, string(v.Name)) == nil {
				wrong = append(wrong, fmt.Sprintf("%s is listed in volumesAttached of %s, and no entry speaks of it", short(string(v.Name)), name))
			}
		}
	}
	return wrong
}

func (p *picture) live(e *volumesv1alpha1.NodeAttachment) bool {
	va := p.attachments[e.AttachmentUID]
	return e.State == volumesv1alpha1.AttachmentAttached && va != nil && va.Status.Attached && va.DeletionTimestamp == nil
}

// entry: one that is Attached has a live attachment and the lock; one that is unlisted is not listed.
func (p *picture) entry(node string, e *volumesv1alpha1.NodeAttachment) []string {
	var wrong []string
	tell := func(what string) { wrong = append(wrong, fmt.Sprintf("%s on %s %s", short(e.VolumeName), node, what)) }
	if e.State == volumesv1alpha1.AttachmentAttached {
		if !p.live(e) {
			tell("is Attached without a live attachment")
		}
		lock := p.locks[exclusive.Key(e.VolumeName).Name][e.VolumeName]
		if lock.Holder != node && lock.MovedFrom != node {
			tell(fmt.Sprintf("is Attached while the lock is %+v", lock))
		}
	}
	if n := p.nodes[node]; n != nil && e.UnlistedGeneration > 0 && listsVolume(n, e.VolumeName) {
		tell("is said to be unlisted and is listed")
	}
	return wrong
}

func listsVolume(n *corev1.Node, volume string) bool {
	return slices.ContainsFunc(n.Status.VolumesAttached, func(v corev1.AttachedVolume) bool { return string(v.Name) == volume })
}

// judge goes through a story and reports each rule that is broken, once for as long as it stays broken, and of what
// led to the first.
func judge(story []happening) []string {
	p := newPicture()
	var verdict []string
	standing := map[string]bool{}
	for at, h := range story {
		now := map[string]bool{}
		for _, wrong := range p.add(h) {
			if !standing[wrong] {
				verdict = append(verdict, fmt.Sprintf("at %d: %s", h.version, wrong))
				if len(verdict) == 1 {
					verdict[0] += "\n" + tellStory(story[max(0, at-40):at+1])
				}
			}
			now[wrong] = true
		}
		standing = now
	}
	return verdict
}

func tellStory(story []happening) string {
	var lines []string
	for _, h := range story {
		what := ""
		switch o := h.object.(type) {
		case *volumesv1alpha1.NodeVolumeState:
			for _, e := range o.Spec.Attachments {
				what += fmt.Sprintf(" %s %s %.4s unlisted=%d;", short(e.VolumeName), e.State, e.AttachmentUID, e.UnlistedGeneration)
			}
			for _, v := range o.Status.Volumes {
				what += fmt.Sprintf(" %s in use %.4s by %s;", short(v.VolumeName), v.AttachmentUID, v.PublishedBy)
			}
			what += fmt.Sprintf(" fences=%d generation=%d observed=%d", o.Spec.Fences, o.Generation, o.Status.ObservedGeneration)
		case *corev1.Node:
			what = fmt.Sprintf(" attached=%v inUse=%v", o.Status.VolumesAttached, o.Status.VolumesInUse)
		case *storagev1.VolumeAttachment:
			what = fmt.Sprintf(" %s on %s %.4s attached=%v deleted=%v", *o.Spec.Source.PersistentVolumeName, o.Spec.NodeName, o.UID, o.Status.Attached, o.DeletionTimestamp != nil)
		case *corev1.ConfigMap:
			what = fmt.Sprintf(" %v", o.Data)
		}
		lines = append(lines, fmt.Sprintf("  %d %s %s gone=%v:%s", h.version, strings.TrimPrefix(fmt.Sprintf("%T", h.object), "*"), h.object.GetName(), h.gone, what))
	}
	return strings.Join(lines, "\n")
}
