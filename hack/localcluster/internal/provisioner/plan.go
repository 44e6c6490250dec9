/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package provisioner

import (
	"errors"
	"fmt"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hawser-io/hawser/hack/localcluster/internal/csiclient"
)

const (
	// The binder of upstream names the driver here once the claim is to be provisioned.
	storageProvisionerAnnotation = "volume.kubernetes.io/storage-provisioner"
	selectedNodeAnnotation       = "volume.kubernetes.io/selected-node"
	provisionedByAnnotation      = "pv.kubernetes.io/provisioned-by"

	// finalizer keeps the PersistentVolume until the volume behind it is deleted.
	finalizer = "external-provisioner.volume.kubernetes.io/finalizer"

	parameterPrefix = "csi.storage.k8s.io/"
	defaultFSType   = "ext4"
)

// wantsVolume reports whether the claim waits for a volume of the driver.
func wantsVolume(claim *corev1.PersistentVolumeClaim, driver string) bool {
	return claim.DeletionTimestamp == nil && claim.Spec.VolumeName == "" &&
		claim.Annotations[storageProvisionerAnnotation] == driver && claim.Spec.StorageClassName != nil
}

// wantsDelete reports whether the driver's volume behind the PersistentVolume is to be deleted.
func wantsDelete(volume *corev1.PersistentVolume, driver string) bool {
	if volume.Annotations[provisionedByAnnotation] != driver || volume.Spec.CSI == nil ||
		volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return false
	}
	released := volume.Status.Phase == corev1.VolumeReleased || volume.Status.Phase == corev1.VolumeFailed
	return released || volume.DeletionTimestamp != nil && volume.Status.Phase != corev1.VolumeBound
}

// mustWait reports whether the class leaves the choice to the first consumer, who has not come yet.
func mustWait(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) bool {
	return ptr.Deref(class.VolumeBindingMode, storagev1.VolumeBindingImmediate) == storagev1.VolumeBindingWaitForFirstConsumer &&
		claim.Annotations[selectedNodeAnnotation] == ""
}

// volumeName is the same for every attempt, so that CreateVolume repeated gives the same volume.
func volumeName(claim *corev1.PersistentVolumeClaim) string { return "pvc-" + string(claim.UID) }

func isBlock(claim *corev1.PersistentVolumeClaim) bool {
	return ptr.Deref(claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock
}

func fsType(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) string {
	if isBlock(claim) {
		return ""
	}
	if chosen := class.Parameters[parameterPrefix+"fstype"]; chosen != "" {
		return chosen
	}
	return defaultFSType
}

// request is what the driver is asked for.
func request(
	claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass,
	topology *csi.TopologyRequirement, secrets map[string]string, multiWriter bool,
) (*csi.CreateVolumeRequest, error) {
	if claim.Spec.DataSource != nil || claim.Spec.DataSourceRef != nil {
		return nil, errors.New("data sources are not supported")
	}
	capacity := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	parameters := map[string]string{}
	for key, value := range class.Parameters {
		if !strings.HasPrefix(key, parameterPrefix) {
			parameters[key] = value
		}
	}
	var capabilities []*csi.VolumeCapability
	for _, mode := range claim.Spec.AccessModes {
		accessMode, err := csiclient.AccessMode(mode, multiWriter)
		if err != nil {
			return nil, err
		}
		capabilities = append(capabilities,
			csiclient.Capability(accessMode, isBlock(claim), fsType(claim, class), class.MountOptions))
	}
	return &csi.CreateVolumeRequest{
		Name:                      volumeName(claim),
		CapacityRange:             &csi.CapacityRange{RequiredBytes: capacity.Value()},
		VolumeCapabilities:        capabilities,
		Parameters:                parameters,
		Secrets:                   secrets,
		AccessibilityRequirements: topology,
	}, nil
}

// secretReference resolves the class's secret of a purpose, such as "node-stage".
func secretReference(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, purpose string) *corev1.SecretReference {
	name := class.Parameters[parameterPrefix+purpose+"-secret-name"]
	namespace := class.Parameters[parameterPrefix+purpose+"-secret-namespace"]
	if name == "" || namespace == "" {
		return nil
	}
	fill := strings.NewReplacer(
		"${pv.name}", volumeName(claim), "${pvc.name}", claim.Name, "${pvc.namespace}", claim.Namespace)
	return &corev1.SecretReference{Name: fill.Replace(name), Namespace: fill.Replace(namespace)}
}

// volume is the PersistentVolume that offers the driver's volume to the claim.
func volume(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, driver string, made *csi.Volume) (*corev1.PersistentVolume, error) {
	if made.GetVolumeId() == "" {
		return nil, fmt.Errorf("driver %s made a volume without an ID", driver)
	}
	capacity := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if made.GetCapacityBytes() > 0 { // zero: the driver does not say
		capacity = *resource.NewQuantity(made.GetCapacityBytes(), resource.BinarySI)
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        volumeName(claim),
			Annotations: map[string]string{provisionedByAnnotation: driver},
			Finalizers:  []string{finalizer},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: capacity},
			AccessModes: claim.Spec.AccessModes,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name,
				UID: claim.UID, ResourceVersion: claim.ResourceVersion,
			},
			PersistentVolumeReclaimPolicy: ptr.Deref(class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete),
			StorageClassName:              class.Name,
			MountOptions:                  class.MountOptions,
			VolumeMode:                    claim.Spec.VolumeMode,
			NodeAffinity:                  affinity(made.GetAccessibleTopology()),
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver:                     driver,
				VolumeHandle:               made.GetVolumeId(),
				VolumeAttributes:           made.GetVolumeContext(),
				FSType:                     fsType(claim, class),
				ControllerPublishSecretRef: secretReference(claim, class, "controller-publish"),
				ControllerExpandSecretRef:  secretReference(claim, class, "controller-expand"),
				NodeStageSecretRef:         secretReference(claim, class, "node-stage"),
				NodePublishSecretRef:       secretReference(claim, class, "node-publish"),
				NodeExpandSecretRef:        secretReference(claim, class, "node-expand"),
			}},
		},
	}, nil
}
