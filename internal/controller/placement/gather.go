/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package placement

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagehelpers "k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

// +kubebuilder:rbac:groups="",resources=nodes;pods;persistentvolumes;persistentvolumeclaims,verbs=get;list;watch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=csidrivers;storageclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=csinodes;csistoragecapacities,verbs=list;watch
// +kubebuilder:rbac:groups=volumes.hawser.io,resources=volumeattachmentintents,verbs=get;list;watch

// gatherer collects the facts of a pod.
type gatherer struct {
	// cache has the indexes.
	cache client.Reader
	// reader reads the objects that have a name: from the cache or live.
	reader client.Reader
	// gates reads pods live that the cache shows gated. It is nil where that does not matter.
	gates client.Reader
	locks Locks
}

// gather collects everything about one pod.
func (g gatherer) gather(ctx context.Context, pod *corev1.Pod) (facts, error) {
	f := facts{pod: pod}
	for i := range pod.Spec.Volumes {
		v, ok := inline(&pod.Spec.Volumes[i])
		if !ok || f.knows(v) {
			continue
		}
		if err := g.gatherVolume(ctx, pod, &v); err != nil {
			return f, fmt.Errorf("gathering volume %s: %w", v.name, err)
		}
		f.volumes = append(f.volumes, v)
	}
	list := &corev1.NodeList{}
	if err := g.cache.List(ctx, list); err != nil {
		return f, fmt.Errorf("listing nodes: %w", err)
	}
	for i := range list.Items {
		f.nodes = append(f.nodes, &list.Items[i])
	}
	// The cache lists them in any order. A message that names other nodes each time would be written each time.
	slices.SortFunc(f.nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return f, g.gatherRoom(ctx, &f)
}

// knows reports whether an earlier volume of the pod names the same object.
func (f facts) knows(v volumeFacts) bool {
	for i := range f.volumes {
		w := &f.volumes[i]
		if v.invalid == "" && w.invalid == "" && v.claimName == w.claimName && v.intentName == w.intentName {
			return true
		}
	}
	return false
}

// inline returns what a volume of the pod names; false if it restricts no nodes.
func inline(v *corev1.Volume) (volumeFacts, bool) {
	claim, intent, ok := index.Inline(v)
	if !ok {
		return volumeFacts{}, false
	}
	found := volumeFacts{name: v.Name, claimName: claim, intentName: intent}
	if (claim == "") == (intent == "") {
		found.invalid = fmt.Sprintf("set one of the attributes %s and %s, and not to an empty name",
			volumesv1alpha1.AttributeClaim, volumesv1alpha1.AttributeIntent)
	}
	return found, true
}

func (g gatherer) gatherVolume(ctx context.Context, pod *corev1.Pod, v *volumeFacts) error {
	switch {
	case v.invalid != "":
		return nil
	case v.intentName != "":
		return g.gatherIntent(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: v.intentName}, v)
	}
	if err := g.gatherClaim(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: v.claimName}, v); err != nil {
		return err
	}
	if v.claim == nil || !v.single() {
		return nil
	}
	return g.gatherUsers(ctx, pod, v)
}

func (g gatherer) gatherIntent(ctx context.Context, key client.ObjectKey, v *volumeFacts) error {
	var err error
	if v.intent, err = find(ctx, g.reader, key, &volumesv1alpha1.VolumeAttachmentIntent{}); err != nil || v.intent == nil {
		return err
	}
	v.node, err = find(ctx, g.reader, client.ObjectKey{Name: v.intent.Spec.NodeName}, &corev1.Node{})
	return err
}

