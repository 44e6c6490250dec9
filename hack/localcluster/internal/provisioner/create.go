/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package provisioner

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/hawser-io/hawser/hack/localcluster/internal/csiclient"
)

// reconcileClaim makes a volume for a claim that waits for one.
func (p *Provisioner) reconcileClaim(ctx context.Context, namespace, name string) error {
	claim, err := p.claims.PersistentVolumeClaims(namespace).Get(name)
	if apierrors.IsNotFound(err) || err == nil && !wantsVolume(claim, p.driver) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading claim %s/%s: %w", namespace, name, err)
	}
	if _, err := p.volumes.Get(volumeName(claim)); err == nil {
		return nil // made already, the binder binds it
	}
	class, err := p.classes.Get(*claim.Spec.StorageClassName)
	if err != nil {
		return fmt.Errorf("reading the storage class of claim %s/%s: %w", namespace, name, err)
	}
	if mustWait(claim, class) {
		return nil
	}
	made, err := p.provision(ctx, claim, class)
	if err != nil {
		p.events.Eventf(claim, corev1.EventTypeWarning, "ProvisioningFailed", "%v", err)
		return fmt.Errorf("provisioning claim %s/%s: %w", namespace, name, err)
	}
	p.events.Eventf(claim, corev1.EventTypeNormal, "ProvisioningSucceeded", "Provisioned volume %s", made.Name)
	p.log.Info("provisioned", "claim", namespace+"/"+name, "volume", made.Name, "handle", made.Spec.CSI.VolumeHandle)
	return nil
}

func (p *Provisioner) provision(
	ctx context.Context, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass,
) (*corev1.PersistentVolume, error) {
	ask, err := p.ask(ctx, claim, class)
	if err != nil {
		return nil, err
	}
	answer, err := p.csi.CreateVolume(ctx, ask)
	if err != nil {
		return nil, fmt.Errorf("creating the volume: %w", err)
	}
	wanted, err := volume(claim, class, p.driver, answer.GetVolume())
	if err != nil {
		return nil, err
	}
	made, err := p.client.CoreV1().PersistentVolumes().Create(ctx, wanted, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return wanted, nil
	}
	if err != nil {
		return nil, fmt.Errorf("creating PersistentVolume %s: %w", wanted.Name, err)
	}
	return made, nil
}

// ask gathers what the request is made of.
func (p *Provisioner) ask(
	ctx context.Context, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass,
) (*csi.CreateVolumeRequest, error) {
	placed, err := p.csi.PluginCan(ctx, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	if err != nil {
		return nil, err
	}
	multiWriter, err := p.csi.ControllerCan(ctx, csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)
	if err != nil {
		return nil, err
	}
	var topology *csi.TopologyRequirement
	if placed {
		nodes, err := p.nodes.List(labels.Everything())
		if err != nil {
			return nil, fmt.Errorf("listing nodes: %w", err)
		}
		csiNodes, err := p.csiNodes.List(labels.Everything())
		if err != nil {
			return nil, fmt.Errorf("listing CSINodes: %w", err)
		}
		if topology, err = requirement(p.driver, claim.Annotations[selectedNodeAnnotation], nodes, csiNodes); err != nil {
			return nil, err
		}
	}
	secrets, err := csiclient.Secrets(ctx, p.client, secretReference(claim, class, "provisioner"))
	if err != nil {
		return nil, err
	}
	return request(claim, class, topology, secrets, multiWriter)
}
