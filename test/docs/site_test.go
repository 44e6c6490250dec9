/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package docs

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/hawser-io/hawser/test/apiserver"
)

func TestTheSiteHasTheFirstPageOfEachDirectory(t *testing.T) {
	root := apiserver.Root()
	config := struct {
		Module struct {
			Mounts []struct{ Source, Target string }
		}
	}{}
	if err := yaml.Unmarshal([]byte(read(t, filepath.Join(root, "hack", "site", "hugo.yaml"))), &config); err != nil {
		t.Fatal(err)
	}
	for _, below := range []string{"docs", "examples"} {
		err := filepath.WalkDir(filepath.Join(root, below), func(name string, entry fs.DirEntry, err error) error {
			page, _ := filepath.Rel(root, name)
			mounted := func(m struct{ Source, Target string }) bool { return m.Source == page }
			if entry.Name() == "README.md" && !slices.ContainsFunc(config.Module.Mounts, mounted) {
				t.Errorf("hack/site/hugo.yaml has no mount of %s", page)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheSiteIsWrittenForEachVersion(t *testing.T) {
	root := apiserver.Root()
	hugo := filepath.Join(root, ".cache", "tools", "hugo")
	if _, err := os.Stat(hugo); err != nil {
		t.Skip("LEFT OUT (needs .cache/tools/hugo; make site builds it)")
	}
	site := t.TempDir()
	for _, version := range []string{"main", "v0.1.0", "v0.10.0", "v0.10.0-rc.1", "v0.11.0-rc.1", "v0.9.0"} {
		write := exec.CommandContext(t.Context(), filepath.Join(root, "hack", "site.sh"), hugo, version, site)
		if output, err := write.CombinedOutput(); err != nil || strings.Contains(string(output), "WARN") {
			t.Fatalf("writing the site of %s: %v\n%s", version, err, output)
		}
	}
	const versions = `["v0.11.0-rc.1","v0.10.0","v0.10.0-rc.1","v0.9.0","v0.1.0","main"]`
	if got := strings.TrimSpace(read(t, filepath.Join(site, "versions.json"))); got != versions {
		t.Errorf("versions.json is %s, want the newest release first and main last: %s", got, versions)
	}
	for page, want := range map[string][]string{
		"index.html": {`url=v0.10.0/`},
		"v0.9.0/docs/clusters/index.html": {`<title>Where people run clusters · Hawser v0.9.0</title>`,
			`href="/hawser/v0.9.0/docs/preflight/#the-attachdetach-controller"`},
		"v0.9.0/examples/ci-waits/index.html": {
			`href="https://github.com/hawser-io/hawser/blob/v0.9.0/examples/ci-waits/wait.sh"`},
		"v0.9.0/docs/operate/index.html": {`src="/hawser/v0.9.0/docs/dashboard.svg"`},
	} {
		text := read(t, filepath.Join(site, page))
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("%s of the site has not %s", page, part)
			}
		}
	}
	searched(t, filepath.Join(site, "main", "index.json"))
}

// searched is what the search of the site reads.
func searched(t *testing.T, name string) {
	t.Helper()
	var pages []struct{ URL, Title, Text string }
	if err := json.Unmarshal([]byte(read(t, name)), &pages); err != nil {
		t.Fatal(err)
	}
	findings := slices.IndexFunc(pages, func(p struct{ URL, Title, Text string }) bool {
		return p.URL == "/hawser/main/docs/reference/findings/"
	})
	if len(pages) < 100 || findings < 0 || !strings.Contains(pages[findings].Text, "HWS949") {
		t.Errorf("%d pages can be searched, want all, with the codes of the findings", len(pages))
	}
}
