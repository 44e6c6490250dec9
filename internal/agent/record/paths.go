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

// PodBinds is the directory of the records of pod binds.
func (p Paths) PodBinds() string { return filepath.Join(p.Root, "pods") }

// PodOfVolume is the pod of a path at which the kubelet has a CSI volume of it. It reports false for any other path.
func (p Paths) PodOfVolume(target string) (pod types.UID, ok bool) {
	rest, below := strings.CutPrefix(target, filepath.Join(p.Kubelet, "pods")+"/")
	parts := strings.Split(rest, "/")
	if !below || filepath.Clean(target) != target || len(parts) != 5 || parts[1] != "volumes" ||
		parts[2] != "kubernetes.io~csi" || parts[4] != "mount" {
		return "", false
	}
	return types.UID(parts[0]), true
}

// PlaceInVolume is the directory of a path at which a pod has a mount in its directory, the pod, and the name of the
// place. It reports false for any other path.
func (p Paths) PlaceInVolume(path string) (directory, place string, pod types.UID, ok bool) {
	directory, place = filepath.Dir(path), filepath.Base(path)
	pod, ok = p.PodOfVolume(directory)
	return directory, place, pod, ok && filepath.Clean(path) == path
}

// Published is where users find the volume. It always carries namespace and name.
func (p Paths) Published(namespace, name string) string {
	return filepath.Join(p.Root, "published", namespace, name)
}

// Hidden is where a volume is published of which users see a bind mount by the agent: a part of it, or read-only.
func (p Paths) Hidden(intent types.UID) string {
	return filepath.Join(p.Root, "publish", string(intent))
}

// Reference is the agent's own bind mount of a staged volume: while it is there, the kubelet sees another use of the
// stage.
func (p Paths) Reference(volumeName string) string {
	return filepath.Join(p.Root, "staged", Hash(volumeName))
}

// PlainName refuses names that are not one plain part of a path.
func PlainName(what, name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%s %q is not a plain name", what, name)
	}
	return nil
}
