/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package provisioner makes volumes for claims and deletes them again, for one CSI driver.
//
//	claim without a volume, annotated with the driver  -> CreateVolume -> PersistentVolume bound to it
//	volume released or deleting, policy Delete,
//	  and no VolumeAttachment of it left               -> DeleteVolume -> PersistentVolume deleted
package provisioner

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/hawser-io/hawser/hack/localcluster/internal/csiclient"
	"github.com/hawser-io/hawser/hack/localcluster/internal/worker"
)

const (
	workers     = 16
	callTimeout = 60 * time.Second
	retryLimit  = 10 * time.Second

	claimPrefix  = "claim "
	volumePrefix = "volume "
)

// Provisioner serves one driver.
type Provisioner struct {
	driver string
	client kubernetes.Interface
	csi    csiclient.Controller
	log    *slog.Logger
	events record.EventRecorder
	queue  worker.Queue

	factory     informers.SharedInformerFactory
	claims      corelisters.PersistentVolumeClaimLister
	volumes     corelisters.PersistentVolumeLister
	nodes       corelisters.NodeLister
	classes     storagelisters.StorageClassLister
	csiNodes    storagelisters.CSINodeLister
	attachments storagelisters.VolumeAttachmentLister
}

// New prepares the provisioner of a driver.
func New(driver string, client kubernetes.Interface, controller csiclient.Controller, log *slog.Logger) *Provisioner {
	factory := informers.NewSharedInformerFactory(client, 0)
	core, storage := factory.Core().V1(), factory.Storage().V1()
	p := &Provisioner{
		driver: driver, client: client, csi: controller, log: log, queue: worker.NewQueue(retryLimit),
		factory:     factory,
		claims:      core.PersistentVolumeClaims().Lister(),
		volumes:     core.PersistentVolumes().Lister(),
		nodes:       core.Nodes().Lister(),
		classes:     storage.StorageClasses().Lister(),
		csiNodes:    storage.CSINodes().Lister(),
		attachments: storage.VolumeAttachments().Lister(),
	}
	p.follow(core.PersistentVolumeClaims().Informer(), p.enqueueClaim)
	p.follow(core.PersistentVolumes().Informer(), p.enqueueVolume)
	p.follow(storage.VolumeAttachments().Informer(), p.enqueueAttachment)
	core.Nodes().Informer()
	storage.StorageClasses().Informer()
	storage.CSINodes().Informer()
	return p
}

// Run provisions until the context ends.
func (p *Provisioner) Run(ctx context.Context) {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: p.client.CoreV1().Events("")})
	p.events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: p.driver})

	p.factory.Start(ctx.Done())
	defer p.factory.Shutdown()
	p.factory.WaitForCacheSync(ctx.Done())
	worker.Run(ctx, p.log, p.queue, workers, p.reconcile)
}

func (p *Provisioner) follow(informer cache.SharedIndexInformer, enqueue func(any)) {
	// The handler fails to register only on a stopped informer.
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, current any) { enqueue(current) },
		DeleteFunc: func(last any) {
			if unknown, ok := last.(cache.DeletedFinalStateUnknown); ok {
				last = unknown.Obj
			}
			enqueue(last)
		},
	})
}

func (p *Provisioner) enqueueClaim(object any) {
	if claim, ok := object.(*corev1.PersistentVolumeClaim); ok && wantsVolume(claim, p.driver) {
		p.queue.Add(claimPrefix + claim.Namespace + "/" + claim.Name)
	}
}

func (p *Provisioner) enqueueVolume(object any) {
	if volume, ok := object.(*corev1.PersistentVolume); ok && wantsDelete(volume, p.driver) {
		p.queue.Add(volumePrefix + volume.Name)
	}
}

// enqueueAttachment looks at a volume again when an attachment of it went.
func (p *Provisioner) enqueueAttachment(object any) {
	if attachment, ok := object.(*storagev1.VolumeAttachment); ok && attachment.Spec.Source.PersistentVolumeName != nil {
		if volume, err := p.volumes.Get(*attachment.Spec.Source.PersistentVolumeName); err == nil {
			p.enqueueVolume(volume)
		}
	}
}

func (p *Provisioner) reconcile(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if name, ok := strings.CutPrefix(key, volumePrefix); ok {
		return p.reconcileVolume(ctx, name)
	}
	namespace, name, err := cache.SplitMetaNamespaceKey(strings.TrimPrefix(key, claimPrefix))
	if err != nil {
		return fmt.Errorf("reading the key %q: %w", key, err)
	}
	return p.reconcileClaim(ctx, namespace, name)
}
