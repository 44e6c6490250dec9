/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDecidingNeedsNoClientAndNoContext(t *testing.T) {
	impure := []string{"context", "sync", "sigs.k8s.io/controller-runtime/pkg/client", "k8s.io/client-go/tools/events",
		"k8s.io/utils/clock"}
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("Go files of the package: %d, error %v; want at least one", len(files), err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			if path := strings.Trim(i.Path.Value, `"`); slices.Contains(impure, path) {
				t.Errorf("%s imports %s, want none of %v", name, path, impure)
			}
		}
	}
}
