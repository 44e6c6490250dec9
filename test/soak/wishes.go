/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/test/system"
)

const (
	namespace = "default"
	class     = "loop"
	// crowd is the namespace of a tenant that fills a node.
	crowd = "crowd"
)

// claim is one volume.
type claim struct {
	name, handle, volume string
	exclusive            bool
}

type kind struct {
	access corev1.PersistentVolumeAccessMode
	mode   corev1.PersistentVolumeMode
	number int
}

// kinds of volumes. Nodes share a volume of the driver only as a device, because ext4 is for one node.
var kinds = []kind{
	{corev1.ReadWriteOnce, corev1.PersistentVolumeFilesystem, 4},
	{corev1.ReadWriteOnce, corev1.PersistentVolumeBlock, 2},
	{corev1.ReadWriteMany, corev1.PersistentVolumeBlock, 2},
	{corev1.ReadWriteOncePod, corev1.PersistentVolumeFilesystem, 1},
}

// prepare creates the driver's objects and the claims, and waits until the claims are bound.
func (s *soak) prepare(ctx context.Context) error {
	policy := storagev1.FileFSGroupPolicy
	for _, o := range []client.Object{
		&storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: system.DriverName,
				Annotations: map[string]string{volumesv1alpha1.CutsAccessAnnotation: "true"}},
			Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(true), FSGroupPolicy: &policy},
		},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: crowd}},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: system.DriverName},
	} {
		if err := s.sys.Client.Create(ctx, o); err != nil {
			return fmt.Errorf("creating %s: %w", o.GetName(), err)
		}
	}
	for _, k := range kinds {
		for range k.number {
			c, err := s.makeClaim(ctx, namespace, k)
			if err != nil {
				return err
			}
			s.claims = append(s.claims, c)
		}
	}
	var err error
	if s.crowded, err = s.makeClaim(ctx, crowd, kinds[2]); err != nil {
		return err
	}
	s.judge.know(append(slices.Clone(s.claims), s.crowded))
	return nil
}

func (s *soak) makeClaim(ctx context.Context, namespace string, k kind) (*claim, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	name := fmt.Sprintf("claim-%d", len(s.claims))
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To(class), VolumeMode: &k.mode, AccessModes: []corev1.PersistentVolumeAccessMode{k.access},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("32Mi")}},
		},
	}
	if err := s.sys.Client.Create(ctx, pvc); err != nil {
		return nil, fmt.Errorf("creating claim %s: %w", name, err)
	}
	bound, err := s.sys.AwaitClaim(ctx, namespace, name, func(c *corev1.PersistentVolumeClaim) bool {
		return c != nil && c.Status.Phase == corev1.ClaimBound
	})
	if err != nil {
		return nil, err
	}
	pv := &corev1.PersistentVolume{}
	if err := s.sys.Client.Get(ctx, client.ObjectKey{Name: bound.Spec.VolumeName}, pv); err != nil {
		return nil, fmt.Errorf("reading volume %s: %w", bound.Spec.VolumeName, err)
	}
	s.say("%s is volume %s, %s %s", name, pv.Spec.CSI.VolumeHandle, k.access, k.mode)
	return &claim{name: name, handle: pv.Spec.CSI.VolumeHandle, volume: volume.UniqueNameOf(pv),
		exclusive: volume.Exclusive(pv)}, nil
}

// desired states; the usual one is more frequent.
var desired = []volumesv1alpha1.DesiredState{
	volumesv1alpha1.DesiredAttached, volumesv1alpha1.DesiredStaged,
	volumesv1alpha1.DesiredPublished, volumesv1alpha1.DesiredPublished, volumesv1alpha1.DesiredPublished,
}

// mostWishes limits the number of wishes. With more, every exclusive volume is contended, and nothing moves.
const mostWishes = 14

func (s *soak) createIntent(ctx context.Context) error {
	s.count++
	c, node := pick(s.random, s.claims), pick(s.random, s.sys.Nodes)
	intent := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("intent-%d", s.count)},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{
			NodeName: node, DesiredState: pick(s.random, desired),
			Volume: volumesv1alpha1.VolumeSource{
				PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: c.name}},
		},
	}
	if s.random.IntN(4) == 0 {
		intent.Spec.DetachPolicy = &volumesv1alpha1.DetachPolicy{ForceAfter: metav1.Duration{Duration: time.Minute}}
	}
	return s.create(ctx, intent, "%s wants %s %s on %s", intent.Name, c.name, intent.Spec.DesiredState, node)
}

