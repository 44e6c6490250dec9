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

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/doctor"
	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/pages"
)

// statePage is how many node states are read at once: one may have a megabyte.
const statePage = 100

// Cluster reads a cluster; of one namespace only, if one is given. If the context ends, what was read until then comes
// with the context's error.
func Cluster(ctx context.Context, r facts.Reader, namespace, system string) (*doctor.Cluster, error) {
	installed, err := r.Installed(ctx)
	if err != nil {
		return nil, err
	}
	c := &doctor.Cluster{Namespace: namespace, Installed: installed, System: system}
	all := pages.New(ctx, r, Trim)
	within := client.InNamespace(namespace)
	pages.Read(all, &c.Pods, &corev1.PodList{}, within)
	pages.Read(all, &c.Claims, &corev1.PersistentVolumeClaimList{}, within)
	pages.Read(all, &c.Volumes, &corev1.PersistentVolumeList{})
	pages.Read(all, &c.Nodes, &corev1.NodeList{})
	pages.Read(all, &c.Classes, &storagev1.StorageClassList{})
	pages.Read(all, &c.Drivers, &storagev1.CSIDriverList{})
	pages.Read(all, &c.CSINodes, &storagev1.CSINodeList{})
	pages.Read(all, &c.Attachments, &storagev1.VolumeAttachmentList{})
	var installedPolicies policies
	if installed {
		pages.Read(all, &c.Intents, &volumesv1alpha1.VolumeAttachmentIntentList{}, within)
		pages.Read(all, &c.States, &volumesv1alpha1.NodeVolumeStateList{}, client.Limit(statePage))
		pages.Read(all, &c.Managers, &volumesv1alpha1.VolumeManagerList{})
		pages.Read(all, &c.Leases, &coordinationv1.LeaseList{}, client.InNamespace(system))
		installedPolicies.read(all)
	}
	all.Wait()
	if installed {
		c.Policies, c.PoliciesErr = installedPolicies.missing(c)
	}
	readEvents(ctx, r, c)
	readMissing(ctx, r, c)
	return c, ctx.Err()
}

// readEvents reads the events that explain what waits, if something does: they are many, and no API server has them in
// memory.
func readEvents(ctx context.Context, r client.Reader, c *doctor.Cluster) {
	all := pages.New(ctx, r, Trim)
	within := client.InNamespace(c.Namespace)
	var ofPods, ofClaims, ofNodes doctor.List[corev1.Event]
	if slices.ContainsFunc(c.Pods.Items, func(p *corev1.Pod) bool { return !explain.PodSettled(p) }) {
		pages.Read(all, &ofPods, &corev1.EventList{}, within, selected("involvedObject.kind=Pod,type=Warning"))
	}
	if slices.ContainsFunc(c.Claims.Items, func(p *corev1.PersistentVolumeClaim) bool {
		return p.Status.Phase != corev1.ClaimBound || len(p.Status.AllocatedResourceStatuses) > 0
	}) {
		pages.Read(all, &ofClaims, &corev1.EventList{}, within, selected("involvedObject.kind=PersistentVolumeClaim"))
	}
	nodes := map[string]bool{}
	for _, n := range c.Nodes.Items {
		nodes[n.Name] = true
	}
	if slices.ContainsFunc(c.Attachments.Items, func(va *storagev1.VolumeAttachment) bool {
		return !nodes[va.Spec.NodeName]
	}) {
		pages.Read(all, &ofNodes, &corev1.EventList{}, client.InNamespace(metav1.NamespaceDefault),
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

// mostMissing is how many Secrets and ConfigMaps are read.
const mostMissing = 20

// readMissing reads whether the Secrets and ConfigMaps exist by now that events of waiting pods name as not found. It
// reads their metadata alone.
func readMissing(ctx context.Context, r client.Reader, c *doctor.Cluster) {
	waits := map[types.UID]bool{}
	for _, pod := range c.Pods.Items {
		waits[pod.UID] = !explain.PodSettled(pod)
	}
	c.Missing = map[facts.Ref]error{}
	for _, e := range c.Events.Items {
		ref, ok := facts.NotFoundIn(e.Message, e.InvolvedObject.Namespace)
		if _, known := c.Missing[ref]; !ok || known || !waits[e.InvolvedObject.UID] || len(c.Missing) == mostMissing {
			continue
		}
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(ref.Kind))
		c.Missing[ref] = r.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, object)
	}
}
