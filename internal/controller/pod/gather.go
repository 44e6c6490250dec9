/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package pod

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/resolve"
	pv "github.com/hawser-io/hawser/internal/controller/volume"
)

// +kubebuilder:rbac:groups="",resources=pods;nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=csidrivers,verbs=get;list;watch
// +kubebuilder:rbac:groups=volumes.hawser.io,resources=volumeattachmentintents,verbs=get;list;watch

// gather collects from the cache what belongs to the pod of one name.
func (c *Controller) gather(ctx context.Context, key types.NamespacedName) (facts, error) {
	f := facts{enabled: c.Enabled}
	list := &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := c.Client.List(ctx, list,
		client.MatchingFields{index.Pod: index.PodKey(key.Namespace, key.Name)}); err != nil {
		return f, fmt.Errorf("listing the intents of pod %s: %w", key, err)
	}
	for i := range list.Items {
		f.intents = append(f.intents, &list.Items[i])
	}
	pod := &corev1.Pod{}
	if err := c.Client.Get(ctx, key, pod); err != nil {
		return f, client.IgnoreNotFound(err)
	}
	f.pod = pod
	if !index.UsesVolumes(pod) {
		return f, nil
	}
	node := &corev1.Node{}
	switch err := c.Client.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, node); {
	case err == nil:
		f.node = node
	case !apierrors.IsNotFound(err):
		return f, fmt.Errorf("reading node %s: %w", pod.Spec.NodeName, err)
	}
	if c.Enabled {
		var err error
		if f.volumes, err = c.gatherVolumes(ctx, pod); err != nil {
			return f, err
		}
	}
	f.volumes = append(f.volumes, c.inlineVolumes(pod)...)
	return f, nil
}

// gatherVolumes finds the claims that the pod names, each once, and the volumes in itself that may have to be
// attached. A claim is read-only for the pod if all its volumes name it so.
func (c *Controller) gatherVolumes(ctx context.Context, pod *corev1.Pod) ([]podVolume, error) {
	var volumes []podVolume
	known := map[string]int{}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		claim := index.PodClaim(pod, v)
		if claim == "" {
			continue
		}
		readOnly := v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly
		if at, ok := known[claim]; ok {
			spec := &volumes[at].intent.Spec
			spec.ReadOnly = spec.ReadOnly && readOnly
			continue
		}
		source := volumesv1alpha1.VolumeSource{
			PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: claim},
		}
		if pv.MigratedInline(v) {
			source = volumesv1alpha1.VolumeSource{
				PodVolume: &volumesv1alpha1.PodVolumeSource{PodName: pod.Name, VolumeName: v.Name},
			}
		}
		name := volumesv1alpha1.PodIntentName(pod.Name, pod.UID, v.Name)
		intent := newIntent(pod, name, source, c.ForceDetachAfter)
		intent.Spec.ReadOnly = readOnly
		known[claim] = len(volumes)
		volumes = append(volumes, podVolume{pod: pod, name: v.Name, ephemeral: v.Ephemeral != nil, intent: intent})
	}
	for i := range volumes {
		if err := volumes[i].gather(ctx, c.Client); err != nil {
			return nil, err
		}
	}
	return volumes, nil
}

// gather reads what the volume's intent names, and what its driver asks for. A driver that is not described attaches,
// as upstream has it.
func (v *podVolume) gather(ctx context.Context, reader client.Reader) error {
	var err error
	if v.facts, err = resolve.Gather(ctx, reader, v.intent); err != nil {
		return fmt.Errorf("gathering what volume %s of pod %s/%s names: %w", v.name, v.pod.Namespace, v.pod.Name, err)
	}
	v.attachRequired = true
	source := v.facts.Source()
	if source == nil {
		return nil
	}
	driver := &storagev1.CSIDriver{}
	err = reader.Get(ctx, client.ObjectKey{Name: source.Driver}, driver)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading driver %s: %w", source.Driver, err)
	}
	v.attachRequired = source.Attach && (err != nil || attaches(driver))
	return nil
}

func attaches(driver *storagev1.CSIDriver) bool {
	return driver.Spec.AttachRequired == nil || *driver.Spec.AttachRequired
}

// liveUID is the UID of the pod that has the name now, read live; empty when there is none.
func (c *Controller) liveUID(ctx context.Context, key types.NamespacedName) (types.UID, error) {
	pod := &corev1.Pod{}
	if err := c.Reader.Get(ctx, key, pod); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading pod %s: %w", key, err)
	}
	return pod.UID, nil
}
