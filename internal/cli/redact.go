/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// shownDomains are those of the annotations that a bundle has. Others may hold whole objects with their secrets, as
// what deployment tools applied before.
var shownDomains = []string{volumesv1alpha1.GroupVersion.Group, "pv.kubernetes.io", "volume.kubernetes.io",
	"volume.beta.kubernetes.io", "volumes.kubernetes.io", "csi.volume.kubernetes.io", "csi.alpha.kubernetes.io",
	"storage.alpha.kubernetes.io", "storageclass.kubernetes.io"}

// resourceGroup is an annotation of PersistentVolumes of Azure File that is a part of the volume's handle.
const resourceGroup = "kubernetes.io/azure-file-resource-group"

// redact drops what may hold secrets by mistake: annotations of other programs, attributes of drivers, values of mount
// options, and what containers of pods run with. Reports need none of it.
func redact(object client.Object) {
	object.SetManagedFields(nil)
	object.SetAnnotations(shownOf(object.GetAnnotations()))
	switch o := object.(type) {
	case *corev1.PersistentVolume:
		redactVolume(&o.Spec)
	case *storagev1.StorageClass:
		blank(o.Parameters)
		blankOptions(o.MountOptions)
	case *storagev1.VolumeAttachment:
		blank(o.Status.AttachmentMetadata)
		if o.Spec.Source.InlineVolumeSpec != nil {
			redactVolume(o.Spec.Source.InlineVolumeSpec)
		}
	case *volumesv1alpha1.VolumeAttachmentIntentSet:
		metadata := &o.Spec.Template.Metadata
		metadata.Annotations = shownOf(metadata.Annotations)
	case *volumesv1alpha1.NodeVolumeState:
		for i := range o.Spec.Attachments {
			blank(o.Spec.Attachments[i].VolumeAttributes)
			blank(o.Spec.Attachments[i].PublishContext)
			blankOptions(o.Spec.Attachments[i].MountOptions)
		}
	case *corev1.Pod:
		redactPod(&o.Spec)
	}
}

// redactVolume keeps driver and handle, which are the volume's identity.
func redactVolume(spec *corev1.PersistentVolumeSpec) {
	blankOptions(spec.MountOptions)
	if spec.CSI != nil {
		blank(spec.CSI.VolumeAttributes)
	}
	if spec.FlexVolume != nil {
		blank(spec.FlexVolume.Options)
	}
}

func redactPod(spec *corev1.PodSpec) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			containers[i] = described(containers[i])
		}
	}
	for i := range spec.EphemeralContainers {
		c := &spec.EphemeralContainers[i].EphemeralContainerCommon
		*c = corev1.EphemeralContainerCommon(described(corev1.Container(*c)))
	}
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if v.CSI != nil && v.CSI.Driver != volumesv1alpha1.InlineDriver { // the attributes of Hawser's name intents
			blank(v.CSI.VolumeAttributes)
		}
		if v.FlexVolume != nil {
			blank(v.FlexVolume.Options)
		}
	}
}

// described is a container without its variables, arguments, and what is run or asked in it.
func described(c corev1.Container) corev1.Container {
	return corev1.Container{Name: c.Name, Image: c.Image, ImagePullPolicy: c.ImagePullPolicy, Ports: c.Ports,
		Resources: c.Resources, RestartPolicy: c.RestartPolicy, SecurityContext: c.SecurityContext,
		VolumeDevices: c.VolumeDevices, VolumeMounts: c.VolumeMounts}
}

// shownOf are the annotations that a bundle has.
func shownOf(annotations map[string]string) map[string]string {
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		domain, _, _ := strings.Cut(key, "/")
		own := strings.HasSuffix(domain, "."+volumesv1alpha1.GroupVersion.Group)
		return !own && key != resourceGroup && !slices.Contains(shownDomains, domain)
	})
	return annotations
}

const leftOut = "(left out)"

// blank keeps the keys.
func blank(values map[string]string) {
	for key := range values {
		values[key] = leftOut
	}
}

// blankOptions keeps the names of mount options.
func blankOptions(options []string) {
	for i, option := range options {
		if name, _, has := strings.Cut(option, "="); has {
			options[i] = name + "=" + leftOut
		}
	}
}
