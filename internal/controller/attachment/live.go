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
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

// readAttachment reads an attachment live; nil when there is none.
func (c *Controller) readAttachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	va := &storagev1.VolumeAttachment{}
	err := c.Reader.Get(ctx, client.ObjectKey{Name: name}, va)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading attachment %s: %w", name, err)
	}
	return va, nil
}

// readLists reads live in which lists of the Node the volume is.
func (c *Controller) readLists(ctx context.Context, volume string, n *decision.Node) error {
	node := &corev1.Node{}
	if err := c.Reader.Get(ctx, client.ObjectKey{Name: n.Name}, node); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading node %s: %w", n.Name, err)
	}
	n.Lists = listed(node)[corev1.UniqueVolumeName(volume)]
	n.Lists.Missing = node.UID == ""
	return nil
}

// readEntryAttachment reads the attachment of an entry; nil when there is none, or none of that UID any more.
func (c *Controller) readEntryAttachment(
	ctx context.Context, entry *volumesv1alpha1.NodeAttachment,
) (*storagev1.VolumeAttachment, error) {
	if entry.AttachmentName == "" || c.deletions.has(entry.AttachmentUID) {
		return nil, nil
	}
	return c.readAttachment(ctx, entry.AttachmentName)
}

// readState reads a node's state live; nil when there is none.
func (c *Controller) readState(ctx context.Context, node string) (*volumesv1alpha1.NodeVolumeState, error) {
	nvs := &volumesv1alpha1.NodeVolumeState{}
	err := c.Reader.Get(ctx, client.ObjectKey{Name: node}, nvs)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the state of node %s: %w", node, err)
	}
	return nvs, nil
}

// readNow reads the node's state live into the facts. Volumes that read one node at a time share the read.
func (c *Controller) readNow(ctx context.Context, f *decision.Facts, n *decision.Node) error {
	nvs, err := c.Writer.ReadState(ctx, n.Name)
	if err != nil {
		return err
	}
	n.Observe(nvs, f.Volume)
	return nil
}

// readAttachments reads, live, every attachment of the volume to the node that is known or that could be: the one of
// the shared name, that of the entry, and those of other names. The answer is one that is not gone, if there is any.
func (c *Controller) readAttachments(
	ctx context.Context, f *decision.Facts, n *decision.Node,
) (handshake.Attachment, error) {
	names := map[string]bool{volume.AttachmentName(f.Driver, f.VolumeHandle, n.Name): true}
	if n.Entry != nil && n.Entry.AttachmentName != "" {
		names[n.Entry.AttachmentName] = true
	}
	for i := range n.Attachments {
		names[n.Attachments[i].Name] = true
	}
	for name := range names {
		va, err := c.readAttachment(ctx, name)
		if err != nil {
			return handshake.Attachment{}, err
		}
		if a := handshake.AttachmentFrom(va); !a.Gone() {
			return a, nil
		}
	}
	return handshake.Attachment{}, nil
}

// readUser reads the intent live, by its UID: another one of its name is not the user. Without a user it is the zero
// intent.
func (c *Controller) readUser(ctx context.Context, u exclusive.User) (handshake.Intent, error) {
	if u == (exclusive.User{}) {
		return handshake.Intent{}, nil
	}
	intent := &volumesv1alpha1.VolumeAttachmentIntent{}
	err := c.Reader.Get(ctx, client.ObjectKey{Namespace: u.Namespace, Name: u.Name}, intent)
	if apierrors.IsNotFound(err) || err == nil && intent.UID != u.UID {
		return handshake.Intent{}, nil
	}
	if err != nil {
		return handshake.Intent{}, fmt.Errorf("reading intent %s/%s: %w", u.Namespace, u.Name, err)
	}
	return handshake.Intent{Exists: true, Deleting: !intent.DeletionTimestamp.IsZero()}, nil
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get
// +kubebuilder:rbac:groups="",resources=pods,verbs=list

// users are what upstream keeps volumes attached to a node for: its pods, and its kubelet, which lists what it uses.
// Volumes that ask about one node at a time share what is read.
type users struct {
	// since when it is known: right before it was asked.
	since time.Time
	name  string
	// node is nil when there is none.
	node *corev1.Node
	// pods of one namespace.
	pods []corev1.Pod
}

// usersKey names a Node and the pods of a namespace on it; without a namespace the Node alone.
func usersKey(node, namespace string) string { return node + "/" + namespace }

// readUsers reads, live. What is asked is asked at once, so that none of the answers is old when the last one is here.
func (c *Controller) readUsers(ctx context.Context, key string) (*users, error) {
	name, namespace, _ := strings.Cut(key, "/")
	u := &users{since: c.Clock.Now(), name: name, node: &corev1.Node{}}
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
			if err := c.Reader.List(ctx, pods, client.InNamespace(namespace),
				client.MatchingFields{"spec.nodeName": name}); err != nil {
				return fmt.Errorf("listing the pods of node %s: %w", name, err)
			}
			u.pods = pods.Items
			return nil
		})
	}
	return u, reads.Wait()
}

