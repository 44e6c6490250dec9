/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package volumes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// GroupAnnotation of a PersistentVolume has the number of the group that owns its files. The kubelet adds the group to
// the supplemental groups of pods that use the volume's claim themselves. It does not for an inline volume.
const GroupAnnotation = "pv.beta.kubernetes.io/gid"

// Volume of a pod that lasts longer than the pod: one of a claim, or of an intent.
type Volume struct {
	// Name in spec.volumes of the pod. The volumes in a directory of intents share it.
	Name string
	// Intent through which the volume is attached. It is empty for a claim in attach mode Coexist. An intent that
	// Hawser has yet to create has its name here too.
	Intent types.NamespacedName
	// Claim is the name of the claim, in the pod's namespace. It is empty if the intent does not exist.
	Claim string
	// PersistentVolume is the name of the volume; empty until the claim is bound or the intent is resolved.
	PersistentVolume string
	// Ready reports whether the intent has reached its desired state, for its present spec. The kubelet may not have
	// mounted the volume into the pod yet. It is always false without an intent.
	Ready bool
	// Path is where the agent has published the volume on the node, until it is undone. The pod has another mount of
	// it. Path is empty where the kubelet mounts the volume.
	Path string
	// Mode is Filesystem or Block; empty until the claim is known.
	Mode corev1.PersistentVolumeMode
	// ReadOnly: the pod cannot write to the volume in any of its containers. A container may be restricted further.
	ReadOnly bool
	// SupplementalGroup is the group of GroupAnnotation if the pod does not name it in its own supplementalGroups; nil
	// without one. For an inline volume nothing adds it to the pod: its author has to.
	SupplementalGroup *int64
}

// VolumesOfPod returns the volumes of the pod that belong to a claim or an intent, in the order of its spec. Other
// volumes, such as configMaps, are left out.
//
// A directory of intents counts for each intent that its selector selects at present, on the pod's node, also those of
// sets. It does not for intents of pods, or those that are not published as a filesystem by Hawser.
//
// It reads each claim, intent and PersistentVolume once, and writes nothing. What does not exist yet leaves its fields
// empty, without an error. The pod may be gated or have no node. The result is what the API has at present: use
// WaitForReady on an Intent of the result, and call VolumesOfPod again.
func (c *Client) VolumesOfPod(ctx context.Context, pod *corev1.Pod) ([]Volume, error) {
	var volumes []Volume
	var failures []error
	for i := range pod.Spec.Volumes {
		found, err := c.volumesOf(ctx, pod, &pod.Spec.Volumes[i])
		if err != nil {
			failures = append(failures, fmt.Errorf("reading volume %s of pod %s/%s: %w", pod.Spec.Volumes[i].Name,
				pod.Namespace, pod.Name, err))
		}
		volumes = append(volumes, found...)
	}
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	return volumes, nil
}

// volumesOf are the volumes that one volume of the spec stands for.
func (c *Client) volumesOf(ctx context.Context, pod *corev1.Pod, in *corev1.Volume) ([]Volume, error) {
	if in.CSI != nil && in.CSI.Driver == volumesv1alpha1.InlineDriver {
		if selector := in.CSI.VolumeAttributes[volumesv1alpha1.AttributeIntents]; selector != "" {
			return c.selected(ctx, pod, in, selector)
		}
	}
	v, ok, err := c.volumeOf(ctx, pod, in)
	if err != nil || !ok {
		return nil, err
	}
	return []Volume{v}, nil
}

// selected are the volumes that the selector of a directory selects at present.
func (c *Client) selected(ctx context.Context, pod *corev1.Pod, in *corev1.Volume, text string) ([]Volume, error) {
	selector, err := labels.Parse(text)
	if err != nil || selector.Empty() {
		return nil, err // an empty one is refused, so the pod has nothing
	}
	list, err := c.Intents(pod.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, err
	}
	var volumes []Volume
	for i := range list.Items {
		intent := &list.Items[i]
		if intent.Spec.NodeName != pod.Spec.NodeName || !shown(intent) {
			continue
		}
		v := Volume{Name: in.Name, ReadOnly: ptr.Deref(in.CSI.ReadOnly, false)}
		p := &podVolume{client: c, pod: pod, Volume: &v}
		p.Intent = types.NamespacedName{Namespace: intent.Namespace, Name: intent.Name}
		p.ofIntent(intent)
		if err := p.readClaim(ctx); err != nil {
			return nil, err
		}
		volumes = append(volumes, v)
	}
	return volumes, nil
}

// shown reports whether a directory shows the intent's volume that its selector selects, or may still show it: one that
// is being deleted stays there until it is released.
func shown(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	if owner := metav1.GetControllerOf(intent); owner != nil && owner.Kind == "Pod" &&
		owner.APIVersion == corev1.SchemeGroupVersion.String() {
		return false // made for the claim of a pod
	}
	spec := &intent.Spec
	return spec.Publisher != volumesv1alpha1.PublisherKubelet &&
		(spec.DesiredState == volumesv1alpha1.DesiredPublished || spec.DesiredState == "") &&
		intent.Status.VolumeMode != corev1.PersistentVolumeBlock &&
		(intent.DeletionTimestamp.IsZero() || intent.Status.Path != "")
}

