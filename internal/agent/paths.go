/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// paths are all the places on the node that the agent knows: below its own root and, shared with
// the kubelet, below the kubelet's directory.
type paths struct {
	root, kubelet string
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func (p paths) lock() string    { return filepath.Join(p.root, "lock") }
func (p paths) records() string { return filepath.Join(p.root, "volumes") }

// published is where users find the volume. It always carries namespace and name.
func (p paths) published(namespace, name string) string {
	return filepath.Join(p.root, "published", namespace, name)
}

// hidden is where a volume is published whose sub path alone is to be seen.
func (p paths) hidden(intent types.UID) string {
	return filepath.Join(p.root, "publish", string(intent))
}

// reference is the agent's own bind mount of a staged volume: while it stands, the kubelet sees that
// somebody else uses the stage.
func (p paths) reference(volumeName string) string {
	return filepath.Join(p.root, "staged", hash(volumeName))
}

// staging is where the kubelet would stage the volume.
func (p paths) staging(driverName, handle, persistentVolume string, mode corev1.PersistentVolumeMode) string {
	if mode == corev1.PersistentVolumeBlock {
		return filepath.Join(p.csi(), "volumeDevices", "staging", persistentVolume)
	}
	return filepath.Join(p.csi(), driverName, hash(handle), "globalmount")
}

// kubeletData is the file that the kubelet keeps while it has the volume staged.
func (p paths) kubeletData(driverName, handle, persistentVolume string, mode corev1.PersistentVolumeMode) string {
	if mode == corev1.PersistentVolumeBlock {
		return filepath.Join(p.csi(), "volumeDevices", persistentVolume, "data", "vol_data.json")
	}
	return filepath.Join(p.csi(), driverName, hash(handle), "vol_data.json")
}

// globalMap is where the kubelet looks for users of a block device before it unstages it. The agent has a device node there for
// each intent, named after the intent's UID.
func (p paths) globalMap(persistentVolume string) string {
	return filepath.Join(p.csi(), "volumeDevices", persistentVolume, "dev")
}

// bound is where earlier agents bound the device instead, which the kubelet does not see.
func (p paths) bound(persistentVolume string, intent types.UID) string {
	return filepath.Join(p.globalMap(persistentVolume), string(intent))
}

func (p paths) csi() string { return filepath.Join(p.kubelet, "plugins", "kubernetes.io", "csi") }

// onePart refuses names that are not one plain part of a path.
func onePart(what, name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%s %q is not a plain name", what, name)
	}
	return nil
}

// uniqueNamePrefix begins every volume's unique name.
const uniqueNamePrefix = "kubernetes.io/csi/"

// splitUniqueName returns driver and handle of kubernetes.io/csi/<driver>^<handle>; both are empty for any other name.
func splitUniqueName(volumeName string) (driverName, handle string) {
	rest, ok := strings.CutPrefix(volumeName, uniqueNamePrefix)
	if !ok {
		return "", ""
	}
	driverName, handle, _ = strings.Cut(rest, "^")
	return driverName, handle
}
