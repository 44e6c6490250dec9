/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package pods

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/system"
)

const (
	nodeA, nodeB = "node-a", "node-b"
	namespace    = "default"
	class        = "bench"
)

// kind of pod that is measured.
type kind struct {
	name string
	// volume of a claim in a pod; nil for a pod without one.
	volume func(claim string) *corev1.VolumeSource
}

var (
	noVolume = kind{"no volume", nil}
	// emptyVolume needs nothing but the kubelet's own work for a volume.
	emptyVolume = kind{"emptyDir", func(string) *corev1.VolumeSource {
		return &corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	}}
	// published is the volume of an intent that is published before. It has the name of its claim.
	published = kind{"{intent}", inline(volumesv1alpha1.AttributeIntent)}
	claimed   = kind{"{claim}", inline(volumesv1alpha1.AttributeClaim)}
	upstream  = kind{"upstream", ofClaim}
	replaced  = kind{"Replace", ofClaim}
)

func inline(attribute string) func(string) *corev1.VolumeSource {
	return func(name string) *corev1.VolumeSource {
		return &corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: volumesv1alpha1.InlineDriver,
			VolumeAttributes: map[string]string{attribute: name}}}
	}
}

func ofClaim(name string) *corev1.VolumeSource {
	return &corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
}

// pod is for a node, which the scheduler chooses by its label. So {claim} and {intent} pods pass their gate.
func (k kind) pod(node, claim string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "pod-"},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: node}, HostNetwork: true,
			EnableServiceLinks: ptr.To(false), AutomountServiceAccountToken: ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To[int64](5),
			Containers: []corev1.Container{{Name: "main", Image: system.Image, ImagePullPolicy: corev1.PullNever,
				Args: []string{"pause"}}},
		},
	}
	if k.volume != nil {
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: *k.volume(claim)}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	}
	return pod
}

func claimName(i int) string { return fmt.Sprintf("claim-%03d", i) }

func newIntent(name, node string) *volumesv1alpha1.VolumeAttachmentIntent {
	return &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{NodeName: node, Volume: volumesv1alpha1.VolumeSource{
			PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: name}}},
	}
}

// prepare creates the claims, and publishes each once, which formats it.
func (b *bench) prepare(ctx context.Context) error {
	objects := []client.Object{
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: system.DriverName},
			Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(true)}},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: system.DriverName},
	}
	for i := range b.mass {
		objects = append(objects, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: claimName(i)},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: ptr.To(class), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("16Mi")}},
			}})
	}
	for _, object := range objects {
		if err := b.Client.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %s: %w", object.GetName(), err)
		}
	}
	b.say("\nformatting %d volumes by publishing each once", b.mass)
	return b.each(ctx, func(ctx context.Context, i int) error {
		intent, err := b.publish(ctx, claimName(i))
		if err != nil {
			return err
		}
		return b.release(ctx, intent)
	})
}

// publish creates an intent on node A and waits until it is Ready.
func (b *bench) publish(ctx context.Context, name string) (*volumesv1alpha1.VolumeAttachmentIntent, error) {
	intent := newIntent(name, nodeA)
	if err := b.Client.Create(ctx, intent); err != nil {
		return nil, fmt.Errorf("creating intent %s: %w", name, err)
	}
	return b.AwaitReady(ctx, namespace, name)
}

// release deletes an intent and waits until its volume is attached nowhere.
func (b *bench) release(ctx context.Context, i *volumesv1alpha1.VolumeAttachmentIntent) error {
	if err := b.Client.Delete(ctx, i); err != nil {
		return fmt.Errorf("deleting intent %s: %w", i.Name, err)
	}
	if err := b.AwaitGone(ctx, namespace, i.Name); err != nil {
		return err
	}
	return b.detached(ctx)
}

// detached waits until all attachments of now are gone.
func (b *bench) detached(ctx context.Context) error {
	var list storagev1.VolumeAttachmentList
	if err := b.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("listing attachments: %w", err)
	}
	for _, a := range list.Items {
		if err := b.AwaitAttachmentGone(ctx, a.Name); err != nil {
			return err
		}
	}
	return nil
}

// each calls do for every claim at once.
func (b *bench) each(ctx context.Context, do func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for i := range b.mass {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}
