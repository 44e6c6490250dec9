/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package stage creates the objects for the contenders: nodes with a driver, volumes with their claims, and the pods or
// intents that want them. Nothing is provisioned and no pod ever runs.
package stage

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/sync/errgroup"
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
	// DriverName of the stub driver.
	DriverName = "stub.csi.hawser.io"
	// Namespace of claims, pods and intents.
	Namespace = "default"
	// Writers is how many objects are created concurrently.
	Writers = 32
)

// Volume is one volume and the node that it is wanted on.
type Volume struct {
	// Name of its claim, its pod and its intent.
	Name string
	Node string
	// Unique name, as nodes list it.
	Unique string
	// Attachment is the name of its VolumeAttachment.
	Attachment string

	PersistentVolume *corev1.PersistentVolume
	Claim            *corev1.PersistentVolumeClaim
}

// Stage has everything that was created.
type Stage struct {
	Nodes   []string
	Volumes []*Volume

	client client.Client
}

// New plans a stage without volumes.
func New(c client.Client, nodes int) *Stage {
	s := &Stage{client: c}
	for i := range nodes {
		s.Nodes = append(s.Nodes, fmt.Sprintf("node-%03d", i))
	}
	return s
}

// Plan adds this number of volumes, distributed over the first nodes, and returns them.
func (s *Stage) Plan(volumes, nodes int) []*Volume { return s.PlanOn(volumes, s.Nodes[:nodes]) }

// PlanOn adds this number of volumes, distributed over the nodes, and returns them.
func (s *Stage) PlanOn(volumes int, nodes []string) []*Volume {
	var planned []*Volume
	for i := range volumes {
		name := fmt.Sprintf("volume-%05d", len(s.Volumes)+i)
		node := nodes[i%len(nodes)]
		planned = append(planned, &Volume{
			Name: name, Node: node,
			Unique:     volume.UniqueName(DriverName, handle(name)),
			Attachment: volume.AttachmentName(DriverName, handle(name), node),
		})
	}
	s.Volumes = append(s.Volumes, planned...)
	return planned
}

// Write writes the names and the created objects to a file.
func (s *Stage) Write(file string) error {
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encoding the stage: %w", err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return fmt.Errorf("writing the stage: %w", err)
	}
	return nil
}

// Read reads a stage file. The stage is only for reading.
func Read(file string) (*Stage, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the stage: %w", err)
	}
	s := &Stage{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("decoding the stage: %w", err)
	}
	return s, nil
}

func handle(name string) string { return "handle-" + name }

// Set creates all objects.
func (s *Stage) Set(ctx context.Context) error {
	if err := s.SetNodes(ctx); err != nil {
		return err
	}
	return s.SetVolumes(ctx)
}

// SetNodes creates the driver, and the nodes with it.
func (s *Stage) SetNodes(ctx context.Context) error {
	driver := &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: DriverName}, Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(true)},
	}
	if err := s.client.Create(ctx, driver); err != nil {
		return fmt.Errorf("creating the driver: %w", err)
	}
	return Each(ctx, s.Nodes, s.node)
}

// SetVolumes creates the volumes and their claims.
func (s *Stage) SetVolumes(ctx context.Context) error { return Each(ctx, s.Volumes, s.volume) }

// Each calls do for all elements, Writers at once.
func Each[T any](ctx context.Context, all []T, do func(context.Context, T) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(Writers)
	for _, one := range all {
		group.Go(func() error { return do(ctx, one) })
	}
	return group.Wait()
}

// node creates a Ready Node whose attaching is done by the cluster side.
func (s *Stage) node(ctx context.Context, name string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:        name,
		Labels:      map[string]string{corev1.LabelHostname: name},
		Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
	}}
	if err := s.client.Create(ctx, node); err != nil {
		return fmt.Errorf("creating node %s: %w", name, err)
	}
	now := metav1.Now()
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now, Reason: "Stub",
	}}
	if err := s.client.Status().Update(ctx, node); err != nil {
		return fmt.Errorf("making node %s Ready: %w", name, err)
	}
	drivers := &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID,
		}}},
		Spec: storagev1.CSINodeSpec{
			Drivers: []storagev1.CSINodeDriver{{Name: DriverName, NodeID: name, TopologyKeys: []string{}}}},
	}
	if err := s.client.Create(ctx, drivers); err != nil {
		return fmt.Errorf("creating the drivers of node %s: %w", name, err)
	}
	return nil
}

// volume creates a volume and its claim, bound to each other.
func (s *Stage) volume(ctx context.Context, v *Volume) error {
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	v.Claim = &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: v.Name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To(""), VolumeName: v.Name, AccessModes: modes,
			Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	}
	if err := s.client.Create(ctx, v.Claim); err != nil {
		return fmt.Errorf("creating claim %s: %w", v.Name, err)
	}
	v.PersistentVolume = &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: v.Name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: DriverName, VolumeHandle: handle(v.Name), FSType: "ext4",
			}},
			ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: Namespace,
				Name: v.Name, UID: v.Claim.UID},
		},
	}
	if err := s.client.Create(ctx, v.PersistentVolume); err != nil {
		return fmt.Errorf("creating volume %s: %w", v.Name, err)
	}
	v.Claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, AccessModes: modes, Capacity: size}
	if err := s.client.Status().Update(ctx, v.Claim); err != nil {
		return fmt.Errorf("binding claim %s: %w", v.Name, err)
	}
	return nil
}

// Intent that wants the volume attached.
func (v *Volume) Intent() *volumesv1alpha1.VolumeAttachmentIntent {
	return &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: v.Name},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{
			NodeName: v.Node,
			Volume: volumesv1alpha1.VolumeSource{
				PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: v.Name}},
			DesiredState: volumesv1alpha1.DesiredAttached,
			Publisher:    volumesv1alpha1.PublisherAgent,
		},
	}
}

// Pod on the node that uses the claim.
func (v *Volume) Pod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: v.Name},
		Spec: corev1.PodSpec{
			NodeName:                      v.Node,
			EnableServiceLinks:            ptr.To(false),
			AutomountServiceAccountToken:  ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers: []corev1.Container{{
				Name: "main", Image: "none",
				VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
			}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.Name},
			}}},
		},
	}
}

// Key of the volume's claim, pod and intent.
func (v *Volume) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: Namespace, Name: v.Name}
}
