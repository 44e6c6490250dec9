/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package verify

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
)

// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=get;list;watch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=csinodes,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=get;list;watch
// +kubebuilder:rbac:groups=volumes.hawser.io,resources=nodevolumestates,verbs=get;list;watch

// attachment is one volume that a node counts on, by a VolumeAttachment that says attached.
type attachment struct {
	node, volume, handle string
	name                 string
	uid                  types.UID
	// ids that the driver may list the node by.
	ids []string
}

// publication is one volume's on one node, as the driver names them.
type publication struct{ handle, id string }

// snapshot is what the cluster says of one driver's volumes.
type snapshot struct {
	attached []attachment
	// uids of all its VolumeAttachments.
	uids map[types.UID]bool
	// nodes by the driver's name for them.
	nodes map[string]string
	// volumes are the PersistentVolumes by handle.
	volumes map[string]string
	// claimed are the publications that have a VolumeAttachment.
	claimed map[publication]bool
	// vague are nodes with a VolumeAttachment whose volume is unknown, and handles with one whose node is unknown.
	// If neither is known, nothing can be said of any.
	vagueNodes, vagueHandles map[string]bool
	vague                    bool
}

// snapshot reads the cache.
func (d *driver) snapshot(ctx context.Context) (*snapshot, error) {
	s := &snapshot{
		nodes: map[string]string{}, volumes: map[string]string{}, claimed: map[publication]bool{},
		vagueNodes: map[string]bool{}, vagueHandles: map[string]bool{}, uids: map[types.UID]bool{},
	}
	ids, err := d.nodeIDs(ctx)
	if err != nil {
		return nil, err
	}
	for node, id := range ids {
		s.nodes[id] = node
	}
	handles, err := d.handles(ctx)
	if err != nil {
		return nil, err
	}
	for pv, handle := range handles {
		s.volumes[handle] = pv
	}
	list := &storagev1.VolumeAttachmentList{}
	if err := d.Client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing the VolumeAttachments: %w", err)
	}
	attachments := map[types.UID]*storagev1.VolumeAttachment{}
	for i := range list.Items {
		if va := &list.Items[i]; va.Spec.Attacher == d.name {
			attachments[va.UID], s.uids[va.UID] = va, true
			s.claim(va, handles, idsOf(va, ids))
		}
	}
	states := &volumesv1alpha1.NodeVolumeStateList{}
	if err := d.Client.List(ctx, states); err != nil {
		return nil, fmt.Errorf("listing the NodeVolumeStates: %w", err)
	}
	for i := range states.Items {
		for _, e := range states.Items[i].Spec.Attachments {
			va := attachments[e.AttachmentUID]
			if e.Driver == d.name && e.State == volumesv1alpha1.AttachmentAttached && va != nil && standing(va) {
				s.attached = append(s.attached, attachment{
					node: states.Items[i].Name, volume: e.VolumeName, handle: e.VolumeHandle,
					name: va.Name, uid: va.UID, ids: idsOf(va, ids),
				})
			}
		}
	}
	return s, nil
}

// standing: attached, and to stay so.
func standing(va *storagev1.VolumeAttachment) bool {
	return va.Status.Attached && va.DeletionTimestamp.IsZero()
}

// nodeIDs are the driver's names of the nodes, by node.
func (d *driver) nodeIDs(ctx context.Context) (map[string]string, error) {
	list := &storagev1.CSINodeList{}
	if err := d.Client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing the CSINodes: %w", err)
	}
	ids := map[string]string{}
	for i := range list.Items {
		for _, registered := range list.Items[i].Spec.Drivers {
			if registered.Name == d.name {
				ids[list.Items[i].Name] = registered.NodeID
			}
		}
	}
	return ids, nil
}

// handles of the driver's volumes, by PersistentVolume.
func (d *driver) handles(ctx context.Context) (map[string]string, error) {
	list := &corev1.PersistentVolumeList{}
	if err := d.Client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing the PersistentVolumes: %w", err)
	}
	handles := map[string]string{}
	for i := range list.Items {
		if source := volume.SourceOf(&list.Items[i]); source != nil && source.Driver == d.name {
			handles[list.Items[i].Name] = source.Handle
		}
	}
	return handles, nil
}

// idsOf are the names that the driver may list the attachment's node by: that of today and the one the attacher used.
func idsOf(va *storagev1.VolumeAttachment, ids map[string]string) []string {
	var known []string
	for _, id := range []string{ids[va.Spec.NodeName], va.Annotations[volume.NodeIDAnnotation]} {
		if id != "" {
			known = append(known, id)
		}
	}
	return known
}

// claim notes what the driver may list because of va.
func (s *snapshot) claim(va *storagev1.VolumeAttachment, handles map[string]string, ids []string) {
	handle := ""
	switch source := va.Spec.Source; {
	case source.PersistentVolumeName != nil:
		handle = handles[*source.PersistentVolumeName]
	case source.InlineVolumeSpec != nil && source.InlineVolumeSpec.CSI != nil:
		handle = source.InlineVolumeSpec.CSI.VolumeHandle
	}
	switch {
	case handle == "" && len(ids) == 0:
		s.vague = true
	case len(ids) == 0:
		s.vagueHandles[handle] = true
	}
	for _, id := range ids {
		if handle == "" {
			s.vagueNodes[id] = true
		} else {
			s.claimed[publication{handle, id}] = true
		}
	}
}
