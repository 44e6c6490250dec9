/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package doctor

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
)

const (
	driver     = "disk.example.com"
	namespace  = "shop"
	concurrent = 32
)

// each calls do for each number below n, several at once.
func each(ctx context.Context, n int, do func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrent)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// fill creates nodes with their agents, and volumes that pods use.
func (b *bench) fill(ctx context.Context) error {
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: driver}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: volumesv1alpha1.InstallNamespace}},
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driver}}, class,
	} {
		if err := b.client.Create(ctx, object); err != nil {
			return err
		}
	}
	if err := each(ctx, b.volumes, b.volume); err != nil {
		return err
	}
	return each(ctx, b.nodes, b.node)
}

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

// node creates a Node as a kubelet does, with the images and the labels of a machine that runs for a while.
func (b *bench) node(ctx context.Context, i int) error {
	name, now := nodeName(i), metav1.Now()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelHostname: name, corev1.LabelTopologyZone: fmt.Sprint("zone-", i%3)}}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		LastHeartbeatTime: now, LastTransitionTime: now}}
	for image := range 50 {
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{
			Names: []string{fmt.Sprintf("registry.example.com/some/project/image-%d@sha256:%064d", image, image)}})
	}
	renewed := metav1.NowMicro()
	for _, object := range []client.Object{node,
		&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{
			Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: name,
				Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To[int32](100)}}}}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: volumesv1alpha1.InstallNamespace,
			Name: volumesv1alpha1.AgentLeasePrefix + name}, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed,
			LeaseDurationSeconds: ptr.To[int32](3600)}},
	} {
		if err := b.client.Create(ctx, object); err != nil {
			return err
		}
	}
	return b.state(ctx, name, i)
}

// state creates the node state, with the volumes that the kubelet mounted.
func (b *bench) state(ctx context.Context, name string, i int) error {
	state := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := b.client.Create(ctx, state); err != nil {
		return err
	}
	state.Status.AgentVersion = "v0.0.0"
	state.Status.Drivers = []volumesv1alpha1.NodeDriver{{Name: driver, NodeID: name}}
	state.Status.Conditions = []metav1.Condition{{Type: volumesv1alpha1.ConditionReady, Status: metav1.ConditionTrue,
		Reason: volumesv1alpha1.ReasonReady, LastTransitionTime: metav1.Now()}}
	for v := i; v < b.volumes; v += b.nodes {
		state.Status.Volumes = append(state.Status.Volumes, volumesv1alpha1.NodeVolume{
			VolumeName: volume.UniqueName(driver, handleOf(v)), AttachmentUID: types.UID(handleOf(v)), InUse: true,
			PublishedBy: volumesv1alpha1.PublisherKubelet,
			Used:        resource.NewQuantity(1<<30, resource.BinarySI),
			Available:   resource.NewQuantity(1<<30, resource.BinarySI)})
	}
	return b.client.Status().Update(ctx, state)
}

func handleOf(i int) string { return fmt.Sprintf("handle-%d", i) }

// volume creates a volume, its claim, its attachment, and the pod that uses it.
func (b *bench) volume(ctx context.Context, i int) error {
	name, node := fmt.Sprintf("data-%d", i), nodeName(i%b.nodes)
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: modes, VolumeName: name, StorageClassName: ptr.To("fast"),
			Resources: corev1.VolumeResourceRequirements{Requests: size}}}
	if err := b.create(ctx, claim, func() {
		claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: size, AccessModes: modes}
	}); err != nil {
		return err
	}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: modes, Capacity: size, StorageClassName: "fast",
		ClaimRef: &corev1.ObjectReference{Namespace: namespace, Name: name, UID: claim.UID},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver,
			VolumeHandle: handleOf(i), VolumeAttributes: map[string]string{"pool": "a", "replicas": "3"}}}}}
	if err := b.create(ctx, pv, func() { pv.Status.Phase = corev1.VolumeBound }); err != nil {
		return err
	}
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: volume.AttachmentName(driver, handleOf(i), node),
		Annotations: map[string]string{volume.NodeIDAnnotation: node}},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name}}}
	if err := b.create(ctx, va, func() { va.Status.Attached = true }); err != nil {
		return err
	}
	pod := podOf(name, node)
	return b.create(ctx, pod, func() { pod.Status.Phase = corev1.PodRunning })
}

// create an object, then its status.
func (b *bench) create(ctx context.Context, object client.Object, status func()) error {
	if err := b.client.Create(ctx, object); err != nil {
		return err
	}
	status()
	return b.client.Status().Update(ctx, object)
}

// podOf is a pod with two containers and their variables, as most are.
func podOf(name, node string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Labels: map[string]string{"app": "shop", "part": name}}, Spec: corev1.PodSpec{NodeName: node,
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}}}
	for _, container := range []string{"main", "sidecar"} {
		c := corev1.Container{Name: container, Image: "registry.example.com/shop/" + container + ":1.2.3",
			VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}
		for i := range 12 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("VARIABLE_", i), Value: "a value of some length, as they are"})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	return pod
}

// wait lets pods wait, each with an event of the kubelet. The command sees them as old as it asks for.
func (b *bench) wait(ctx context.Context) error {
	return each(ctx, b.waiting, func(ctx context.Context, i int) error {
		pod, key := &corev1.Pod{}, client.ObjectKey{Namespace: namespace, Name: fmt.Sprintf("data-%d", i)}
		if err := b.client.Get(ctx, key, pod); err != nil {
			return err
		}
		pod.Status.Phase = corev1.PodPending
		if err := b.client.Status().Update(ctx, pod); err != nil {
			return err
		}
		at := metav1.NewTime(time.Now())
		return b.client.Create(ctx, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: "event-" + pod.Name},
			FirstTimestamp: at, LastTimestamp: at,
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: pod.Name, UID: pod.UID},
			Type:           corev1.EventTypeWarning, Reason: "FailedMount", Count: 1,
			Message: `MountVolume.MountDevice failed for volume "` + pod.Name + `": rpc error: code = Internal desc = no path`})
	})
}
