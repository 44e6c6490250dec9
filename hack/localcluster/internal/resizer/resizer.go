/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package resizer grows the volumes of claims that ask for more, for one CSI driver: the controller
// side of an expansion. The node's side is left to the node, and is announced in the claim's status.
package resizer

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/hawser-io/hawser/hack/localcluster/internal/csiclient"
	"github.com/hawser-io/hawser/hack/localcluster/internal/worker"
)

const (
	workers     = 8
	callTimeout = 60 * time.Second
	retryLimit  = 10 * time.Second
)

// Resizer serves one driver.
type Resizer struct {
	driver string
	client kubernetes.Interface
	csi    csiclient.Controller
	log    *slog.Logger
	events record.EventRecorder
	queue  worker.Queue

	factory informers.SharedInformerFactory
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
}

// New prepares the resizer of a driver.
func New(driver string, client kubernetes.Interface, controller csiclient.Controller, log *slog.Logger) *Resizer {
	factory := informers.NewSharedInformerFactory(client, 0)
	core := factory.Core().V1()
	r := &Resizer{
		driver: driver, client: client, csi: controller, log: log, queue: worker.NewQueue(retryLimit),
		factory: factory, claims: core.PersistentVolumeClaims().Lister(), volumes: core.PersistentVolumes().Lister(),
	}
	enqueue := func(object any) {
		if claim, ok := object.(*corev1.PersistentVolumeClaim); ok && wantsMore(claim) {
			r.queue.Add(claim.Namespace + "/" + claim.Name)
		}
	}
	// The handler fails to register only on a stopped informer.
	_, _ = core.PersistentVolumeClaims().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, current any) { enqueue(current) },
	})
	return r
}

// Run resizes until the context ends.
func (r *Resizer) Run(ctx context.Context) {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: r.client.CoreV1().Events("")})
	r.events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "resizer " + r.driver})

	r.factory.Start(ctx.Done())
	defer r.factory.Shutdown()
	r.factory.WaitForCacheSync(ctx.Done())
	worker.Run(ctx, r.log, r.queue, workers, r.reconcile)
}

// reconcile grows the volume of one claim.
func (r *Resizer) reconcile(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return fmt.Errorf("reading the key %q: %w", key, err)
	}
	claim, err := r.claims.PersistentVolumeClaims(namespace).Get(name)
	if apierrors.IsNotFound(err) || err == nil && !wantsMore(claim) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading claim %s: %w", key, err)
	}
	volume, err := r.volumes.Get(claim.Spec.VolumeName)
	if err != nil {
		return fmt.Errorf("reading PersistentVolume %s: %w", claim.Spec.VolumeName, err)
	}
	if !belongs(volume, claim, r.driver) {
		return nil
	}
	if err := r.resize(ctx, claim, volume); err != nil {
		if !apierrors.IsConflict(err) { // another wrote the claim's status meanwhile: no failure
			r.events.Eventf(claim, corev1.EventTypeWarning, "VolumeResizeFailed", "%v", err)
		}
		return fmt.Errorf("resizing claim %s: %w", key, err)
	}
	return nil
}

func (r *Resizer) resize(ctx context.Context, claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) error {
	wanted := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	claim, err := r.report(ctx, claim, started(wanted))
	if err != nil {
		return err
	}
	size, onNode, err := r.expand(ctx, volume, wanted)
	if err != nil {
		return err
	}
	if err := r.enlarge(ctx, volume, size); err != nil {
		return err
	}
	outcome := finished(size)
	if onNode {
		outcome = awaitsNode()
	}
	if _, err := r.report(ctx, claim, outcome); err != nil {
		return err
	}
	r.log.Info("resized", "claim", claim.Namespace+"/"+claim.Name, "size", size.String(), "awaitsNode", onNode)
	return nil
}

// expand asks the driver. One that expands on the node alone has nothing to do here.
func (r *Resizer) expand(
	ctx context.Context, volume *corev1.PersistentVolume, wanted resource.Quantity,
) (size resource.Quantity, onNode bool, err error) {
	able, err := r.csi.ControllerCan(ctx, csi.ControllerServiceCapability_RPC_EXPAND_VOLUME)
	if err != nil {
		return wanted, false, err
	}
	if !able {
		return wanted, true, nil
	}
	ask, err := r.ask(ctx, volume, wanted)
	if err != nil {
		return wanted, false, err
	}
	answer, err := r.csi.ControllerExpandVolume(ctx, ask)
	if err != nil {
		return wanted, false, fmt.Errorf("expanding the volume: %w", err)
	}
	if answer.GetCapacityBytes() > 0 {
		wanted = *resource.NewQuantity(answer.GetCapacityBytes(), resource.BinarySI)
	}
	return wanted, answer.GetNodeExpansionRequired(), nil
}

func (r *Resizer) ask(
	ctx context.Context, volume *corev1.PersistentVolume, wanted resource.Quantity,
) (*csi.ControllerExpandVolumeRequest, error) {
	source := volume.Spec.CSI
	secrets, err := csiclient.Secrets(ctx, r.client, source.ControllerExpandSecretRef)
	if err != nil {
		return nil, err
	}
	multiWriter, err := r.csi.ControllerCan(ctx, csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)
	if err != nil {
		return nil, err
	}
	mode, err := csiclient.AccessMode(volume.Spec.AccessModes[0], multiWriter)
	if err != nil {
		return nil, err
	}
	block := volume.Spec.VolumeMode != nil && *volume.Spec.VolumeMode == corev1.PersistentVolumeBlock
	return &csi.ControllerExpandVolumeRequest{
		VolumeId:         source.VolumeHandle,
		CapacityRange:    &csi.CapacityRange{RequiredBytes: wanted.Value()},
		Secrets:          secrets,
		VolumeCapability: csiclient.Capability(mode, block, source.FSType, volume.Spec.MountOptions),
	}, nil
}

// enlarge writes the size into the PersistentVolume, which is what the node goes by.
func (r *Resizer) enlarge(ctx context.Context, volume *corev1.PersistentVolume, size resource.Quantity) error {
	if stored := volume.Spec.Capacity[corev1.ResourceStorage]; stored.Cmp(size) >= 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": volume.UID},
		"spec":     map[string]any{"capacity": corev1.ResourceList{corev1.ResourceStorage: size}},
	})
	if err != nil {
		return fmt.Errorf("encoding the capacity: %w", err)
	}
	_, err = r.client.CoreV1().PersistentVolumes().Patch(ctx, volume.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("writing the capacity of PersistentVolume %s: %w", volume.Name, err)
	}
	return nil
}

// report changes the claim's status.
func (r *Resizer) report(
	ctx context.Context, claim *corev1.PersistentVolumeClaim, change func(*corev1.PersistentVolumeClaimStatus),
) (*corev1.PersistentVolumeClaim, error) {
	claim = claim.DeepCopy()
	change(&claim.Status)
	updated, err := r.client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("writing the claim's status: %w", err)
	}
	return updated, nil
}
