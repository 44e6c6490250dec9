/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package provisioner

import (
	"context"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/hawser-io/hawser/hack/localcluster/internal/csiclient"
)

// reconcileVolume deletes a volume that nobody claims any more. One that is still attached has to
// wait: the end of its attachment brings it back here.
func (p *Provisioner) reconcileVolume(ctx context.Context, name string) error {
	stored, err := p.volumes.Get(name)
	if apierrors.IsNotFound(err) || err == nil && !wantsDelete(stored, p.driver) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading PersistentVolume %s: %w", name, err)
	}
	attached, err := p.attached(name)
	if err != nil || attached {
		return err
	}
	if err := p.remove(ctx, stored); err != nil {
		p.events.Eventf(stored, corev1.EventTypeWarning, "VolumeFailedDelete", "%v", err)
		return fmt.Errorf("deleting PersistentVolume %s: %w", name, err)
	}
	p.log.Info("deleted", "volume", name, "handle", stored.Spec.CSI.VolumeHandle)
	return nil
}

func (p *Provisioner) attached(volume string) (bool, error) {
	attachments, err := p.attachments.List(labels.Everything())
	if err != nil {
		return false, fmt.Errorf("listing attachments: %w", err)
	}
	for _, attachment := range attachments {
		if source := attachment.Spec.Source.PersistentVolumeName; source != nil && *source == volume {
			return true, nil
		}
	}
	return false, nil
}

// remove deletes the driver's volume, then the object and the finalizer that held it.
func (p *Provisioner) remove(ctx context.Context, stored *corev1.PersistentVolume) error {
	secrets, err := csiclient.Secrets(ctx, p.client, p.deleteSecret(stored))
	if err != nil {
		return err
	}
	_, err = p.csi.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: stored.Spec.CSI.VolumeHandle, Secrets: secrets})
	if err != nil {
		return fmt.Errorf("deleting the volume: %w", err)
	}
	volumes := p.client.CoreV1().PersistentVolumes()
	if stored.DeletionTimestamp == nil {
		err := volumes.Delete(ctx, stored.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &stored.UID}})
		if err != nil {
			return apiError("deleting the object", err)
		}
	}
	current, err := volumes.Get(ctx, stored.Name, metav1.GetOptions{})
	if err != nil {
		return apiError("reading the object", err)
	}
	held := slices.Index(current.Finalizers, finalizer)
	if current.UID != stored.UID || held < 0 {
		return nil
	}
	current.Finalizers = slices.Delete(current.Finalizers, held, held+1)
	if _, err := volumes.Update(ctx, current, metav1.UpdateOptions{}); err != nil {
		return apiError("removing the finalizer", err)
	}
	return nil
}

// apiError takes an object that is gone for what was wanted.
func apiError(doing string, err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// deleteSecret is the class's secret for provisioning, if the class is still there.
func (p *Provisioner) deleteSecret(stored *corev1.PersistentVolume) *corev1.SecretReference {
	class, err := p.classes.Get(stored.Spec.StorageClassName)
	if err != nil || stored.Spec.ClaimRef == nil {
		return nil
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: stored.Spec.ClaimRef.Namespace, Name: stored.Spec.ClaimRef.Name, UID: stored.Spec.ClaimRef.UID,
	}}
	return secretReference(claim, class, "provisioner")
}