// use reports whether the kubelet lists the volume, or pods that have not ended are bound to the node and name the
// claim.
func (u *users) use(volume string, claim client.ObjectKey) bool {
	lists := false
	if u.node != nil {
		_, lists = listed(u.node)[corev1.UniqueVolumeName(volume)]
	}
	return lists || u.wants(claim)
}

// differsFrom reports whether the cache has another Node. Then what the kubelet of that one listed last is not known
// yet.
func (u *users) differsFrom(n *decision.Node) bool {
	if u.node == nil {
		return !n.Missing
	}
	return n.NodeUID != "" && n.NodeUID != u.node.UID
}

// wants reports whether such pods name the claim. They may run on although their Node is gone.
func (u *users) wants(claim client.ObjectKey) bool {
	key := index.NodeClaimKey(u.name, claim.Namespace, claim.Name)
	return slices.ContainsFunc(u.pods, func(p corev1.Pod) bool { return slices.Contains(index.PodNodeClaims(&p), key) })
}

// freeOfPods reports whether upstream had no use for the attachment, and since when that is known. Evidence about the
// machine, which replaces the node's release, holds for its pods too. Without a Node it depends on what its kubelet
// listed last.
func (c *Controller) freeOfPods(
	ctx context.Context, f *decision.Facts, n *decision.Node,
) (free bool, since time.Time, err error) {
	forced := n.State.Entry.Forced && !n.RestsOnCut()
	if n.Pods || forced {
		return forced, c.Clock.Now(), nil
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
		// Not when it was asked for: with many nodes a read waits for its turn.
		if since.IsZero() || u.since.Before(since) {
			since = u.since
		}
		if u.differsFrom(n) {
			n.Missing, n.Returned, n.Covered = u.node == nil, u.node != nil, false
		}
		// Where access is cut, what the kubelet lists is no news: it is silent, too.
		if u.wants(claim) || !n.RestsOnCut() && (u.use(f.Volume, claim) || decision.Uncovered(f, n)) {
			return false, since, nil
		}
	}
	return true, since, nil
}

// unwantedByPods reports whether the attachment is of no use to pods on the node, and since when that is known: its
// PersistentVolume is gone or another volume by now, or no pod names that one's claim. Unlike freeOfPods it does not
// ask what the kubelet lists: to the kubelet all PersistentVolumes of one handle are one volume.
func (c *Controller) unwantedByPods(
	ctx context.Context, f *decision.Facts, n *decision.Node, a *decision.Attachment,
) (free bool, since time.Time, err error) {
	since = c.Clock.Now()
	pv, err := c.readVolume(ctx, a.PersistentVolume)
	if err != nil || pv == nil || volume.UniqueNameOf(pv) != f.Volume || pv.Spec.ClaimRef == nil {
		return err == nil, since, err
	}
	ref := pv.Spec.ClaimRef
	u, err := c.users.Get(ctx, usersKey(n.Name, ref.Namespace))
	if err != nil {
		return false, since, err
	}
	if u.since.Before(since) {
		since = u.since
	}
	key := index.NodeClaimKey(n.Name, ref.Namespace, ref.Name)
	return !slices.ContainsFunc(u.pods, func(p corev1.Pod) bool {
		return slices.Contains(index.PodNodeClaims(&p), key)
	}), since, nil
}