// createPod binds a pod to a node, as a scheduler does.
func (s *soak) createPod(ctx context.Context) error {
	s.count++
	node := pick(s.random, s.sys.Nodes)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("pod-%d", s.count)},
		Spec: corev1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: ptr.To(false), TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers: []corev1.Container{{Name: "main", Image: "none"}},
		},
	}
	var names []string
	for range 1 + s.random.IntN(2) {
		c := pick(s.random, s.claims)
		if slices.Contains(names, c.name) {
			continue
		}
		names = append(names, c.name)
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: c.name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.name},
		}})
	}
	return s.create(ctx, pod, "%s wants %v on %s", pod.Name, names, node)
}

func (s *soak) create(ctx context.Context, o client.Object, what string, args ...any) error {
	if len(s.wishes) >= mostWishes {
		return s.deleteWish(ctx)
	}
	s.say(what, args...)
	s.wishes = append(s.wishes, o)
	return s.sys.Client.Create(ctx, o)
}

// deleteWish deletes an intent or a pod. It sometimes deletes a pod by force, as impatient users do.
func (s *soak) deleteWish(ctx context.Context) error {
	if len(s.wishes) == 0 {
		return nil
	}
	at := s.random.IntN(len(s.wishes))
	force := s.random.IntN(4) == 0
	o := s.wishes[at]
	s.wishes = slices.Delete(s.wishes, at, at+1)
	return s.deleteOne(ctx, o, force)
}

func (s *soak) deleteOne(ctx context.Context, o client.Object, force bool) error {
	var options []client.DeleteOption
	how := ""
	if _, ok := o.(*corev1.Pod); ok && force {
		options, how = append(options, client.GracePeriodSeconds(0)), " by force"
	}
	s.say("%s is deleted%s", o.GetName(), how)
	return client.IgnoreNotFound(s.sys.Client.Delete(ctx, o, options...))
}

// changeIntent raises or lowers an intent.
func (s *soak) changeIntent(ctx context.Context) error {
	if len(s.wishes) == 0 {
		return nil
	}
	o, state := pick(s.random, s.wishes), pick(s.random, desired)
	intent, ok := o.(*volumesv1alpha1.VolumeAttachmentIntent)
	if !ok {
		return nil
	}
	s.say("%s changes to %s", intent.Name, state)
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"desiredState":%q}}`, state))
	return client.IgnoreNotFound(s.sys.Client.Patch(ctx, intent.DeepCopy(), patch))
}

// fillNode creates more intents of one volume on a node than there may be, all at once, and deletes them.
func (s *soak) fillNode(ctx context.Context) error {
	node, lasts := pick(s.random, s.sys.Nodes), shortWhile(s.random)
	s.meanwhile([]string{"a tenant fills a node"}, func() error {
		const number = volumesv1alpha1.MaxUses + 20
		s.say("a tenant creates %d intents of one volume on %s", number, node)
		for i := range number {
			state := volumesv1alpha1.DesiredAttached
			if i%16 == 0 {
				state = volumesv1alpha1.DesiredPublished
			}
			err := s.sys.Client.Create(ctx, &volumesv1alpha1.VolumeAttachmentIntent{
				ObjectMeta: metav1.ObjectMeta{Namespace: crowd, GenerateName: "filler-"},
				Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{
					NodeName: node, DesiredState: state,
					Volume: volumesv1alpha1.VolumeSource{
						PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: s.crowded.name}},
				},
			})
			if ctx.Err() != nil {
				break
			}
			if err != nil {
				return fmt.Errorf("filling %s: %w", node, err)
			}
		}
		wait(ctx, lasts)
		s.say("the tenant deletes them")
		return s.sys.Client.DeleteAllOf(context.WithoutCancel(ctx), &volumesv1alpha1.VolumeAttachmentIntent{},
			client.InNamespace(crowd))
	})
	return nil
}
