/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package volumesattached writes Node.status.volumesAttached, the list of what the kubelet may mount, in attach
// mode Replace. Each node has one write at a time, at the resourceVersion of the live read that it was decided on;
// what comes meanwhile goes out together with the next one.
package volumesattached

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/batch"
	"github.com/hawser-io/hawser/internal/controller/inflight"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/handshake"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get
// The right to patch nodes/status is separate, in config/replace, because only this mode needs it.
// +kubebuilder:rbac:groups=volumes.hawser.io,resources=nodevolumestates,verbs=get

// commitTimeout bounds one group's write with its reruns.
const commitTimeout = 30 * time.Second

// unlistings on a Node counts the volumes that were unlisted although they were not listed: the write has to be a
// change, because it voids what was decided on an earlier version of the Node.
const unlistings = "volumes.hawser.io/unlistings"

// Writer is the only writer of volumesAttached.
type Writer struct {
	// Client writes.
	Client client.Client
	// Reader reads live.
	Reader client.Reader
	// Known is the newest version of a node's state that is known here; nil when there is none.
	Known    func(ctx context.Context, node string) *volumesv1alpha1.NodeVolumeState
	Protocol handshake.Protocol

	batches batch.Batches[*request]
}

// New makes a writer. Each of its commits holds one of the slots.
func New(c client.Client, reader client.Reader, states *nodestate.Writer, s *inflight.Limiter) *Writer {
	return &Writer{Client: c, Reader: reader, Known: states.Known, batches: batch.Batches[*request]{Limiter: s}}
}

// Result of a request. Guard is what refused it; then nothing was written for it.
type Result struct {
	Guard handshake.Guard
	// Lists is what the Node lists of the volume now.
	Lists handshake.KubeletLists
	// BootID that the Node names at that version; empty where there is no Node.
	BootID string
}

type request struct {
	volumeName string
	list       bool
	done       chan struct{}
	result     Result
	err        error
}

// List puts the volume, which must be Attached, into the node's volumesAttached. It is idempotent.
func (w *Writer) List(ctx context.Context, node, volumeName string) (Result, error) {
	return w.do(ctx, node, &request{volumeName: volumeName, list: true})
}

// Unlist removes a volume whose entry must be Detaching from the node's volumesAttached, unless the kubelet
// still uses it or there is no such Node, whose use is unknown. What is forced is taken for done there.
func (w *Writer) Unlist(ctx context.Context, node, volumeName string) (Result, error) {
	return w.do(ctx, node, &request{volumeName: volumeName})
}

// do waits for the commit; meanwhile the caller's slot is lent.
func (w *Writer) do(ctx context.Context, node string, r *request) (Result, error) {
	r.done = make(chan struct{})
	w.batches.Add(node, r, w.commit)
	if err := inflight.Await(ctx, r.done); err != nil {
		return Result{}, err
	}
	return r.result, r.err
}

func (w *Writer) commit(name string, group []*request) {
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	err := w.write(ctx, name, group)
	for _, r := range group {
		r.err = err
		close(r.done)
	}
}

// write decides on live reads, the Node and then its NodeVolumeState, and writes at the Node's version, again and
// again until no other writer was first. For what is only to be unlisted it is enough to know that the entry was
// Detaching before the Node was read.
func (w *Writer) write(ctx context.Context, name string, group []*request) error {
	known := w.detaching(ctx, name, group)
	for {
		node, nvs := &corev1.Node{}, known
		if err := w.read(ctx, name, node); err != nil {
			return err
		}
		if nvs == nil {
			nvs = &volumesv1alpha1.NodeVolumeState{}
			if err := w.read(ctx, name, nvs); err != nil {
				return err
			}
		}
		listed, changed := w.decide(node, nvs, group)
		if !changed {
			return nil
		}
		err := w.patch(ctx, node, listed)
		if !apierrors.IsConflict(err) || ctx.Err() != nil {
			return err
		}
	}
}

