/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/hawser-io/hawser/internal/mount"
)

// Mounts finds the signs that the mount table alone shows.
func Mounts(dir string, table *mount.Table, sources []Source) []Sign {
	prefix := filepath.Clean(dir) + "/"
	var signs []Sign
	for _, e := range table.Entries() {
		source := SourceOf(e)
		s, ok := Sign{}, false
		if rest, below := strings.CutPrefix(e.Path, prefix); below {
			s, ok = placed(strings.Split(rest, "/"))
		}
		if !ok && source != nil && slices.ContainsFunc(sources, func(o Source) bool { return o.Covers(*source) }) {
			s, ok = Sign{Weak: true}, true
		}
		if !ok {
			continue
		}
		s.Path, s.Source, s.Life, s.DevicePath = e.Path, source, lifeOfMount(e), devicePath(e)
		if s.SubPathOf != "" {
			s.SubPathOf = filepath.Join(dir, s.SubPathOf)
		}
		signs = append(signs, s)
	}
	return signs
}

// placed is what the place of a mount below the kubelet's directory reveals.
func placed(parts []string) (Sign, bool) {
	at := func(i int, name string) bool { return len(parts) > i && parts[i] == name }
	switch {
	case at(0, "plugins") && at(1, "kubernetes.io") && at(2, "csi") && len(parts) > 4:
		return placedByDriver(parts[3:])
	case at(0, "pods") && at(2, "volumes") && at(3, "kubernetes.io~csi") && at(5, "mount") && len(parts) > 6:
		// In the directory of an inline volume. In any other volume it is what a pod has mounted there.
		return Sign{PersistentVolume: parts[4], Published: true, SubPathOf: filepath.Join(parts[:5]...)}, true
	case at(0, "pods") && at(2, "volumes") && at(3, "kubernetes.io~csi") && len(parts) > 4:
		return Sign{PersistentVolume: parts[4], Published: true}, true
	case at(0, "pods") && at(2, "volume-subpaths") && len(parts) > 3:
		return Sign{PersistentVolume: parts[3], Published: true, Weak: true, // volumes of every sort are there
			SubPathOf: filepath.Join("pods", parts[1], "volumes", "kubernetes.io~csi", parts[3])}, true
	}
	return Sign{}, false
}

func placedByDriver(parts []string) (Sign, bool) {
	if parts[0] != "volumeDevices" {
		if parts[0] == "pv" {
			return Sign{PersistentVolume: parts[1], Shared: true}, true // where kubelets before 1.24 staged
		}
		return Sign{HashDriver: parts[0], Hash: parts[1], Shared: true}, true
	}
	switch {
	case parts[1] == "publish" && len(parts) > 2:
		return Sign{PersistentVolume: parts[2], Block: true, Published: true}, true
	case parts[1] == "staging" && len(parts) > 2:
		return Sign{PersistentVolume: parts[2], Block: true, Shared: true}, true
	}
	return Sign{PersistentVolume: parts[1], Block: true, Shared: true}, true
}

// devicePath names the device behind a mount: of its filesystem, or the device node that is bound there.
func devicePath(e mount.Entry) string {
	switch {
	case strings.HasPrefix(e.Source, "/dev/"):
		return e.Source
	case e.FSType == "devtmpfs" && e.Root != "/":
		return "/dev" + e.Root
	}
	return ""
}
