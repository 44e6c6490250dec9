/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package verify

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// Endpoints are the unix sockets of drivers' controller services, by driver. It is the value of a flag that may be
// given several times, as <driver>=unix:///path.
type Endpoints map[string]string

// String lists them as the flag takes them.
func (e Endpoints) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(e)) {
		parts = append(parts, name+"=unix://"+e[name])
	}
	return strings.Join(parts, ",")
}

// Set adds one.
func (e Endpoints) Set(s string) error {
	name, url, ok := strings.Cut(s, "=")
	if !ok || name == "" {
		return fmt.Errorf("%q: must be <driver>=unix:///path", s)
	}
	path, ok := strings.CutPrefix(url, "unix://")
	if !ok || !filepath.IsAbs(path) {
		return fmt.Errorf("%q: the endpoint of driver %s must be unix:// and the absolute path of its socket", s, name)
	}
	if _, ok := e[name]; ok {
		return fmt.Errorf("driver %s has two endpoints", name)
	}
	e[name] = path
	return nil
}
