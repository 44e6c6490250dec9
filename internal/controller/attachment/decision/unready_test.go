/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

// forcible is a node with one volume in use, which an intent leaves whose policy forces after six minutes.
func forcible(name string) *Node {
	n := on(name, leaving("i*"), va("1", "held", "attached"), entry(handshake.Attached, "1"), inUse("1"))
	n.Leaving[0].Object.Spec.DetachPolicy = &volumesv1alpha1.DetachPolicy{
		ForceAfter: metav1.Duration{Duration: 6 * time.Minute},
	}
	return n
}
