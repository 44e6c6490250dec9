/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package kubelet simulates the volume manager of a node's kubelet. It reports the volumes in use and mounts
// volumes that the Node lists as attached. It keeps a kubelet's records next to its mounts, and undoes
// everything. A restarted kubelet knows only what is on disk.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/driver"
)

const (
	// workers is how many volumes it handles concurrently.
	workers = 4
	// callTimeout bounds one driver call.
	callTimeout = 10 * time.Second
	// first and longest wait after a failure.
	firstBackoff, longestBackoff = 100 * time.Millisecond, 3 * time.Second
)

// Kubelet of one node.
type Kubelet struct {
	Node string
	// Dir is the kubelet's directory.
	Dir    string
	Client client.WithWatch
	// Drivers that are registered on the node.
	Drivers driver.Registry
	// Recalls is true if the first report of the volumes in use includes the records on disk. A kubelet that has
	// reconstructed everything reports so. Otherwise the kubelet first reports that it uses nothing, and reads the
	// records then.
	Recalls bool
	// Log receives a line for each failure.
	Log io.Writer

	queue workqueue.TypedRateLimitingInterface[string]
	mu    sync.Mutex
	// persistentVolumes by unique name.
	persistentVolumes map[string]string
	// inUse are the unique names of the volumes that it reports as in use.
	inUse map[string]bool
}

// Run simulates the kubelet until the context ends. Its keys are names of PersistentVolumes.
func (k *Kubelet) Run(ctx context.Context) error {
	k.inUse = map[string]bool{}
	if k.Recalls {
		k.recall()
	}
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstBackoff, longestBackoff)
	k.queue = workqueue.NewTypedRateLimitingQueue(limiter)
	var group sync.WaitGroup
	defer group.Wait()
	defer k.queue.ShutDown()
	for ctx.Err() == nil {
		if err := k.report(ctx); err == nil {
			break
		} else if !pause(ctx, firstBackoff) {
			return nil
		}
	}
	for range workers {
		group.Go(func() { k.work(ctx) })
	}
	k.follow(ctx)
	return nil
}

// pause waits. It returns false if the context ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// follow enqueues changes until the context ends. It restarts a watch that ended.
func (k *Kubelet) follow(ctx context.Context) {
	for ctx.Err() == nil {
		if err := k.watch(ctx); err != nil && !pause(ctx, firstBackoff) {
			return
		}
	}
}

func (k *Kubelet) watch(ctx context.Context) error {
	pods, err := k.Client.Watch(ctx, &corev1.PodList{}, client.MatchingFields{"spec.nodeName": k.Node})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	defer pods.Stop()
	nodes, err := k.Client.Watch(ctx, &corev1.NodeList{}, client.MatchingFields{"metadata.name": k.Node})
	if err != nil {
		return fmt.Errorf("watching the node: %w", err)
	}
	defer nodes.Stop()
	k.enqueueRecorded()
	for {
		var e watch.Event
		var open bool
		select {
		case <-ctx.Done():
			return nil
		case e, open = <-pods.ResultChan():
			if pod, ok := e.Object.(*corev1.Pod); ok {
				k.enqueuePod(ctx, pod)
			}
		case e, open = <-nodes.ResultChan():
			k.enqueueUsed()
		}
		if !open || e.Type == watch.Error {
			return errors.New("a watch ended")
		}
	}
}

func (k *Kubelet) work(ctx context.Context) {
	for {
		name, over := k.queue.Get()
		if over {
			return
		}
		err := k.reconcile(ctx, name)
		k.queue.Done(name)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			// An error of the log is ignored: it is for information only.
			_, _ = fmt.Fprintf(k.Log, "%s kubelet %s: %s: %v\n", time.Now().Format(time.TimeOnly), k.Node, name, err)
			k.queue.AddRateLimited(name)
		default:
			k.queue.Forget(name)
		}
	}
}

func (k *Kubelet) enqueuePod(ctx context.Context, pod *corev1.Pod) {
	for _, name := range k.volumesOf(ctx, pod) {
		k.queue.Add(name)
	}
}

// volumesOf names the PersistentVolumes of a pod.
func (k *Kubelet) volumesOf(ctx context.Context, pod *corev1.Pod) []string {
	var names []string
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{}
		key := client.ObjectKey{Namespace: pod.Namespace, Name: v.PersistentVolumeClaim.ClaimName}
		if err := k.Client.Get(ctx, key, claim); err == nil && claim.Spec.VolumeName != "" {
			names = append(names, claim.Spec.VolumeName)
		}
	}
	return names
}

