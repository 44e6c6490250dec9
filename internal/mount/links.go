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

// Links translates between the names of directories and the kernel's names for them. Programs, the kubelet and the drivers
// use a directory by the name that they are given; the mount table shows where symbolic links lead (/data/kubelet for
// /var/lib/kubelet).
type Links []link

type link struct {
	// name is the one that programs use.
	name string
	// resolved is the one that the mount table shows.
	resolved string
}

// ResolveLinks follows the symbolic links of the directories. It follows them as the process does whose mount table is read:
// in a container /var/lib/kubelet may be a plain directory that the host reaches through a link. A directory that does not
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

// named is the name that programs have for what the mount table shows at path.
func (l Links) named(path string) string {
	return l.translate(path, func(l link) (from, to string) { return l.resolved, l.name })
}

// resolved is the name that the mount table has for what programs know as path.
func (l Links) resolved(path string) string {
	return l.translate(path, func(l link) (from, to string) { return l.name, l.resolved })
}

// translate replaces the longest directory that path lies in.
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
