/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package environment

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/hawser-io/hawser"

// risky packages start programs, or read the kubeconfig that the environment names.
var risky = []string{"os/exec", "k8s.io/client-go/tools/clientcmd", "k8s.io/cli-runtime/pkg/genericclioptions",
	"sigs.k8s.io/controller-runtime/pkg/envtest"}

// startedClean are programs which only the local cluster starts.
var startedClean = []string{module + "/test/csiloop/cmd/csi-loop"}

// goPackage is what `go list` reports. Packages that are compiled for the test P have " [P.test]" in their names.
type goPackage struct {
	ImportPath, Name string
	Imports, Deps    []string
}

func goPackages(t *testing.T) map[string]goPackage {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-test", "-deps", "-json=ImportPath,Name,Imports,Deps",
		module+"/...")
	output, err := list.Output()
	if err != nil {
		t.Fatalf("listing the packages: %v", err)
	}
	packages := map[string]goPackage{}
	decoder := json.NewDecoder(strings.NewReader(string(output)))
	for {
		var p goPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		if err != nil {
			t.Fatal(err)
		}
		packages[p.ImportPath] = p
	}
}

// A test or tool that starts programs or reads kubeconfigs has a clean environment from its beginning.
func TestTestsAndToolsThatStartProgramsHaveACleanEnvironment(t *testing.T) {
	packages := goPackages(t)
	checked := 0
	for path, p := range packages {
		tool := p.Name == "main" && strings.HasPrefix(path, module+"/test/") && !slices.Contains(startedClean, path)
		if !tool && !strings.HasSuffix(path, ".test") {
			continue
		}
		checked++
		if slices.Contains(p.Deps, module+"/test/environment") || strings.HasPrefix(path, module+"/test/environment.") {
			continue
		}
		for _, dependency := range append(p.Deps, path) {
			if !strings.HasPrefix(dependency, module) {
				continue
			}
			for _, imported := range packages[dependency].Imports {
				if slices.Contains(risky, imported) {
					t.Errorf("%s uses %s, which imports %s: it must import %s/test/environment", path, dependency, imported,
						module)
				}
			}
		}
	}
	if checked < 50 {
		t.Errorf("%d tests and tools were checked, want all", checked)
	}
}