// detaching is the state of the node as it is known here if it says Detaching of all volumes of the group, and all
// are to be unlisted; otherwise nil.
func (w *Writer) detaching(ctx context.Context, name string, group []*request) *volumesv1alpha1.NodeVolumeState {
	nvs := w.Known(ctx, name)
	for _, r := range group {
		if nvs == nil || r.list || handshake.NodeOf(nvs, r.volumeName).Entry.State != handshake.Detaching {
			return nil
		}
	}
	return nvs
}

// read reads an object live, which stays empty when there is none.
func (w *Writer) read(ctx context.Context, name string, o client.Object) error {
	err := w.Reader.Get(ctx, client.ObjectKey{Name: name}, o)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading %T %s: %w", o, name, err)
	}
	return nil
}

// decide answers every request and returns what the Node is to list, and whether that has to be written.
func (w *Writer) decide(
	node *corev1.Node, nvs *volumesv1alpha1.NodeVolumeState, group []*request,
) ([]corev1.AttachedVolume, bool) {
	listed, changed := slices.Clone(node.Status.VolumesAttached), false
	exists := node.UID != ""
	for _, r := range group {
		state, lists := handshake.NodeOf(nvs, r.volumeName), listsOf(node, r.volumeName)
		lists.Missing = !exists
		r.result = Result{Lists: lists, BootID: node.Status.NodeInfo.BootID}
		if r.list {
			r.result.Guard = w.Protocol.MayListAttached(state)
		} else {
			r.result.Guard = w.Protocol.MayUnlistAttached(state, lists)
		}
		if !exists || r.result.Guard != handshake.GuardNone {
			continue
		}
		entry := handshake.AttachmentOf(nvs, r.volumeName)
		if !r.list && entry.Protocol.UnlistedGeneration > 0 {
			// Done before, and the agent has been asked to check.
			continue
		}
		var one bool
		if listed, one = put(listed, entry, r); one || !r.list {
			changed = true
		}
		r.result.Lists.Attached = r.list
	}
	return listed, changed
}

func listsOf(node *corev1.Node, volumeName string) handshake.KubeletLists {
	name := corev1.UniqueVolumeName(volumeName)
	return handshake.KubeletLists{
		Attached: slices.ContainsFunc(node.Status.VolumesAttached, func(v corev1.AttachedVolume) bool {
			return v.Name == name
		}),
		InUse: slices.Contains(node.Status.VolumesInUse, name),
	}
}

// put makes listed say what r asks for, and reports whether that was a change.
func put(
	listed []corev1.AttachedVolume, entry *volumesv1alpha1.NodeAttachment, r *request,
) ([]corev1.AttachedVolume, bool) {
	name := corev1.UniqueVolumeName(r.volumeName)
	i := slices.IndexFunc(listed, func(v corev1.AttachedVolume) bool { return v.Name == name })
	if !r.list {
		if i < 0 {
			return listed, false
		}
		return slices.Delete(listed, i, i+1), true
	}
	wanted := corev1.AttachedVolume{Name: name, DevicePath: entry.PublishContext["devicePath"]}
	switch {
	case i < 0:
		return append(listed, wanted), true
	case listed[i] == wanted:
		return listed, false
	}
	listed[i] = wanted
	return listed, true
}

// patch writes the list at the version of node, as a change also where the list stays the same.
func (w *Writer) patch(ctx context.Context, node *corev1.Node, listed []corev1.AttachedVolume) error {
	metadata := map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion}
	if slices.Equal(listed, node.Status.VolumesAttached) {
		count, _ := strconv.Atoi(node.Annotations[unlistings]) // anything but a number counts as none
		metadata["annotations"] = map[string]string{unlistings: strconv.Itoa(count + 1)}
	}
	if listed == nil {
		listed = []corev1.AttachedVolume{}
	}
	body, err := json.Marshal(map[string]any{"metadata": metadata, "status": map[string]any{"volumesAttached": listed}})
	if err != nil {
		return fmt.Errorf("encoding volumesAttached of node %s: %w", node.Name, err)
	}
	target := &corev1.Node{}
	target.Name = node.Name
	if err := w.Client.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, body)); err != nil {
		return fmt.Errorf("writing volumesAttached of node %s: %w", node.Name, err)
	}
	return nil
}
