/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package bare is the limit of any implementation of Hawser's protocol: for each volume it does the writes and the
// live reads of the protocol in their order and nothing else. It knows beforehand which volume is meant, decides
// nothing and checks nothing. What the protocol allows to go out together for one node does.
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

// concurrency is how many requests it has under way.
const concurrency = 16

// Client does it.
type Client struct {
	api    client.Client
	failed func(error)
	slots  *inflight.Slots
	// running are the volumes that are on their way.
	running sync.WaitGroup

	volumes map[string]*volume
	nodes   map[string]*node
	locks   *exclusive.Store
}

// volume is one volume's part, by the name of its intent.
type volume struct {
	*stage.Volume
	node *node
	// attachment and intent as the watches show them.
	attachment *latest[storagev1.VolumeAttachment]
	intent     *latest[volumesv1alpha1.VolumeAttachmentIntent]

	mu sync.Mutex
	// wished and released are the UIDs of the intent or pod that was last seen to come and to go.
	wished, released types.UID
}

// node is one node's part.
type node struct {
	name  string
	state *latest[volumesv1alpha1.NodeVolumeState]
	// written is how the state was last written.
	written *volumesv1alpha1.NodeVolumeState
	// spec of the node's state, and the Node's list of attached volumes.
	spec lane[change]
	list lane[listing]
	// users are those for whom upstream keeps volumes attached.
	users lane[struct{}]
}

// New makes a client for a user. It tells failed of what must not happen.
func New(api client.Client, s *stage.Stage, failed func(error)) *Client {
	c := &Client{
		api: api, failed: failed, slots: inflight.New(concurrency),
		volumes: map[string]*volume{}, nodes: map[string]*node{},
	}
	c.locks = exclusive.New(uncached{api}, api, clock.RealClock{}, c.slots)
	for _, name := range s.Nodes {
		n := &node{name: name, state: newLatest[volumesv1alpha1.NodeVolumeState]()}
		n.spec.batches.Slots, n.list.batches.Slots, n.users.batches.Slots = c.slots, c.slots, c.slots
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

// volumeOf is the name of the volume that an intent is for.
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

// listen takes note of what is waited for.
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

// once begins what has to be done for the object of that UID, if it was not begun before.
func (c *Client) once(ctx context.Context, v *volume, last *types.UID, uid types.UID, do func(context.Context, *volume) error) {
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

// request sends one that is a volume's own. What goes out for several holds the slot of its lane.
func (c *Client) request(ctx context.Context, send func() error) error {
	return c.slots.Do(ctx, func(context.Context) error { return send() })
}
