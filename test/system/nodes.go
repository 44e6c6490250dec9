/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package system

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SetOutOfService sets or removes the out-of-service taint of a Node, as an administrator does whose machine is off.
func (s *System) SetOutOfService(ctx context.Context, name string, out bool) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error { // kubelets and controllers write too
		node := &corev1.Node{}
		if err := s.Client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return err
		}
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints,
			func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
		if out {
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService,
				Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute})
		}
		return s.Client.Update(ctx, node)
	})
}

// SetSilent stops or resumes the heartbeats of a node without a kubelet of its own.
func (s *System) SetSilent(name string, silent bool) error {
	file := filepath.Join(s.Dir, "nodes", name, "silent")
	if !silent {
		return os.Remove(file)
	}
	return os.WriteFile(file, nil, 0o644)
}
