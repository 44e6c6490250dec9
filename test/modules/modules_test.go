/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package modules builds programs of strangers, which require a module of this repository as they would get it.
package modules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/hawser-io/hawser/test/environment"
)

const hawser = "github.com/hawser-io/hawser"

// root is the top directory of the repository.
var root = filepath.Join("..", "..")

// nested are the modules for others, and their directories.
var nested = []string{"api", "pkg/volumes"}

// heavy are modules that strangers must not get: those of the programs and of their tests. The first is all of it.
var heavy = regexp.MustCompile(`^(` + hawser + `|k8s\.io/(cli-runtime|apiserver|apiextensions-apiserver|kubelet|` +
	`code-generator)|sigs\.k8s\.io/(kustomize/.*|controller-runtime|controller-tools)|` +
	`github\.com/(kubernetes-csi/csi-test/.*|onsi/.*|spf13/cobra|prometheus/client_golang)|google\.golang\.org/grpc)$`)

// cost of a requirement: the modules of the graph, which the stranger's go command reads; those of them that have a
// package in the program; and these packages. The stranger's own and the standard library are not counted.
type cost struct{ graph, modules, packages int }

func TestAStrangerGetsLittleWithAModule(t *testing.T) {
	cache := t.TempDir()
	for name, c := range map[string]struct {
		program string
		// most is what was measured, and a little.
		most cost
	}{
		"api": {program: `package main

import (
	"fmt"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
)

func main() { fmt.Println(volumesv1alpha1.AddToScheme(runtime.NewScheme())) }
`, most: cost{graph: 72, modules: 22, packages: 75}},
		"pkg/volumes": {program: `package main

import (
	"fmt"

	"github.com/hawser-io/hawser/pkg/volumes"
	"k8s.io/client-go/rest"
)

func main() { fmt.Println(volumes.NewForConfig(&rest.Config{})) }
`, most: cost{graph: 86, modules: 50, packages: 210}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStranger(t, cache, name, c.program)
			s.run("build", "-o", filepath.Join(t.TempDir(), "program"), ".")
			got := s.cost()
			t.Logf("%s costs a stranger %+v", name, got)
			if got.graph > c.most.graph || got.modules > c.most.modules || got.packages > c.most.packages {
				t.Errorf("%s costs a stranger %+v, want %+v at most", name, got, c.most)
			}
		})
	}
}

// stranger is a module that requires one of ours.
type stranger struct {
	*testing.T
	dir string
	env []string
}

// newStranger writes the module. It finds ours in a proxy made of the working tree, as if it were released, and all
// others where the go command has them. The cache is not the one of the machine, which may have the released module
// later.
func newStranger(t *testing.T, cache, requires, program string) stranger {
	t.Helper()
	files := map[string]string{"main.go": program,
		"go.mod": fmt.Sprintf("module example.com/stranger\n\ngo 1.26.0\n\nrequire %s/%s %s\n", hawser, requires, version(t))}
	s := stranger{T: t, dir: t.TempDir()}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.env = environment.With()
	// What our module requires is fetched to the cache of the machine, where the stranger's go command finds it.
	s.run("-C", abs(t, filepath.Join(root, requires)), "mod", "download")
	s.run("-C", abs(t, filepath.Join(root, requires)), "list", "-m", "all")
	known := strings.TrimSpace(s.run("env", "GOMODCACHE"))
	s.env = environment.With("GOFLAGS=-mod=mod -modcacherw -trimpath", "GOWORK=off", "GOSUMDB=off", "GONOSUMDB=*",
		"GOMODCACHE="+cache,
		"GOPROXY=file://"+proxy(t)+",file://"+filepath.Join(known, "cache", "download"))
	return s
}

// run runs the go command and returns its output.
func (s stranger) run(arguments ...string) string {
	s.Helper()
	command := exec.CommandContext(s.Context(), "go", arguments...)
	var stderr bytes.Buffer
	command.Dir, command.Env, command.Stderr = s.dir, s.env, &stderr
	output, err := command.Output()
	if err != nil {
		s.Fatalf("go %s: %v\n%s%s", strings.Join(arguments, " "), err, output, stderr.String())
	}
	return string(output)
}

