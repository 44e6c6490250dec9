/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
)

// list adds the driver to the node's CSINode, after its topology is on the Node. Readers of the driver's topology keys
// then find the values.
func (k *Kubelet) list(ctx context.Context, name string, info *csi.NodeGetInfoResponse) error {
	driver, err := entry(name, info)
	if err != nil {
		return err
	}
	if err := k.label(ctx, info.GetAccessibleTopology().GetSegments()); err != nil {
		return err
	}
	return k.updateDrivers(ctx, func(drivers []storagev1.CSINodeDriver) []storagev1.CSINodeDriver {
		return append(without(drivers, name), driver)
	})
}

// unlist removes the driver. The topology labels stay, because volumes may still depend on them.
func (k *Kubelet) unlist(ctx context.Context, name string) error {
	return k.updateDrivers(ctx, func(drivers []storagev1.CSINodeDriver) []storagev1.CSINodeDriver {
		return without(drivers, name)
	})
}

// entry is the CSINode's entry of a driver.
func entry(name string, info *csi.NodeGetInfoResponse) (storagev1.CSINodeDriver, error) {
	if name == "" || info.GetNodeId() == "" {
		return storagev1.CSINodeDriver{}, errors.New("the driver names neither itself nor the node")
	}
	driver := storagev1.CSINodeDriver{
		Name:         name,
		NodeID:       info.GetNodeId(),
		TopologyKeys: slices.Sorted(maps.Keys(info.GetAccessibleTopology().GetSegments())),
	}
	if limit := info.GetMaxVolumesPerNode(); limit > 0 { // zero: the driver has no limit
		count := int32(min(limit, math.MaxInt32))
		driver.Allocatable = &storagev1.VolumeNodeResources{Count: ptr.To(count)}
	}
	return driver, nil
}

func without(drivers []storagev1.CSINodeDriver, name string) []storagev1.CSINodeDriver {
	return slices.DeleteFunc(slices.Clone(drivers), func(d storagev1.CSINodeDriver) bool { return d.Name == name })
}

// label adds a driver's topology to the Node.
func (k *Kubelet) label(ctx context.Context, segments map[string]string) error {
	if len(segments) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": segments}})
	if err != nil {
		return fmt.Errorf("encoding the topology: %w", err)
	}
	_, err = k.Client.CoreV1().Nodes().Patch(ctx, k.Node, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("labelling the node with its topology: %w", err)
	}
	return nil
}

// updateDrivers changes the CSINode's list, and retries after a conflict. A driver's entry is immutable in the
// API, so a changed one is removed before it is added.
func (k *Kubelet) updateDrivers(ctx context.Context,
	change func([]storagev1.CSINodeDriver) []storagev1.CSINodeDriver) error {
	nodes := k.Client.StorageV1().CSINodes()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		stored, err := nodes.Get(ctx, k.Node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		wanted := change(stored.Spec.Drivers)
		if kept := unchanged(stored.Spec.Drivers, wanted); len(kept) < len(stored.Spec.Drivers) && len(kept) < len(wanted) {
			stored.Spec.Drivers = kept
			if stored, err = nodes.Update(ctx, stored, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		if equality.Semantic.DeepEqual(sorted(stored.Spec.Drivers), sorted(wanted)) {
			return nil
		}
		stored.Spec.Drivers = wanted
		_, err = nodes.Update(ctx, stored, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("updating the CSINode: %w", err)
	}
	return nil
}

// unchanged is the part of the stored drivers that stays.
func unchanged(stored, wanted []storagev1.CSINodeDriver) []storagev1.CSINodeDriver {
	return slices.DeleteFunc(slices.Clone(stored), func(s storagev1.CSINodeDriver) bool {
		return !slices.ContainsFunc(wanted, func(w storagev1.CSINodeDriver) bool { return equality.Semantic.DeepEqual(s, w) })
	})
}

func sorted(drivers []storagev1.CSINodeDriver) []storagev1.CSINodeDriver {
	return slices.SortedFunc(slices.Values(drivers), func(a, b storagev1.CSINodeDriver) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
}