// reconcile one volume: undo what no pod needs any more, then do what a pod needs.
func (k *Kubelet) reconcile(ctx context.Context, name string) error {
	pv := &corev1.PersistentVolume{}
	if err := k.Client.Get(ctx, client.ObjectKey{Name: name}, pv); err != nil {
		return client.IgnoreNotFound(err)
	}
	active, ending, err := k.podsOf(ctx, pv)
	if err != nil {
		return err
	}
	for _, pod := range ending {
		if err := k.stopped(ctx, pod); err != nil {
			return err
		}
	}
	v := k.volume(pv)
	if err := k.undo(ctx, v, active); err != nil {
		return err
	}
	for _, pod := range ending {
		if err := k.finish(ctx, pod); err != nil {
			return err
		}
	}
	if len(active) == 0 {
		return nil
	}
	return k.do(ctx, v, active)
}

// podsOf returns the pods on the node that use the volume, and those that are being deleted.
func (k *Kubelet) podsOf(ctx context.Context, pv *corev1.PersistentVolume) (active, ending []*corev1.Pod, err error) {
	pods := &corev1.PodList{}
	if err := k.Client.List(ctx, pods, client.MatchingFields{"spec.nodeName": k.Node}); err != nil {
		return nil, nil, fmt.Errorf("listing pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		uses := false
		for _, v := range pod.Spec.Volumes {
			c := v.PersistentVolumeClaim
			uses = uses || c != nil && pv.Spec.ClaimRef != nil && pod.Namespace == pv.Spec.ClaimRef.Namespace &&
				c.ClaimName == pv.Spec.ClaimRef.Name
		}
		switch {
		case !uses:
		case pod.DeletionTimestamp != nil:
			ending = append(ending, pod)
		default:
			active = append(active, pod)
		}
	}
	return active, ending, nil
}

// undo unpublishes for pods that are not active. Once no pod is left, it unstages and reports the volume as not in use.
func (k *Kubelet) undo(ctx context.Context, v *volume, active []*corev1.Pod) error {
	keep := map[string]bool{}
	for _, pod := range active {
		keep[string(pod.UID)] = true
	}
	published, err := v.publications()
	if err != nil {
		return err
	}
	for _, uid := range published {
		if !keep[uid] {
			if err := k.unpublish(ctx, v, uid); err != nil {
				return err
			}
		}
	}
	if len(active) > 0 {
		return nil
	}
	if err := k.unstage(ctx, v); err != nil {
		return err
	}
	return k.use(ctx, v.name, false)
}

// do reports the volume as in use and waits until the Node lists it as attached. Then it mounts it for each pod.
func (k *Kubelet) do(ctx context.Context, v *volume, active []*corev1.Pod) error {
	if err := k.use(ctx, v.name, true); err != nil {
		return err
	}
	attachment, err := k.verify(ctx, v)
	if attachment == nil || err != nil {
		return err
	}
	v.PublishContext = attachment.Status.AttachmentMetadata
	if err := k.stage(ctx, v); err != nil {
		return err
	}
	for _, pod := range active {
		if err := k.publish(ctx, v, pod); err != nil {
			return err
		}
	}
	return nil
}

// verify returns the volume's attachment, from live reads, if the Node lists the volume as attached. At that time the
// Node already reports it as in use. nil means that the caller waits for a change of the Node.
func (k *Kubelet) verify(ctx context.Context, v *volume) (*storagev1.VolumeAttachment, error) {
	node := &corev1.Node{}
	if err := k.Client.Get(ctx, client.ObjectKey{Name: k.Node}, node); err != nil {
		return nil, fmt.Errorf("reading the node: %w", err)
	}
	if !lists(node, v.name) {
		return nil, nil
	}
	va := &storagev1.VolumeAttachment{}
	if err := k.Client.Get(ctx, client.ObjectKey{Name: v.attachment(k.Node)}, va); err != nil {
		return nil, fmt.Errorf("reading the attachment: %w", err)
	}
	if !va.Status.Attached || va.DeletionTimestamp != nil {
		return nil, fmt.Errorf("%s is listed as attached, and its attachment is not", v.name)
	}
	return va, nil
}