// cost measures, and fails for each heavy module.
func (s stranger) cost() cost {
	s.Helper()
	var c cost
	for line := range strings.Lines(s.run("list", "-m", "-f", "{{if not .Main}}{{.Path}}{{end}}", "all")) {
		path := strings.TrimSpace(line)
		if path == "" {
			continue
		}
		c.graph++
		if heavy.MatchString(path) {
			s.Errorf("module %s is in the graph, want none of the programs and their tests", path)
		}
	}
	modules := map[string]bool{}
	const of = "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}"
	for line := range strings.Lines(s.run("list", "-deps", "-f", of, ".")) {
		if path := strings.TrimSpace(line); path != "" {
			c.packages++
			modules[path] = true
		}
	}
	c.modules = len(modules)
	return c
}

// proxy writes a module proxy with the nested modules of the working tree.
func proxy(t *testing.T) string {
	t.Helper()
	top, version := t.TempDir(), version(t)
	for _, name := range nested {
		dir := filepath.Join(top, filepath.FromSlash(hawser), name, "@v")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		info, err := json.Marshal(map[string]string{"Version": version})
		if err != nil {
			t.Fatal(err)
		}
		archive, err := os.Create(filepath.Join(dir, version+".zip"))
		if err != nil {
			t.Fatal(err)
		}
		if err := zip.CreateFromDir(archive, module.Version{Path: hawser + "/" + name, Version: version},
			filepath.Join(root, name)); err != nil {
			t.Fatalf("packing module %s: %v", name, err)
		}
		if err := archive.Close(); err != nil {
			t.Fatal(err)
		}
		for suffix, data := range map[string][]byte{".info": info, ".mod": read(t, name, "go.mod")} {
			if err := os.WriteFile(filepath.Join(dir, version+suffix), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return top
}

func abs(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// goMod reads the go.mod of a directory.
func goMod(t *testing.T, dir string) *modfile.File {
	t.Helper()
	file, err := modfile.Parse(dir+"/go.mod", read(t, dir, "go.mod"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// version of the modules that are tagged together: the one that pkg/volumes requires of the API.
func version(t *testing.T) string {
	t.Helper()
	for _, r := range goMod(t, "pkg/volumes").Require {
		if r.Mod.Path == hawser+"/api" {
			return r.Mod.Version
		}
	}
	t.Fatal("pkg/volumes does not require the module api")
	return ""
}

func TestAReleaseNeedsItsOwnVersionInEachGoMod(t *testing.T) {
	script := abs(t, filepath.Join(root, "hack", "modules.sh"))
	run := func(arguments ...string) (string, error) {
		output, err := exec.CommandContext(t.Context(), script, arguments...).CombinedOutput()
		return string(output), err
	}
	if output, err := run("check", version(t)); err != nil {
		t.Errorf("hack/modules.sh check %s: %v, want success\n%s", version(t), err, output)
	}
	if output, err := run("check", "v0.0.1"); err == nil || !strings.Contains(output, "pkg/volumes/go.mod requires api") {
		t.Errorf("hack/modules.sh check v0.0.1: %v, want that it names pkg/volumes/go.mod\n%s", err, output)
	}
	if tags, err := run("tags", "v0.0.1"); err != nil || tags != "api/v0.0.1\npkg/volumes/v0.0.1\n" {
		t.Errorf("hack/modules.sh tags v0.0.1: %v, %q, want one tag for each nested module", err, tags)
	}
	if output, err := run("chek", version(t)); err == nil {
		t.Errorf("hack/modules.sh chek: success, want it refused\n%s", output)
	}
}

func TestAllModulesRequireTheSameVersionsOfOurs(t *testing.T) {
	want := version(t)
	for _, dir := range []string{".", "examples/operator", "pkg/volumes", "test/gitops"} {
		file := goMod(t, dir)
		replaced := []string{}
		for _, r := range file.Replace {
			replaced = append(replaced, r.Old.Path)
		}
		for _, r := range file.Require {
			if !strings.HasPrefix(r.Mod.Path, hawser+"/") {
				continue
			}
			if r.Mod.Version != want || !slices.Contains(replaced, r.Mod.Path) {
				t.Errorf("%s/go.mod requires %v, want version %s, replaced by the directory", dir, r.Mod, want)
			}
		}
	}
}
