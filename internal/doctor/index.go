/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package doctor

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// index finds the objects of a cluster by what they refer to.
type index struct {
	c    *Cluster
	errs map[string]error
	// objects of all kinds.
	objects map[string]map[client.ObjectKey]client.Object

	claims   map[client.ObjectKey]*corev1.PersistentVolumeClaim
	volumes  map[client.ObjectKey]*corev1.PersistentVolume
	nodes    map[client.ObjectKey]*corev1.Node
	classes  map[client.ObjectKey]*storagev1.StorageClass
	drivers  map[client.ObjectKey]*storagev1.CSIDriver
	csiNodes map[client.ObjectKey]*storagev1.CSINode
	byName   map[client.ObjectKey]*storagev1.VolumeAttachment
	states   map[client.ObjectKey]*volumesv1alpha1.NodeVolumeState
	leases   map[client.ObjectKey]*coordinationv1.Lease

	// podsOn are by node, podsOf by claim, without those that have ended.
	podsOn map[string][]*corev1.Pod
	podsOf map[client.ObjectKey][]*corev1.Pod
	// sameVolume are PersistentVolumes by their unique names.
	sameVolume map[string][]*corev1.PersistentVolume
	// attachmentsOn are by node, attachmentsOf by PersistentVolume.
	attachmentsOn map[string][]*storagev1.VolumeAttachment
	attachmentsOf map[string][]*storagev1.VolumeAttachment
	// intentsOn are by node, intentsOf by PersistentVolume, intentsOfClaim by claim, intentsOfPod by the pod's UID.
	intentsOn, intentsOf, intentsOfPod map[string][]*volumesv1alpha1.VolumeAttachmentIntent
	intentsOfClaim                     map[client.ObjectKey][]*volumesv1alpha1.VolumeAttachmentIntent
	events                             map[string][]*corev1.Event
}

// keyed has the objects of a list by namespace and name. It adds them to those of all kinds.
func keyed[T any, P interface {
	*T
	client.Object
}](i *index, kind string, list facts.List[P]) map[client.ObjectKey]*T {
	all := make(map[client.ObjectKey]*T, len(list.Items))
	objects := make(map[client.ObjectKey]client.Object, len(list.Items))
	for _, object := range list.Items {
		key := client.ObjectKeyFromObject(object)
		all[key], objects[key] = object, object
	}
	i.objects[kind] = objects
	return all
}

func newIndex(c *Cluster) *index {
	i := &index{c: c, errs: c.errors(), objects: map[string]map[client.ObjectKey]client.Object{},
		podsOn: map[string][]*corev1.Pod{}, podsOf: map[client.ObjectKey][]*corev1.Pod{},
		sameVolume:     map[string][]*corev1.PersistentVolume{},
		attachmentsOn:  map[string][]*storagev1.VolumeAttachment{},
		attachmentsOf:  map[string][]*storagev1.VolumeAttachment{},
		intentsOn:      map[string][]*volumesv1alpha1.VolumeAttachmentIntent{},
		intentsOf:      map[string][]*volumesv1alpha1.VolumeAttachmentIntent{},
		intentsOfPod:   map[string][]*volumesv1alpha1.VolumeAttachmentIntent{},
		intentsOfClaim: map[client.ObjectKey][]*volumesv1alpha1.VolumeAttachmentIntent{},
		events:         map[string][]*corev1.Event{}}
	keyed(i, pods, c.Pods)
	keyed(i, intents, c.Intents)
	keyed(i, facts.KindManager, c.Managers)
	i.claims, i.volumes, i.nodes = keyed(i, claims, c.Claims), keyed(i, volumes, c.Volumes), keyed(i, nodes, c.Nodes)
	i.classes, i.drivers = keyed(i, classes, c.Classes), keyed(i, drivers, c.Drivers)
	i.csiNodes, i.byName = keyed(i, csiNodes, c.CSINodes), keyed(i, attachments, c.Attachments)
	i.states, i.leases = keyed(i, states, c.States), keyed(i, leases, c.Leases)
	for _, pod := range c.Pods.Items {
		i.addPod(pod)
	}
	for _, pv := range c.Volumes.Items {
		if name := volume.UniqueNameOf(i.translated(pv.Name)); name != "" {
			i.sameVolume[name] = append(i.sameVolume[name], pv)
		}
	}
	for _, va := range c.Attachments.Items {
		pv := ptr.Deref(va.Spec.Source.PersistentVolumeName, "")
		i.attachmentsOn[va.Spec.NodeName] = append(i.attachmentsOn[va.Spec.NodeName], va)
		i.attachmentsOf[pv] = append(i.attachmentsOf[pv], va)
	}
	for _, intent := range c.Intents.Items {
		i.addIntent(intent)
	}
	for _, e := range c.Events.Items {
		uid := string(e.InvolvedObject.UID)
		i.events[uid] = append(i.events[uid], e)
	}
	return i
}

