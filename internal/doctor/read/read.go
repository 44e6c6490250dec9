/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package read reads a cluster for package doctor: one list for each kind, in pages, several at once. Of each object it
// keeps what the checks need. What may not be read keeps its error, and the rest is read all the same.
package read

import (
	"context"
	"slices"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/doctor"
	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// page is how many objects of a list are read at once, and statePage how many node states: one may have a megabyte.
const (
	page      = 500
	statePage = 100
)

// Cluster reads a cluster; of one namespace only, if one is given. If the context ends, what was read until then comes
// with the context's error.
func Cluster(ctx context.Context, r facts.Reader, namespace, system string) (*doctor.Cluster, error) {
	installed, err := r.Installed(ctx)
	if err != nil {
		return nil, err
	}
	c := &doctor.Cluster{Namespace: namespace, Installed: installed, System: system}
	all := &reads{ctx: ctx, reader: r}
	within := client.InNamespace(namespace)
	run(all, &c.Pods, &corev1.PodList{}, within)
	run(all, &c.Claims, &corev1.PersistentVolumeClaimList{}, within)
	run(all, &c.Volumes, &corev1.PersistentVolumeList{})
	run(all, &c.Nodes, &corev1.NodeList{})
	run(all, &c.Classes, &storagev1.StorageClassList{})
	run(all, &c.Drivers, &storagev1.CSIDriverList{})
	run(all, &c.CSINodes, &storagev1.CSINodeList{})
	run(all, &c.Attachments, &storagev1.VolumeAttachmentList{})
	var installedPolicies policies
	if installed {
		run(all, &c.Intents, &volumesv1alpha1.VolumeAttachmentIntentList{}, within)
		run(all, &c.States, &volumesv1alpha1.NodeVolumeStateList{}, client.Limit(statePage))
		run(all, &c.Managers, &volumesv1alpha1.VolumeManagerList{})
		run(all, &c.Leases, &coordinationv1.LeaseList{}, client.InNamespace(system))
		installedPolicies.read(all)
	}
	all.Wait()
	if installed {
		c.Policies, c.PoliciesErr = installedPolicies.missing(c)
	}
	readEvents(ctx, r, c)
	return c, ctx.Err()
}

// reads are lists that are read at once.
type reads struct {
	sync.WaitGroup
	ctx    context.Context // of this one pass
	reader client.Reader
}

// run reads a list beside others.
func run[T any, P interface {
	*T
	client.Object
}](all *reads, into *facts.List[P], empty client.ObjectList, options ...client.ListOption) {
	all.Go(func() { *into = list[T, P](all.ctx, all.reader, empty, options...) })
}

// list reads all pages of a list, and keeps the part of each object that is needed.
func list[T any, P interface {
	*T
	client.Object
}](ctx context.Context, r client.Reader, empty client.ObjectList, options ...client.ListOption) (all facts.List[P]) {
	size := (&client.ListOptions{Limit: page}).ApplyOptions(options).Limit
	p := pager.ListPager{PageSize: size, PageBufferSize: 1,
		PageFn: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			into := empty.DeepCopyObject().(client.ObjectList)
			return into, r.List(ctx, into, append(options[:len(options):len(options)], client.Limit(o.Limit),
				client.Continue(o.Continue))...)
		}}
	read := func() {
		all.Items = nil
		all.Err = p.EachListItemWithAlloc(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
			if o := object.(P); Trim(o) {
				all.Items = append(all.Items, o)
			}
			return nil
		})
	}
	if read(); apierrors.IsResourceExpired(all.Err) {
		p.PageSize = 0 // all at once: the API server does not keep the version of the first page
		read()
	}
	if all.Err != nil {
		all.Items = nil
	}
	return all
}

// readEvents reads the events that explain what waits, if something does: they are many, and no API server has them in
// memory.
func readEvents(ctx context.Context, r client.Reader, c *doctor.Cluster) {
	all := &reads{ctx: ctx, reader: r}
	within := client.InNamespace(c.Namespace)
	var ofPods, ofClaims, ofNodes doctor.List[corev1.Event]
	if slices.ContainsFunc(c.Pods.Items, func(p *corev1.Pod) bool { return !explain.PodSettled(p) }) {
		run(all, &ofPods, &corev1.EventList{}, within, selected("involvedObject.kind=Pod,type=Warning"))
	}
	if slices.ContainsFunc(c.Claims.Items, func(p *corev1.PersistentVolumeClaim) bool {
		return p.Status.Phase != corev1.ClaimBound
	}) {
		run(all, &ofClaims, &corev1.EventList{}, within, selected("involvedObject.kind=PersistentVolumeClaim"))
	}
	nodes := map[string]bool{}
	for _, n := range c.Nodes.Items {
		nodes[n.Name] = true
	}
	if slices.ContainsFunc(c.Attachments.Items, func(va *storagev1.VolumeAttachment) bool {
		return !nodes[va.Spec.NodeName]
	}) {
		run(all, &ofNodes, &corev1.EventList{}, client.InNamespace(metav1.NamespaceDefault),
			selected("involvedObject.kind=Node,reason=RemovingNode"))
	}
	all.Wait()
	for _, l := range []doctor.List[corev1.Event]{ofPods, ofClaims, ofNodes} {
		c.Events.Items = append(c.Events.Items, l.Items...)
		if l.Err != nil {
			c.Events.Err = l.Err
		}
	}
}

func selected(text string) client.ListOption {
	return client.MatchingFieldsSelector{Selector: fields.ParseSelectorOrDie(text)}
}
