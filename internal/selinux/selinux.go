/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package selinux makes the SELinux label with which a filesystem is mounted, as the kubelet does: that of a node's
// container files, with user and level of what a container runs as.
package selinux

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Files of the node, from its root. The first is of container-selinux, the other one of the policy.
const (
	contextsFile = "usr/share/containers/selinux/contexts"
	configFile   = "etc/selinux/config"
	policyFile   = "contexts/lxc_contexts"
)

// FileLabel reads the label that the node gives to files of containers. The kubelet and container runtimes read it from
// the same files.
func FileLabel(node fs.FS) (string, error) {
	data, err := fs.ReadFile(node, contextsFile)
	if errors.Is(err, fs.ErrNotExist) {
		data, err = readPolicy(node)
	}
	if err != nil {
		return "", fmt.Errorf("reading the label of container files: %w", err)
	}
	label := setting(data, "file")
	if strings.Count(label, ":") < 3 {
		return "", fmt.Errorf("reading the label of container files: it is %q, want user, role, type and level", label)
	}
	return label, nil
}

func readPolicy(node fs.FS) ([]byte, error) {
	config, err := fs.ReadFile(node, configFile)
	if err != nil {
		return nil, err
	}
	return fs.ReadFile(node, path.Join("etc/selinux", setting(config, "SELINUXTYPE"), policyFile))
}

// setting is the value of a line "key = value", without quotes.
func setting(data []byte, key string) string {
	for line := range strings.Lines(string(data)) {
		if k, v, found := strings.Cut(line, "="); found && strings.TrimSpace(k) == key {
			return strings.Trim(strings.TrimSpace(v), `"`)
		}
	}
	return ""
}

// Label is that of files for what runs with these options. The type of a process is no type of files, so it does not
// count, and neither does its role.
func Label(files string, o *corev1.SELinuxOptions) string {
	parts := strings.SplitN(files, ":", 4)
	return strings.Join([]string{cmp.Or(o.User, parts[0]), parts[1], parts[2], cmp.Or(o.Level, parts[3])}, ":")
}

// Option is the mount option for a label, as the kubelet writes it. A label may have commas.
func Option(label string) string { return fmt.Sprintf("context=%q", label) }

// Of is the label of a mount with these options; empty where its files have labels of their own.
func Of(options []string) string {
	for _, o := range options {
		if label, found := strings.CutPrefix(o, "context="); found {
			return strings.Trim(label, `"`)
		}
	}
	return ""
}

// Same reports whether both are one label. The kernel writes categories in order, and three or more in a row as a
// range.
func Same(a, b string) bool { return a == b || canonical(a) == canonical(b) }

// canonical has the categories in order and one by one, and no upper level that is the lower one.
func canonical(label string) string {
	parts := strings.SplitN(label, ":", 4)
	if len(parts) < 4 {
		return label
	}
	low, high, _ := strings.Cut(parts[3], "-")
	parts[3] = level(low)
	if high = level(high); high != "" && high != parts[3] {
		parts[3] += "-" + high
	}
	return strings.Join(parts, ":")
}

// most is the number of categories that a policy may have.
const most = 1024

func level(l string) string {
	sensitivity, list, found := strings.Cut(l, ":")
	if !found {
		return l
	}
	var categories []int
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, ".")
		from, err := category(first)
		to, err2 := from, error(nil)
		if isRange {
			to, err2 = category(last)
		}
		if err != nil || err2 != nil {
			return l // the kernel refuses it
		}
		for c := from; c <= to; c++ {
			categories = append(categories, c)
		}
	}
	slices.Sort(categories)
	return fmt.Sprint(sensitivity, slices.Compact(categories))
}

func category(c string) (int, error) {
	number, found := strings.CutPrefix(c, "c")
	n, err := strconv.Atoi(number)
	if err != nil || !found || n < 0 || n >= most {
		return 0, fmt.Errorf("%q is no category", c)
	}
	return n, nil
}

// Valid reports whether the options can be in a label. They become a part of a mount option.
func Valid(o *corev1.SELinuxOptions) bool {
	return o.Level != "" && only(o.User, "_.") && only(o.Role, "_.") && only(o.Type, "_.") && only(o.Level, "_.,:-")
}

func only(s, special string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune(special, r)
	})
}