// gatherClaim finds the claim and what it is bound to, or will be created from.
func (g gatherer) gatherClaim(ctx context.Context, key client.ObjectKey, v *volumeFacts) error {
	var err error
	if v.claim, err = find(ctx, g.reader, key, &corev1.PersistentVolumeClaim{}); err != nil || v.claim == nil {
		return err
	}
	if name := v.claim.Spec.VolumeName; name != "" {
		if v.pv, err = find(ctx, g.reader, client.ObjectKey{Name: name}, &corev1.PersistentVolume{}); err != nil {
			return err
		}
	}
	if v.pv != nil {
		// One from the cache has been through this.
		v.pv, v.pvErr = volume.Translated(v.pv)
	}
	if class := storagehelpers.GetPersistentVolumeClaimClass(v.claim); class != "" && v.pv == nil {
		if v.class, err = find(ctx, g.reader, client.ObjectKey{Name: class}, &storagev1.StorageClass{}); err != nil {
			return err
		}
	}
	if node := v.selected(); node != "" && v.pv == nil {
		if v.node, err = find(ctx, g.reader, client.ObjectKey{Name: node}, &corev1.Node{}); err != nil {
			return err
		}
	}
	if driver := v.driverName(); driver != "" {
		v.driver, err = find(ctx, g.reader, client.ObjectKey{Name: driver}, &storagev1.CSIDriver{})
	}
	return err
}

// gatherRoom counts for each driver how many more of its volumes each node takes.
func (g gatherer) gatherRoom(ctx context.Context, f *facts) error {
	f.room = map[string]map[string]int{}
	capacities := false
	for i := range f.volumes {
		v := &f.volumes[i]
		if name := v.driverName(); v.limited() && name != "" && f.room[name] == nil {
			f.room[name] = map[string]int{}
		}
		if err := g.gatherAttached(ctx, v); err != nil {
			return err
		}
		d := v.driver
		capacities = capacities || d != nil && d.Spec.StorageCapacity != nil && *d.Spec.StorageCapacity && v.pv == nil
	}
	if capacities {
		list := &storagev1.CSIStorageCapacityList{}
		if err := g.cache.List(ctx, list); err != nil {
			return fmt.Errorf("listing storage capacities: %w", err)
		}
		f.capacities = list.Items
	}
	if len(f.room) == 0 {
		return nil
	}
	list := &storagev1.CSINodeList{}
	if err := g.cache.List(ctx, list); err != nil {
		return fmt.Errorf("listing CSINodes: %w", err)
	}
	for i := range list.Items {
		if err := g.countOn(ctx, f, &list.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// countOn counts the room on one node for the drivers of the pod that have a limit there.
func (g gatherer) countOn(ctx context.Context, f *facts, node *storagev1.CSINode) error {
	var attached []storagev1.VolumeAttachment
	read := false
	for _, d := range node.Spec.Drivers {
		if f.room[d.Name] == nil || d.Allocatable == nil || d.Allocatable.Count == nil {
			continue
		}
		if !read {
			var err error
			if attached, err = index.AttachmentsOf(ctx, g.cache, node.Name); err != nil {
				return err
			}
			read = true
		}
		left := int(*d.Allocatable.Count)
		for i := range attached {
			if attached[i].Spec.Attacher == d.Name && !handshake.AttachmentFrom(&attached[i]).Gone() {
				left--
			}
		}
		f.room[d.Name][node.Name] = left
	}
	return nil
}

// gatherAttached finds the nodes that the volume is attached to.
func (g gatherer) gatherAttached(ctx context.Context, v *volumeFacts) error {
	if v.pv == nil {
		return nil
	}
	list := &storagev1.VolumeAttachmentList{}
	if err := g.cache.List(ctx, list, client.MatchingFields{index.PersistentVolume: v.pv.Name}); err != nil {
		return fmt.Errorf("listing the attachments of %s: %w", v.pv.Name, err)
	}
	v.attachedTo = map[string]bool{}
	for i := range list.Items {
		if !handshake.AttachmentFrom(&list.Items[i]).Gone() {
			v.attachedTo[list.Items[i].Spec.NodeName] = true
		}
	}
	return nil
}

// find returns nil when the object does not exist.
func find[T client.Object](ctx context.Context, reader client.Reader, key client.ObjectKey, object T) (T, error) {
	err := reader.Get(ctx, key, object)
	if client.IgnoreNotFound(err) != nil {
		return object, fmt.Errorf("reading %T %s: %w", object, key, err)
	}
	if err != nil {
		var none T
		return none, nil
	}
	return object, nil
}
