/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"fmt"
	"path/filepath"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
)

// Links translates between the names of directories and the kernel's names for them. Programs, the kubelet and the
// drivers use the configured name of a directory. The mount table shows where symbolic links lead (/data/kubelet for
// /var/lib/kubelet).
type Links []link

type link struct {
	// name is the name that programs use.
	name string
	// resolved is the name in the mount table.
	resolved string
}

// ResolveLinks resolves the symbolic links of the directories, from the view of the process whose mount table is read.
// In a container, /var/lib/kubelet may be a plain directory while it is a link on the host. A directory that does not
// exist has no links.
func ResolveLinks(mountInfo string, dirs ...string) (Links, error) {
	root := filepath.Join(filepath.Dir(mountInfo), "root")
	var links Links
	linked := false
	for _, dir := range dirs {
		resolved, err := securejoin.SecureJoin(root, dir)
		if err != nil {
			return nil, fmt.Errorf("resolving the symbolic links of %s: %w", dir, err)
		}
		l := link{name: filepath.Clean(dir), resolved: "/" + strings.TrimPrefix(strings.TrimPrefix(resolved, root), "/")}
		links, linked = append(links, l), linked || l.name != l.resolved
	}
	if !linked {
		return nil, nil
	}
	return links, nil
}

// named returns the programs' name for a path of the mount table.
func (l Links) named(path string) string {
	return l.translate(path, func(l link) (from, to string) { return l.resolved, l.name })
}

// resolved returns the mount table's name for a path of the programs.
func (l Links) resolved(path string) string {
	return l.translate(path, func(l link) (from, to string) { return l.name, l.resolved })
}

// translate replaces the longest directory that contains path.
func (l Links) translate(path string, direction func(link) (from, to string)) string {
	longest, translated := "", path
	for _, link := range l {
		from, to := direction(link)
		if len(from) > len(longest) && (path == from || strictlyBelow(path, from)) {
			longest, translated = from, filepath.Join(to, strings.TrimPrefix(path, from))
		}
	}
	return translated
}
