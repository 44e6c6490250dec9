/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package release tests what can be tested of a release in seconds: hack/release.sh and hack/verify-release.sh on the
// parts that are cheap to build.
package release

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/hawser-io/hawser/test/apiserver"
)

// builder is a machine that makes a release.
type builder struct {
	// tree is a copy of the repository, dist what it has made of it.
	tree, dist string
	umask      string
	env        []string
}

// program names a program that make has built, and skips the test without it.
func program(t *testing.T, path ...string) string {
	t.Helper()
	file := filepath.Join(append([]string{apiserver.Root(), ".cache"}, path...)...)
	if _, err := os.Stat(file); err != nil {
		t.Skipf("LEFT OUT (needs %s; make test builds it)", file)
	}
	return file
}

// copyTree copies what git has of the repository, or would add.
func copyTree(t *testing.T, to string) {
	t.Helper()
	run(t, apiserver.Root(), nil, "mkdir -p "+to+" && git ls-files -z --cached --others --exclude-standard | "+
		"xargs -0 sh -c 'for file; do test ! -f \"$file\" || printf \"%s\\0\" \"$file\"; done' sh | "+
		"tar --null --no-recursion -T - -c | tar -x --touch -C "+to)
}

func run(t *testing.T, dir string, env []string, script string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-ec", script)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// release makes the cheap parts of a release.
func (b builder) release(t *testing.T) {
	t.Helper()
	copyTree(t, b.tree)
	env := append([]string{"KUBECTL=" + program(t, "bin", "kubectl"), "HELM=" + program(t, "tools", "helm"),
		"PARTS=install chart monitoring changes", "SOURCE_DATE_EPOCH=1700000000"}, b.env...)
	run(t, b.tree, env, "umask "+b.umask+" && hack/release.sh v0.1.0 registry.example.com/hawser "+b.dist)
}

// files are the files below a directory with their content.
func files(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	if err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err == nil {
			found[name], err = os.ReadFile(path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestTwoBuildersOfACommitMakeTheSameBytes(t *testing.T) {
	dir := t.TempDir()
	one := builder{tree: filepath.Join(dir, "tree"), dist: filepath.Join(dir, "dist"), umask: "022"}
	other := builder{tree: filepath.Join(dir, "elsewhere", "clone"), dist: filepath.Join(dir, "other"), umask: "077",
		env: []string{"HOME=" + filepath.Join(dir, "home"), "TZ=Pacific/Auckland", "LANG=de_DE.UTF-8", "USER=other"}}
	one.release(t)
	other.release(t)
	want, got := files(t, one.dist), files(t, other.dist)
	if len(want) != 8 {
		t.Errorf("%d files, want install.yaml, observer.yaml, chart, dashboard, two of alerts, changes and checksums",
			len(want))
	}
	if alerts := want["hawser-observer-alerts.yaml"]; !bytes.Contains(alerts, []byte("/blob/v0.1.0/docs/runbooks/")) ||
		bytes.Contains(alerts, []byte("/blob/main/")) {
		t.Errorf("the alerts of the observer do not link the pages of their release:\n%s", alerts)
	}
	for name, content := range want {
		if !bytes.Equal(content, got[name]) {
			t.Errorf("%s differs between two builds", name)
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("only one build has %s", name)
	}
}
