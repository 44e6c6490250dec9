/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package record

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Paths are all the places on the node that the agent knows: below its own root and, shared with
// the kubelet, below the kubelet's directory.
type Paths struct {
	Root, Kubelet string
}

// Hash is the form in which names of any length are part of a path.
func Hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// Lock is the file whose lock the agent holds.
func (p Paths) Lock() string { return filepath.Join(p.Root, "lock") }

// Records is the directory of the records.
func (p Paths) Records() string { return filepath.Join(p.Root, "volumes") }

// Published is where users find the volume. It always carries namespace and name.
func (p Paths) Published(namespace, name string) string {
	return filepath.Join(p.Root, "published", namespace, name)
}

// Hidden is where a volume is published whose sub path alone is to be seen.
func (p Paths) Hidden(intent types.UID) string {
	return filepath.Join(p.Root, "publish", string(intent))
}

// Reference is the agent's own bind mount of a staged volume: while it is there, the kubelet sees another use of the
// stage.
func (p Paths) Reference(volumeName string) string {
	return filepath.Join(p.Root, "staged", Hash(volumeName))
}

// Staging is where the kubelet would stage the volume.
func (p Paths) Staging(driverName, handle, persistentVolume string, mode corev1.PersistentVolumeMode) string {
	if mode == corev1.PersistentVolumeBlock {
		return filepath.Join(p.csi(), "volumeDevices", "staging", persistentVolume)
	}
	return filepath.Join(p.csi(), driverName, Hash(handle), "globalmount")
}

// KubeletData is the file that the kubelet keeps while it has the volume staged.
func (p Paths) KubeletData(driverName, handle, persistentVolume string, mode corev1.PersistentVolumeMode) string {
	if mode == corev1.PersistentVolumeBlock {
		return filepath.Join(p.csi(), "volumeDevices", persistentVolume, "data", "vol_data.json")
	}
	return filepath.Join(p.csi(), driverName, Hash(handle), "vol_data.json")
}

// GlobalMap is where the kubelet finds the users of a block device before it unstages it. The agent has a device node
// there for each intent, named after the intent's UID.
func (p Paths) GlobalMap(persistentVolume string) string {
	return filepath.Join(p.csi(), "volumeDevices", persistentVolume, "dev")
}

// Bound is where earlier agents bound the device instead, which the kubelet does not see.
func (p Paths) Bound(persistentVolume string, intent types.UID) string {
	return filepath.Join(p.GlobalMap(persistentVolume), string(intent))
}

func (p Paths) csi() string { return filepath.Join(p.Kubelet, "plugins", "kubernetes.io", "csi") }

// PlainName refuses names that are not one plain part of a path.
func PlainName(what, name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%s %q is not a plain name", what, name)
	}
	return nil
}

// uniqueNamePrefix begins every volume's unique name.
const uniqueNamePrefix = "kubernetes.io/csi/"

// SplitUniqueName returns driver and handle of kubernetes.io/csi/<driver>^<handle>; both are empty for any other name.
func SplitUniqueName(volumeName string) (driverName, handle string) {
	rest, ok := strings.CutPrefix(volumeName, uniqueNamePrefix)
	if !ok {
		return "", ""
	}
	driverName, handle, _ = strings.Cut(rest, "^")
	return driverName, handle
}
