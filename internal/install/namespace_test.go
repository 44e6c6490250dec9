/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package install

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheNamespaceComesFromTheInstallation(t *testing.T) {
	file := filepath.Join(t.TempDir(), "namespace")
	if err := os.WriteFile(file, []byte("of-the-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, variable, file, want string }{
		{"the variable comes first", "of-the-variable", file, "of-the-variable"},
		{"without it the service account's file", "", file, "of-the-file"},
		{"an empty file is no answer", "", empty, "hawser-system"},
		{"outside a pod the default", "", file + ".absent", "hawser-system"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := namespace(c.variable, c.file); got != c.want {
				t.Errorf("namespace by variable %q and file %s: %q, want %q", c.variable, c.file, got, c.want)
			}
		})
	}
}
