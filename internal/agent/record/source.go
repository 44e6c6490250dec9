/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package record

import (
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
)

// VolumeSource is what mounting a volume on this node needs, whatever declares the volume and whether or not it is
// attached first. It is the agent's side of the manager's volume.Source. Nothing else in the agent reads from an entry,
// a record or a name where a volume comes from, and where it has its place on the node.
type VolumeSource struct {
	// UniqueName is the volume's name in NodeVolumeStates.
	UniqueName string
	Driver     string
	Handle     string
	// PersistentVolume is the name of the volume's PersistentVolume; empty if it has none.
	PersistentVolume string
	Mode             corev1.PersistentVolumeMode

	// The following are known of what the manager lists only, see VolumeSourceOf.

	AccessModes    []corev1.PersistentVolumeAccessMode
	FSType         string
	MountOptions   []string
	Attributes     map[string]string
	PublishContext map[string]string
	FSGroupPolicy  storagev1.FSGroupPolicy
	Capacity       *resource.Quantity
	// ExpandFrom is the capacity that the claim records, while that is less.
	ExpandFrom *resource.Quantity

	StageSecret, PublishSecret, ExpandSecret *corev1.SecretReference
}

// VolumeSourceOf is the source that the manager lists for the node; the zero value for none. It shares memory with e.
func VolumeSourceOf(e *volumesv1alpha1.NodeAttachment) VolumeSource {
	if e == nil {
		return VolumeSource{}
	}
	s := VolumeSource{
		UniqueName: e.VolumeName, Driver: e.Driver, Handle: e.VolumeHandle, PersistentVolume: e.PersistentVolumeName,
		Mode: e.VolumeMode, AccessModes: e.AccessModes, FSType: e.FSType, MountOptions: e.MountOptions,
		Attributes: e.VolumeAttributes, PublishContext: e.PublishContext, FSGroupPolicy: e.FSGroupPolicy,
		Capacity: e.Capacity, ExpandFrom: e.ExpandFrom,
		StageSecret: e.NodeStageSecretRef, PublishSecret: e.NodePublishSecretRef, ExpandSecret: e.NodeExpandSecretRef,
	}
	if s.Mode == "" {
		s.Mode = corev1.PersistentVolumeFilesystem
	}
	return s
}

// VolumeSourceNamed is the source of a volume that has left nothing but its unique name.
func VolumeSourceNamed(uniqueName string) VolumeSource {
	s := VolumeSource{UniqueName: uniqueName, Mode: corev1.PersistentVolumeFilesystem}
	if rest, ok := strings.CutPrefix(uniqueName, uniqueNamePrefix); ok {
		s.Driver, s.Handle, _ = strings.Cut(rest, "^")
	}
	return s
}

// VolumeSource is what the record knows of the volume's source.
func (r *Record) VolumeSource() VolumeSource {
	return VolumeSource{UniqueName: r.VolumeName, Driver: r.Driver, Handle: r.Handle, PersistentVolume: r.PersistentVolume,
		Mode: r.Mode}
}

// SetVolumeSource notes the part of the source that releasing the volume needs.
func (r *Record) SetVolumeSource(s VolumeSource) {
	r.VolumeName, r.Driver, r.Handle, r.PersistentVolume, r.Mode = s.UniqueName, s.Driver, s.Handle, s.PersistentVolume,
		s.Mode
}

// Request is the part of the source that all requests to the driver have.
func (s VolumeSource) Request() driver.Volume {
	v := driver.Volume{Handle: s.Handle, PersistentVolume: s.PersistentVolume, Mode: s.Mode, FSType: s.FSType,
		Attributes: s.Attributes, PublishContext: s.PublishContext}
	if len(s.AccessModes) > 0 {
		v.AccessMode = s.AccessModes[0]
	}
	return v
}

// Check refuses a source whose names would lead to another place on the node.
func (s VolumeSource) Check() error {
	if err := PlainName("driver", s.Driver); err != nil || s.PersistentVolume == "" {
		return err
	}
	return PlainName("persistent volume", s.PersistentVolume)
}

// uniqueNamePrefix begins the unique name of every volume that the kubelet may use too.
const uniqueNamePrefix = "kubernetes.io/csi/"

// UniqueName is the unique name of a volume that the kubelet may use too.
func UniqueName(driverName, handle string) string {
	return uniqueNamePrefix + driverName + "^" + handle
}

// KubeletKnows reports that the kubelet may use the volume too.
func (s VolumeSource) KubeletKnows() bool { return strings.HasPrefix(s.UniqueName, uniqueNamePrefix) }

// shared reports that the volume is staged where the kubelet would stage it. The places of a device have the name of
// its PersistentVolume.
func (s VolumeSource) shared() bool {
	return s.KubeletKnows() && (!s.block() || s.PersistentVolume != "")
}

func (s VolumeSource) block() bool { return s.Mode == corev1.PersistentVolumeBlock }

// Block reports whether the volume is a raw device.
func (r *Record) Block() bool { return r.Mode == corev1.PersistentVolumeBlock }

// Staging is where the volume is staged.
func (p Paths) Staging(s VolumeSource) string {
	switch {
	case !s.shared():
		return filepath.Join(p.own(s), "globalmount")
	case s.block():
		return filepath.Join(p.CSI(), "volumeDevices", "staging", s.PersistentVolume)
	}
	return filepath.Join(p.CSI(), s.Driver, Hash(s.Handle), "globalmount")
}

// StagingDirs are the directories that are removed after the stage at path, as far as they are empty.
func (p Paths) StagingDirs(s VolumeSource, path string) []string {
	if s.shared() && s.block() {
		return []string{path} // its parent is that of other volumes too
	}
	return []string{path, filepath.Dir(path)}
}

// KubeletData is the file that the kubelet keeps while it has the volume staged; empty where the kubelet cannot use it.
func (p Paths) KubeletData(s VolumeSource) string {
	switch {
	case !s.shared():
		return ""
	case s.block():
		return filepath.Join(p.CSI(), "volumeDevices", s.PersistentVolume, "data", "vol_data.json")
	}
	return filepath.Join(p.CSI(), s.Driver, Hash(s.Handle), "vol_data.json")
}

// GlobalMap is where the kubelet finds the users of a block device before it unstages it. The agent has a device node
// there for each intent, named after the intent's UID.
func (p Paths) GlobalMap(s VolumeSource) string {
	if !s.shared() {
		return filepath.Join(p.own(s), "dev")
	}
	return filepath.Join(p.CSI(), "volumeDevices", s.PersistentVolume, "dev")
}

// Bound is where earlier agents bound the device instead, which the kubelet does not see.
func (p Paths) Bound(s VolumeSource, intent types.UID) string {
	return filepath.Join(p.GlobalMap(s), string(intent))
}

// own is the place of a volume that the kubelet does not know.
func (p Paths) own(s VolumeSource) string {
	return filepath.Join(p.Root, "sources", Hash(s.UniqueName))
}

// CSI is the directory of the kubelet's CSI plugin.
func (p Paths) CSI() string { return filepath.Join(p.Kubelet, "plugins", "kubernetes.io", "csi") }
