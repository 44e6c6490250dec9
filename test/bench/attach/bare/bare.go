/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package bare is the limit of any implementation of Hawser's protocol. For each volume it makes the protocol's writes
// and live reads in their order, and nothing else. It knows all volumes beforehand, decides nothing and checks nothing.
// It combines the writes for one node that the protocol allows to combine.
package bare

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/inflight"
	"github.com/hawser-io/hawser/test/bench/attach/feed"
	"github.com/hawser-io/hawser/test/bench/attach/stage"
)

// concurrency is how many requests run at once.
const concurrency = 16

// Client is the bare client.
type Client struct {
	api    client.Client
	failed func(error)
	slots  *inflight.Limiter
	// running are the volumes in progress.
	running sync.WaitGroup

	volumes map[string]*volume
	nodes   map[string]*node
	locks   *exclusive.Store
}

// volume is the state of one volume, by the name of its intent.
type volume struct {
	*stage.Volume
	node *node
	// attachment and intent as the watches show them.
	attachment *latest[storagev1.VolumeAttachment]
	intent     *latest[volumesv1alpha1.VolumeAttachmentIntent]

	mu sync.Mutex
	// wished and released are the UIDs of the last created and the last deleted intent or pod.
	wished, released types.UID
}

// node is the state of one node.
type node struct {
	name  string
	state *latest[volumesv1alpha1.NodeVolumeState]
	// written is the state as last written.
	written *volumesv1alpha1.NodeVolumeState
	// spec of the node's state, and the Node's list of attached volumes.
	spec lane[change]
	list lane[listing]
	// users are the pods and intents whose volumes upstream keeps attached.
	users lane[struct{}]
}

// New creates a client for a user. It calls failed for every violation.
func New(api client.Client, s *stage.Stage, failed func(error)) *Client {
	c := &Client{
		api: api, failed: failed, slots: inflight.New(concurrency),
		volumes: map[string]*volume{}, nodes: map[string]*node{},
	}
	c.locks = exclusive.New(uncached{api}, api, clock.RealClock{}, c.slots)
	for _, name := range s.Nodes {
		n := &node{name: name, state: newLatest[volumesv1alpha1.NodeVolumeState]()}
		n.spec.batches.Limiter, n.list.batches.Limiter, n.users.batches.Limiter = c.slots, c.slots, c.slots
		n.spec.commit = func(ctx context.Context, group []change) error { return c.writeState(ctx, n, group) }
		n.list.commit = func(ctx context.Context, group []listing) error { return c.writeList(ctx, n, group) }
		n.users.commit = func(ctx context.Context, _ []struct{}) error { return c.readUsers(ctx, n) }
		c.nodes[name] = n
	}
	for _, v := range s.Volumes {
		c.volumes[v.Name] = &volume{
			Volume: v, node: c.nodes[v.Node],
			attachment: newLatest[storagev1.VolumeAttachment](), intent: newLatest[volumesv1alpha1.VolumeAttachmentIntent](),
		}
	}
	return c
}

// Intents serves intents from now on, until ctx ends.
func (c *Client) Intents(ctx context.Context, f *feed.Feed) error {
	if err := c.listen(ctx, f); err != nil {
		return err
	}
	return feed.On(ctx, f, &volumesv1alpha1.VolumeAttachmentIntent{}, func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		v := c.volumes[i.Name]
		if v == nil {
			return
		}
		v.intent.set(i)
		c.once(ctx, v, &v.wished, i.UID, c.attachIntent)
	}, func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		c.intentGone(i)
		if v := c.volumes[i.Name]; v != nil {
			c.once(ctx, v, &v.released, i.UID, c.detachIntent)
		}
	})
}

// Pods serves pods from now on, until ctx ends.
func (c *Client) Pods(ctx context.Context, f *feed.Feed) error {
	if err := c.listen(ctx, f); err != nil {
		return err
	}
	if err := feed.On(ctx, f, &volumesv1alpha1.VolumeAttachmentIntent{}, func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		if v := c.volumes[volumeOf(i)]; v != nil {
			v.intent.set(i)
		}
	}, c.intentGone); err != nil {
		return err
	}
	return feed.On(ctx, f, &corev1.Pod{}, func(pod *corev1.Pod) {
		if v := c.volumes[pod.Name]; v != nil {
			c.once(ctx, v, &v.wished, pod.UID, func(ctx context.Context, v *volume) error { return c.attachPod(ctx, v, pod) })
		}
	}, func(pod *corev1.Pod) {
		if v := c.volumes[pod.Name]; v != nil {
			c.once(ctx, v, &v.released, pod.UID, c.detachPod)
		}
	})
}

// volumeOf is the name of an intent's volume.
func volumeOf(i *volumesv1alpha1.VolumeAttachmentIntent) string {
	if i.Spec.Volume.PersistentVolumeClaim == nil {
		return ""
	}
	return i.Spec.Volume.PersistentVolumeClaim.ClaimName
}

func (c *Client) intentGone(i *volumesv1alpha1.VolumeAttachmentIntent) {
	if v := c.volumes[volumeOf(i)]; v != nil {
		v.intent.set(nil)
	}
}

// listen stores the objects of the watches.
func (c *Client) listen(ctx context.Context, f *feed.Feed) error {
	attachments := map[string]*volume{}
	for _, v := range c.volumes {
		attachments[v.Attachment] = v
	}
	if err := feed.On(ctx, f, &storagev1.VolumeAttachment{}, func(va *storagev1.VolumeAttachment) {
		if v := attachments[va.Name]; v != nil {
			v.attachment.set(va)
		}
	}, func(va *storagev1.VolumeAttachment) {
		if v := attachments[va.Name]; v != nil {
			v.attachment.set(nil)
		}
	}); err != nil {
		return err
	}
	return feed.On(ctx, f, &volumesv1alpha1.NodeVolumeState{}, func(nvs *volumesv1alpha1.NodeVolumeState) {
		if n := c.nodes[nvs.Name]; n != nil {
			n.state.set(nvs)
		}
	}, nil)
}

// once starts the work for the object of that UID, unless it was started before.
func (c *Client) once(ctx context.Context, v *volume, last *types.UID, uid types.UID,
	do func(context.Context, *volume) error) {
	v.mu.Lock()
	begun := *last == uid
	*last = uid
	v.mu.Unlock()
	if begun {
		return
	}
	c.running.Go(func() {
		if err := do(ctx, v); err != nil && ctx.Err() == nil {
			c.failed(fmt.Errorf("bare client: volume %s: %w", v.Name, err))
		}
	})
}

// request sends a request of one volume. A combined request uses the slot of its lane.
func (c *Client) request(ctx context.Context, send func() error) error {
	return c.slots.Do(ctx, func(context.Context) error { return send() })
}