// addPod adds a pod under its node and its claims. One that has ended uses none.
func (i *index) addPod(pod *corev1.Pod) {
	if facts.Ended(pod) {
		return
	}
	i.podsOn[pod.Spec.NodeName] = append(i.podsOn[pod.Spec.NodeName], pod)
	for n := range pod.Spec.Volumes {
		if claim, ok := facts.ClaimOf(pod, &pod.Spec.Volumes[n]); ok {
			key := client.ObjectKey{Namespace: pod.Namespace, Name: claim}
			i.podsOf[key] = append(i.podsOf[key], pod)
		}
	}
}

func (i *index) addIntent(intent *volumesv1alpha1.VolumeAttachmentIntent) {
	i.intentsOn[intent.Spec.NodeName] = append(i.intentsOn[intent.Spec.NodeName], intent)
	if pv := intent.Status.VolumeName; pv != "" {
		i.intentsOf[pv] = append(i.intentsOf[pv], intent)
	}
	if uid := intent.Labels[volumesv1alpha1.PodUIDLabel]; uid != "" {
		i.intentsOfPod[uid] = append(i.intentsOfPod[uid], intent)
	}
	if source := intent.Spec.Volume.PersistentVolumeClaim; source != nil {
		key := client.ObjectKey{Namespace: intent.Namespace, Name: source.ClaimName}
		i.intentsOfClaim[key] = append(i.intentsOfClaim[key], intent)
	}
}

// of is the object of a name without a namespace; nil if there is none.
func of[T any](all map[client.ObjectKey]*T, name string) *T { return all[client.ObjectKey{Name: name}] }

// translated is the PersistentVolume of a name as the CSI volume that it is used as; nil if there is none.
func (i *index) translated(name string) *corev1.PersistentVolume {
	pv := of(i.volumes, name)
	if pv == nil {
		return nil
	}
	if csi, err := volume.Translated(pv); err == nil {
		return csi
	}
	return pv
}

// volumeOf is the PersistentVolume of a claim; nil if it has none.
func (i *index) volumeOf(claim client.ObjectKey) *corev1.PersistentVolume {
	if c := i.claims[claim]; c != nil && c.Spec.VolumeName != "" {
		return i.translated(c.Spec.VolumeName)
	}
	return nil
}

// state is that of an object that a command names.
func (i *index) state(ref facts.Ref) catalog.State {
	key := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
	if i.errs[ref.Kind] != nil || !i.within(key) {
		return catalog.Unread
	}
	object, found := i.objects[ref.Kind][key]
	if !found {
		return catalog.Gone
	}
	state := explain.StateOf(object)
	if state == catalog.Tainted && explain.Contradicted(of(i.states, ref.Name)) {
		return catalog.Contradicted
	}
	return state
}

// within reports whether an object is one of those that were read: all have no namespace, or that of pods and claims,
// unless all namespaces were read.
func (i *index) within(key client.ObjectKey) bool {
	return key.Namespace == "" || i.c.Namespace == "" || key.Namespace == i.c.Namespace || key.Namespace == i.c.System
}
