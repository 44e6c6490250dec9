/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/controller/index"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get
// +kubebuilder:rbac:groups="",resources=pods,verbs=list

// users are those for whom upstream keeps volumes attached to a node: its pods, and its kubelet, which lists what it uses. Those who
// ask about one node at a time share what is read.
type users struct {
	// since when it is known: right before it was asked.
	since time.Time
	// node is nil when there is none.
	node *corev1.Node
	// pods of one namespace.
	pods []corev1.Pod
}

// usersKey stands for a Node and the pods of a namespace on it; without a namespace for the Node alone.
func usersKey(node, namespace string) string { return node + "/" + namespace }

// readUsers reads, live. What is asked is asked at once, so that none of the answers is old when the last one is here.
func (c *Controller) readUsers(ctx context.Context, key string) (*users, error) {
	name, namespace, _ := strings.Cut(key, "/")
	u := &users{since: c.Clock.Now(), node: &corev1.Node{}}
	reads, ctx := errgroup.WithContext(ctx)
	reads.Go(func() error {
		err := c.Reader.Get(ctx, client.ObjectKey{Name: name}, u.node)
		if apierrors.IsNotFound(err) {
			u.node = nil
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading node %s: %w", name, err)
		}
		return nil
	})
	if namespace != "" {
		reads.Go(func() error {
			pods := &corev1.PodList{}
			if err := c.Reader.List(ctx, pods, client.InNamespace(namespace), client.MatchingFields{"spec.nodeName": name}); err != nil {
				return fmt.Errorf("listing the pods of node %s: %w", name, err)
			}
			u.pods = pods.Items
			return nil
		})
	}
	return u, reads.Wait()
}

// use says whether the kubelet lists the volume, or pods that have not ended are bound to the node and name the claim.
func (u *users) use(volume string, claim client.ObjectKey) bool {
	if u.node == nil {
		return false
	}
	if _, lists := listed(u.node)[corev1.UniqueVolumeName(volume)]; lists {
		return true
	}
	key := index.NodeClaimKey(u.node.Name, claim.Namespace, claim.Name)
	return slices.ContainsFunc(u.pods, func(p corev1.Pod) bool { return slices.Contains(index.PodNodeClaims(&p), key) })
}

// freeOfPods says whether upstream had no use for the attachment, and since when that is known. Evidence that stands in for the node
// stands in for its pods too.
func (c *Controller) freeOfPods(ctx context.Context, f *Facts, n *Node) (free bool, since time.Time, err error) {
	since = c.Clock.Now()
	if n.Pods || n.State.Entry.Forced {
		return n.State.Entry.Forced, since, nil
	}
	claims := f.Bound
	if len(claims) == 0 {
		claims = []client.ObjectKey{{}} // No pod can name it, but the kubelet may list it.
	}
	for _, claim := range claims {
		u, err := c.users.Get(ctx, usersKey(n.Name, claim.Namespace))
		if err != nil {
			return false, since, err
		}
		if u.since.Before(since) {
			since = u.since
		}
		if u.use(f.Volume, claim) {
			return false, since, nil
		}
	}
	return true, since, nil
}