func (c *Client) volumeOf(ctx context.Context, pod *corev1.Pod, in *corev1.Volume) (Volume, bool, error) {
	v := Volume{Name: in.Name}
	p := &podVolume{client: c, pod: pod, Volume: &v}
	var err error
	switch {
	case in.PersistentVolumeClaim != nil:
		v.Claim, v.ReadOnly = in.PersistentVolumeClaim.ClaimName, in.PersistentVolumeClaim.ReadOnly
		err = p.ofKubelet(ctx)
	case in.Ephemeral != nil:
		v.Claim = pod.Name + "-" + in.Name // as Kubernetes names it
		err = p.ofKubelet(ctx)
	case in.CSI != nil && in.CSI.Driver == volumesv1alpha1.InlineDriver:
		v.ReadOnly = ptr.Deref(in.CSI.ReadOnly, false)
		err = p.inline(ctx, in.CSI.VolumeAttributes)
	default:
		return v, false, nil
	}
	return v, true, err
}

// podVolume reads one volume of a pod.
type podVolume struct {
	client *Client
	pod    *corev1.Pod
	*Volume
}

// inline reads what an inline volume names.
func (p *podVolume) inline(ctx context.Context, attributes map[string]string) error {
	p.Intent = types.NamespacedName{Namespace: p.pod.Namespace, Name: attributes[volumesv1alpha1.AttributeIntent]}
	if claim := attributes[volumesv1alpha1.AttributeClaim]; claim != "" {
		p.Claim, p.Intent.Name = claim, volumesv1alpha1.InlineIntentName(p.pod.Name, p.pod.UID, claim)
	}
	if _, err := p.readIntent(ctx); err != nil {
		return err
	}
	return p.readClaim(ctx)
}

// ofKubelet reads a volume that the kubelet mounts. It has an intent in attach mode Replace alone.
func (p *podVolume) ofKubelet(ctx context.Context) error {
	p.Intent = types.NamespacedName{Namespace: p.pod.Namespace,
		Name: volumesv1alpha1.PodIntentName(p.pod.Name, p.pod.UID, p.Name)}
	found, err := p.readIntent(ctx)
	if err != nil {
		return err
	}
	if !found {
		p.Intent = types.NamespacedName{}
	}
	return p.readClaim(ctx)
}

// readIntent reads the intent. Another one that has its name is none of the pod's.
func (p *podVolume) readIntent(ctx context.Context) (found bool, err error) {
	if p.Intent.Name == "" {
		return false, nil
	}
	intent, err := p.client.Intents(p.Intent.Namespace).Get(ctx, p.Intent.Name, metav1.GetOptions{})
	if err != nil {
		return false, ignoreNotFound(err) // as without Hawser's kinds
	}
	named := p.Claim == "" // by the author of the pod
	if !named && !metav1.IsControlledBy(intent, p.pod) {
		return false, nil
	}
	p.ofIntent(intent)
	return true, nil
}

// ofIntent adds what the intent has.
func (p *podVolume) ofIntent(intent *volumesv1alpha1.VolumeAttachmentIntent) {
	if claim := intent.Spec.Volume.PersistentVolumeClaim; p.Claim == "" && claim != nil {
		p.Claim = claim.ClaimName
	}
	p.Ready = intent.Status.ObservedGeneration == intent.Generation &&
		meta.IsStatusConditionTrue(intent.Status.Conditions, volumesv1alpha1.ConditionReady)
	p.Path, p.PersistentVolume, p.Mode = intent.Status.Path, intent.Status.VolumeName, intent.Status.VolumeMode
	p.ReadOnly = p.ReadOnly || intent.Spec.ReadOnly
}

// readClaim adds what the claim and its volume have.
func (p *podVolume) readClaim(ctx context.Context) error {
	if p.Claim == "" {
		return nil
	}
	claim, err := p.client.claims(p.pod.Namespace).Get(ctx, p.Claim, metav1.GetOptions{})
	if err != nil {
		return ignoreNotFound(err)
	}
	if p.Mode == "" {
		p.Mode = ptr.Deref(claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	}
	if p.PersistentVolume == "" {
		p.PersistentVolume = claim.Spec.VolumeName
	}
	if p.PersistentVolume == "" {
		return nil
	}
	pv, err := p.client.persistentVolumes().Get(ctx, p.PersistentVolume, metav1.GetOptions{})
	if err != nil {
		return ignoreNotFound(err)
	}
	p.SupplementalGroup = extraGroup(pv, p.pod)
	return nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// extraGroup is the group of the annotation; nil if it is no number, as for the kubelet, or the pod names it itself.
func extraGroup(pv *corev1.PersistentVolume, pod *corev1.Pod) *int64 {
	group, err := strconv.ParseInt(pv.Annotations[GroupAnnotation], 10, 64)
	if err != nil {
		return nil
	}
	if s := pod.Spec.SecurityContext; s != nil && slices.Contains(s.SupplementalGroups, group) {
		return nil
	}
	return &group
}
