/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/machine"
)

// addListed adds the attachment that the node's entry speaks of, if nothing else shows any more that it is one of the
// volume.
func (c *Controller) addListed(ctx context.Context, n *decision.Node) error {
	if n.Entry == nil || n.Entry.AttachmentName == "" || n.AttachmentNamed(n.Entry.AttachmentName) != nil {
		return nil
	}
	va := &storagev1.VolumeAttachment{}
	err := c.Client.Get(ctx, client.ObjectKey{Name: n.Entry.AttachmentName}, va)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading attachment %s: %w", n.Entry.AttachmentName, err)
	}
	if err == nil && va.UID == n.Entry.AttachmentUID {
		n.AddAttachment(va)
	}
	return nil
}

// addOwnWrites adds what the cache does not show yet of our own writes.
func (c *Controller) addOwnWrites(f *decision.Facts, n *decision.Node) {
	if name := volume.AttachmentName(f.Driver, f.VolumeHandle, n.Name); len(n.Attachments) == 0 {
		if va := c.ownWrites.newer(name, ""); va != nil {
			n.AddAttachment(va)
		}
	}
	for i := range n.Attachments {
		if va := c.ownWrites.newer(n.Attachments[i].Name, n.Attachments[i].ResourceVersion); va != nil {
			n.AddAttachment(va)
		}
	}
}

// gatherDriver reads what the driver asks for. One that is not described attaches, as upstream has it.
func (c *Controller) gatherDriver(ctx context.Context, f *decision.Facts) error {
	driver := &storagev1.CSIDriver{}
	err := c.Client.Get(ctx, client.ObjectKey{Name: f.Driver}, driver)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading driver %s: %w", f.Driver, err)
	}
	if err != nil {
		return nil
	}
	f.AttachRequired = f.AttachRequired && (driver.Spec.AttachRequired == nil || *driver.Spec.AttachRequired)
	f.CutsAccess = driver.Annotations[volumesv1alpha1.CutsAccessAnnotation] == "true"
	f.SELinuxMount = ptr.Deref(driver.Spec.SELinuxMount, false)
	if driver.Spec.FSGroupPolicy != nil {
		f.FSGroupPolicy = *driver.Spec.FSGroupPolicy
	}
	return nil
}

// gatherNode completes one node's part.
func (c *Controller) gatherNode(
	ctx context.Context, f *decision.Facts, n *decision.Node, sources []*volume.Source,
) error {
	nvs := &volumesv1alpha1.NodeVolumeState{}
	err := c.Client.Get(ctx, client.ObjectKey{Name: n.Name}, nvs)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the state of node %s: %w", n.Name, err)
	}
	if err != nil {
		nvs = nil
	} else {
		n.TakeOver(c.Writer.Trusted(nvs), f.Volume)
		n.Covered = c.Tracker.Covers(nvs, f.Volume)
	}
	if err := c.addListed(ctx, n); err != nil {
		return err
	}
	if n.DriverMissing, err = c.driverMissing(ctx, f.Driver, n.Name); err != nil {
		return err
	}
	if n.PodVolumes, err = c.podVolumes(ctx, n.Name, sources); err != nil {
		return err
	}
	n.Pods = len(n.PodVolumes) > 0
	if err := c.gatherLists(ctx, f, n, nvs); err != nil {
		return err
	}
	if err := c.gatherEvidence(ctx, n, nvs); err != nil {
		return err
	}
	return c.gatherCut(ctx, f, n, nvs)
}

func (c *Controller) driverMissing(ctx context.Context, driver, node string) (bool, error) {
	csiNode := &storagev1.CSINode{}
	err := c.Client.Get(ctx, client.ObjectKey{Name: node}, csiNode)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading the drivers of node %s: %w", node, err)
	}
	return !slices.ContainsFunc(csiNode.Spec.Drivers, func(d storagev1.CSINodeDriver) bool {
		return d.Name == driver
	}), nil
}

// podVolumes returns the PersistentVolumes of the volume whose claims pods name that are bound to the node and have not
// ended.
func (c *Controller) podVolumes(ctx context.Context, node string, sources []*volume.Source) ([]string, error) {
	var used []string
	for i := range sources {
		ref := sources[i].Claim
		if ref == nil {
			continue
		}
		pods := &corev1.PodList{}
		if err := c.Client.List(ctx, pods,
			client.MatchingFields{index.NodeClaim: index.NodeClaimKey(node, ref.Namespace, ref.Name)}); err != nil {
			return nil, fmt.Errorf("listing the pods of claim %s/%s: %w", ref.Namespace, ref.Name, err)
		}
		if len(pods.Items) > 0 {
			used = append(used, sources[i].PersistentVolume)
		}
	}
	return used, nil
}

// gatherListed finds, in Replace, the Nodes that list the volume as attached, whether it is or not.
func (c *Controller) gatherListed(ctx context.Context, f *decision.Facts, _ []*volume.Source) error {
	if !f.Replace {
		return nil
	}
	nodes := &corev1.NodeList{}
	if err := c.Client.List(ctx, nodes, client.MatchingFields{index.Volume: f.Volume}); err != nil {
		return fmt.Errorf("listing the Nodes that list %s: %w", f.Volume, err)
	}
	for i := range nodes.Items {
		f.Node(nodes.Items[i].Name)
	}
	return nil
}

// gatherLists reads from the cache what the Node lists of the volume, whether its kubelet leaves attaching to a
// controller, and whether it is another one than the agent has reported from. nvs is nil where there is none.
func (c *Controller) gatherLists(
	ctx context.Context, f *decision.Facts, n *decision.Node, nvs *volumesv1alpha1.NodeVolumeState,
) error {
	node := &corev1.Node{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: n.Name}, node); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading node %s: %w", n.Name, err)
		}
		n.Lists.Missing = true
		return nil
	}
	n.Managed, n.NodeUID = managed(node), node.UID
	n.Returned = c.Tracker.Returned(n.Name) || nvs != nil && machine.Registered(node, nvs) == machine.Other
	n.Lists, n.BootID = listed(node)[corev1.UniqueVolumeName(f.Volume)], node.Status.NodeInfo.BootID
	return nil
}

// gatherHolders finds the pods that have an exclusive volume through the kubelet, on the nodes that others wait for. It
// costs nothing while no node waits.
func (c *Controller) gatherHolders(ctx context.Context, f *decision.Facts) error {
	if !f.Exclusive || !decision.Contested(f) {
		return nil
	}
	for _, n := range f.Nodes {
		for _, claim := range f.Bound {
			pods := &corev1.PodList{}
			key := index.NodeClaimKey(n.Name, claim.Namespace, claim.Name)
			if err := c.Client.List(ctx, pods, client.MatchingFields{index.NodeClaim: key}); err != nil {
				return fmt.Errorf("listing the pods of claim %s: %w", claim, err)
			}
			for i := range pods.Items {
				n.Holders = append(n.Holders, client.ObjectKeyFromObject(&pods.Items[i]))
			}
		}
	}
	return nil
}
