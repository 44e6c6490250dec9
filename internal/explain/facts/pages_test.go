/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package facts

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
)

// installed reads from an API server that serves Hawser's kinds.
type installed struct{ client.Reader }

func (installed) Installed(context.Context) (bool, error) { return true, nil }

func (installed) Attachments(context.Context) ([]Attachment, error) { return nil, nil }

// What is on a second page may be what keeps a node from being drained.
func TestEveryPageOfAListIsRead(t *testing.T) {
	var objects []client.Object
	for _, name := range []string{"a", "b", "c"} {
		meta := metav1.ObjectMeta{Namespace: "shop", Name: name}
		pod, intent := &corev1.Pod{ObjectMeta: meta}, &volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: meta}
		pod.Spec.NodeName, intent.Spec.NodeName = "a", "a"
		meta.Namespace = ""
		objects = append(objects, pod, intent, &corev1.Node{ObjectMeta: meta},
			&volumesv1alpha1.NodeVolumeState{ObjectMeta: meta})
	}
	b := fake.NewClientBuilder().WithScheme(controllertest.Scheme()).WithObjects(objects...).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
			return []string{o.(*corev1.Pod).Spec.NodeName}
		}).
		WithIndex(&corev1.Pod{}, "status.phase", func(client.Object) []string { return nil }).
		WithIndex(&volumesv1alpha1.VolumeAttachmentIntent{}, "spec.nodeName", func(o client.Object) []string {
			return []string{o.(*volumesv1alpha1.VolumeAttachmentIntent).Spec.NodeName}
		})
	g := &Gatherer{Reader: installed{controllertest.Paged{Reader: b.Build()}}, Now: time.Now}
	r, err := g.Drain(t.Context(), "a", "")
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Intents) != 3 || len(r.Pods.Items) != 3 || r.Pods.Err != nil {
		t.Errorf("on node a: %d intents, %d pods, error %v; want 3 of each", len(r.Intents), len(r.Pods.Items), r.Pods.Err)
	}
	states, err := g.States(t.Context(), "")
	if err != nil || len(states) != 3 {
		t.Errorf("node states: %d, error %v; want 3", len(states), err)
	}
	nodes, err := g.Others(t.Context())
	if err != nil || len(nodes) != 3 {
		t.Errorf("nodes: %d, error %v; want 3", len(nodes), err)
	}
}

// counted counts requests.
type counted struct {
	client.Reader
	gets, lists int
}

func (c *counted) Get(ctx context.Context, at client.ObjectKey, into client.Object, options ...client.GetOption) error {
	c.gets++
	return c.Reader.Get(ctx, at, into, options...)
}

func (c *counted) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	c.lists++
	return c.Reader.List(ctx, into, options...)
}

func TestManyPersistentVolumesAreReadAsOneList(t *testing.T) {
	var objects []client.Object
	var names []string
	for i := range fewVolumes + 1 {
		name := fmt.Sprintf("pv-%d", i)
		names = append(names, name, name, "")
		objects = append(objects, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	objects = append(objects, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "another"}})
	r := &counted{Reader: fake.NewClientBuilder().WithScheme(controllertest.Scheme()).WithObjects(objects...).Build()}
	g := &Gatherer{Reader: installed{r}, Now: time.Now}
	for want, gets := range map[int]int{fewVolumes + 1: 0, 1: 1} {
		r.gets, r.lists = 0, 0
		got, err := g.Persistent(t.Context(), names[:3*want])
		if err != nil || len(got) != want || r.gets != gets || r.gets+r.lists != 1 {
			t.Errorf("%d PersistentVolumes in %d gets and %d lists, error %v, want %d in one request, of which %d are gets",
				len(got), r.gets, r.lists, err, want, gets)
		}
	}
}

func TestTheEndOfDataIsFoundWithFewRequests(t *testing.T) {
	for _, n := range []int{3, fewVolumes + 1} {
		var objects []client.Object
		volumes := map[string]*corev1.PersistentVolume{}
		for i := range n {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop",
				Name: fmt.Sprintf("data-%d", i), UID: types.UID(fmt.Sprintf("uid-%d", i)), Finalizers: []string{"f/f"}}}
			pv := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
				ClaimRef:                      &corev1.ObjectReference{Namespace: "shop", Name: claim.Name, UID: claim.UID}}}
			volumes[fmt.Sprintf("pv-%d", i)] = pv
			switch i {
			case 0:
				claim.DeletionTimestamp = ptr.To(metav1.Now())
			case 1:
				pv.Spec.ClaimRef.UID = "of-the-first-claim"
			}
			objects = append(objects, claim)
		}
		r := &counted{Reader: fake.NewClientBuilder().WithScheme(controllertest.Scheme()).WithObjects(objects...).Build()}
		got := (&Gatherer{Reader: installed{r}, Now: time.Now}).Endings(t.Context(), volumes)
		if !strings.Contains(got["pv-0"].Why, "being deleted") || !strings.Contains(got["pv-1"].Why, "gone") ||
			got["pv-2"].Why != "" || got["pv-2"].Unread != "" || r.gets+r.lists > min(n, fewVolumes) {
			t.Errorf("of %d volumes: %+v with %d requests; want that the data of pv-0 and pv-1 ends, that of pv-2 stays", n, got,
				r.gets+r.lists)
		}
	}
}
