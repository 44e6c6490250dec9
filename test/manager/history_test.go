/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// apiChange is one change of one object. The versions of all objects come from one counter, so they put all changes
// in order.
type apiChange struct {
	version uint64
	object  client.Object
	deleted bool
	// initial: the object was there when the recorder began. What happened to it before is not known.
	initial bool
}

// recorder records every change since it began.
type recorder struct {
	*testing.T
	client   client.WithWatch
	sentinel string

	mu        sync.Mutex
	changes   []apiChange
	sentinels map[string]chan struct{}
}

// record watches all kinds of objects that the handshake uses.
func (w *world) record(t *testing.T, name string) *recorder {
	t.Helper()
	s := &recorder{T: t, client: w.client, sentinel: name, sentinels: map[string]chan struct{}{}}
	for _, o := range s.sentinelObjects() {
		s.sentinels[fmt.Sprintf("%T", o)] = make(chan struct{})
	}
	// All kinds as of one version. The watches continue from there.
	first := &volumesv1alpha1.NodeVolumeStateList{}
	if err := w.client.List(t.Context(), first); err != nil {
		t.Fatalf("listing %T: %v", first, err)
	}
	for _, list := range []client.ObjectList{
		&volumesv1alpha1.NodeVolumeStateList{}, &corev1.NodeList{}, &storagev1.VolumeAttachmentList{},
		&corev1.ConfigMapList{},
	} {
		s.start(list, first.ResourceVersion)
	}
	return s
}

// start takes the objects of a kind as of a version, and records each change after it.
func (s *recorder) start(list client.ObjectList, version string) {
	s.Helper()
	exact := &metav1.ListOptions{ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	if err := s.client.List(s.Context(), list, &client.ListOptions{Raw: exact}); err != nil {
		s.Fatalf("listing %T: %v", list, err)
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		s.Fatalf("extracting the items of %T: %v", list, err)
	}
	for _, o := range objects {
		s.add(apiChange{object: o.(client.Object), initial: true})
	}
	after := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}}
	watcher, err := s.client.Watch(s.Context(), list, after)
	if err != nil {
		s.Fatalf("watching %T: %v", list, err)
	}
	done := make(chan struct{})
	s.Cleanup(func() { watcher.Stop(); <-done })
	go func() {
		defer close(done)
		for e := range watcher.ResultChan() {
			s.observe(e)
		}
	}()
}

// add records a change.
func (s *recorder) add(h apiChange) {
	version, err := strconv.ParseUint(h.object.GetResourceVersion(), 10, 64)
	if err != nil {
		s.Errorf("resourceVersion of %T %s: error %v, want a number", h.object, h.object.GetName(), err)
	}
	h.version = version
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes = append(s.changes, h)
}

func (s *recorder) observe(e watch.Event) {
	o, ok := e.Object.(client.Object)
	if !ok && s.Context().Err() != nil {
		return
	}
	if !ok {
		s.Errorf("the recorder's watch ended with %v, want it to last as long as the test", e.Object)
		return
	}
	if o.GetName() != s.sentinel {
		s.add(apiChange{object: o, deleted: e.Type == watch.Deleted})
	} else if e.Type == watch.Added {
		close(s.sentinels[fmt.Sprintf("%T", o)])
	}
}

// sentinelObjects are created last: a watcher that has seen them has seen everything.
func (s *recorder) sentinelObjects() []client.Object {
	named := metav1.ObjectMeta{Name: s.sentinel}
	return []client.Object{
		&volumesv1alpha1.NodeVolumeState{ObjectMeta: named},
		&corev1.Node{ObjectMeta: named},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: s.sentinel}},
		&storagev1.VolumeAttachment{ObjectMeta: named, Spec: storagev1.VolumeAttachmentSpec{
			Attacher: s.sentinel, NodeName: s.sentinel,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &s.sentinel},
		}},
	}
}

// history returns all changes until now, in order.
func (s *recorder) history(ctx context.Context) []apiChange {
	s.Helper()
	for _, o := range s.sentinelObjects() {
		if err := s.client.Create(ctx, o); err != nil {
			s.Fatalf("creating a sentinel: %v", err)
		}
		select {
		case <-s.sentinels[fmt.Sprintf("%T", o)]:
		case <-ctx.Done():
			s.Fatalf("the recorder did not receive sentinel %T %s, want it", o, o.GetName())
		}
	}
	return s.historySoFar()
}

// historySoFar is what the recorder has seen already, in order.
func (s *recorder) historySoFar() []apiChange {
	s.mu.Lock()
	defer s.mu.Unlock()
	history := slices.Clone(s.changes)
	slices.SortStableFunc(history, func(a, b apiChange) int {
		switch {
		case a.initial == b.initial:
			return cmp.Compare(a.version, b.version)
		case a.initial:
			return -1
		}
		return 1
	})
	return history
}

func formatHistory(history []apiChange) string {
	var lines []string
	for _, h := range history {
		what := ""
		switch o := h.object.(type) {
		case *volumesv1alpha1.NodeVolumeState:
			for _, e := range o.Spec.Attachments {
				what += fmt.Sprintf(" %s %s %.4s unlisted=%d;", short(e.VolumeName), e.State, e.AttachmentUID,
					e.Protocol.UnlistedGeneration)
			}
			for _, v := range o.Status.Volumes {
				what += fmt.Sprintf(" %s in use %.4s by %s;", short(v.VolumeName), v.AttachmentUID, v.PublishedBy)
			}
			what += fmt.Sprintf(" fences=%d generation=%d observed=%d", o.Spec.Protocol.Fences, o.Generation,
				o.Status.ObservedGeneration)
		case *corev1.Node:
			what = fmt.Sprintf(" attached=%v inUse=%v", o.Status.VolumesAttached, o.Status.VolumesInUse)
		case *storagev1.VolumeAttachment:
			what = fmt.Sprintf(" %s on %s %.4s attached=%v deleted=%v", *o.Spec.Source.PersistentVolumeName, o.Spec.NodeName,
				o.UID, o.Status.Attached, o.DeletionTimestamp != nil)
		case *corev1.ConfigMap:
			what = fmt.Sprintf(" %v", o.Data)
		}
		lines = append(lines, fmt.Sprintf("  %d %s %s gone=%v:%s", h.version,
			strings.TrimPrefix(fmt.Sprintf("%T", h.object), "*"), h.object.GetName(), h.deleted, what))
	}
	return strings.Join(lines, "\n")
}
