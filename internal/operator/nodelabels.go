/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// unlabelNodes removes the labels of sets where Nodes get none any more. The manager has no right to it then. It does so
// once the manager that wrote them has ended, and its right with it.
func (r *Reconciler) unlabelNodes(ctx context.Context, spec volumesv1alpha1.VolumeManagerSpec) error {
	if ptr.Deref(spec.NodeLabels, false) {
		return nil
	}
	nodes := &corev1.NodeList{}
	if err := r.Cache.List(ctx, nodes); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	for i := range nodes.Items {
		labels := noReadyLabels(nodes.Items[i].Labels)
		if len(labels) == 0 {
			continue
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
		if err != nil {
			return err
		}
		node := &corev1.Node{}
		node.Name = nodes.Items[i].Name
		err = r.Client.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("removing the labels of sets from node %s: %w", node.Name, err)
		}
	}
	return nil
}

// noReadyLabels is the merge patch that removes the labels of sets.
func noReadyLabels(labels map[string]string) map[string]any {
	change := map[string]any{}
	for key := range labels {
		if isReadyLabel(key) {
			change[key] = nil
		}
	}
	return change
}

// equalBesideReady compares labels without those of sets, which come and go with volumes.
func equalBesideReady(before, after map[string]string) bool {
	rest := func(labels map[string]string) map[string]string {
		labels = maps.Clone(labels)
		maps.DeleteFunc(labels, func(key, _ string) bool { return isReadyLabel(key) })
		return labels
	}
	return maps.Equal(rest(before), rest(after))
}

func isReadyLabel(key string) bool { return strings.HasPrefix(key, volumesv1alpha1.ReadyLabelPrefix) }
