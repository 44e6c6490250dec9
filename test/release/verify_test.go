/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hawser-io/hawser/test/apiserver"
)

// commit is what the releases of these tests claim to be built from.
const commit = "0123456789abcdef0123456789abcdef01234567"

// cosign names the real cosign, which takes minutes to build.
func cosign(t *testing.T) string {
	t.Helper()
	file := filepath.Join(apiserver.Root(), ".cache", "tools", "cosign")
	if _, err := os.Stat(file); err != nil {
		t.Skip("LEFT OUT of a short run (cosign takes minutes to build; make cosign does it)")
	}
	return file
}

// keys makes a pair of keys below dir, NAME.key and NAME.pub.
func keys(t *testing.T, dir, name string) {
	t.Helper()
	run(t, dir, []string{"COSIGN_PASSWORD="}, cosign(t)+" generate-key-pair --output-key-prefix "+name)
}

// verify runs what can be checked of a release that is a part of one, and returns what it printed.
func verify(t *testing.T, dist, key string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(apiserver.Root(), "hack", "verify-release.sh"), "v0.1.0", dist)
	cmd.Env = append(os.Environ(), "COSIGN="+cosign(t), "COSIGN_PUBLIC_KEY="+key, "COMMIT="+commit,
		"CHECKS=signature listed provenance")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// sums writes the checksums again, as one does who hides what he has changed.
const sums = " && find . -type f ! -path ./SHA256SUMS ! -path ./SHA256SUMS.sigstore.json -printf '%P\\n' |" +
	" LC_ALL=C sort | xargs sha256sum >SHA256SUMS"

func TestASignedReleaseIsAcceptedAndATamperedOneRefused(t *testing.T) {
	dir := t.TempDir()
	keys(t, dir, "own")
	keys(t, dir, "foreign")
	signed := filepath.Join(dir, "dist")
	sign := []string{"COSIGN=" + cosign(t), "COSIGN_PASSWORD="}
	tree := filepath.Join(dir, "tree") // the repository's own may have changes that are not committed
	copyTree(t, tree)
	run(t, tree, append(sign, "COSIGN_KEY="+filepath.Join(dir, "own.key"), "COMMIT="+commit,
		"HELM="+program(t, "tools", "helm"), "KUBECTL="+program(t, "bin", "kubectl"),
		"PARTS=chart monitoring provenance", "SOURCE_DATE_EPOCH=1700000000"),
		"hack/release.sh v0.1.0 registry.example.com/hawser "+signed)
	if out, err := verify(t, signed, filepath.Join(dir, "own.pub")); err != nil {
		t.Fatalf("an untouched release is refused: %v\n%s", err, out)
	}
	const unsigned, unlisted = "not so: the checksums are signed", "not so: every file has its checksum"
	const unproven = "not so: the provenance"
	foreignKey := " && " + cosign(t) + " sign-blob --yes --use-signing-config=false --tlog-upload=false" +
		" --bundle SHA256SUMS.sigstore.json SHA256SUMS --key " + filepath.Join(dir, "foreign.key")
	signedAgain := sums + strings.ReplaceAll(foreignKey, "foreign.key", "own.key")
	for name, c := range map[string]struct{ tamper, want string }{
		"a file is changed":                     {"echo >>hawser-alerts.yaml", unlisted},
		"a file is added":                       {"touch more", unlisted},
		"a file is added beside the checksums":  {"touch SHA256SUMS.sh", unlisted},
		"a file is missing":                     {"rm hawser-alerts.yaml", unlisted},
		"a file and its checksum are changed":   {"echo >>hawser-alerts.yaml" + sums, unsigned},
		"the signature is missing":              {"rm SHA256SUMS.sigstore.json", unsigned},
		"another key has signed":                {"true" + foreignKey, unsigned},
		"the signature is changed":              {"sed -i 's/signature\":\"./&_/' SHA256SUMS.sigstore.json", unsigned},
		"the provenance is of something else":   {"sed -i s/hawser-alerts/other/ hawser.intoto.json" + signedAgain, unproven},
		"the commit is another one":             {"sed -i s/0123456789/1123456789/ *.intoto.json" + signedAgain, unproven},
		"the provenance is of another version":  {"sed -i s/v0.1.0/v0.1.1/ hawser.intoto.json" + signedAgain, unproven},
		"the provenance lacks a file":           {"touch more" + signedAgain, unproven},
		"the provenance has another form":       {"sed -i s,slsa.dev,x, hawser.intoto.json" + signedAgain, unproven},
		"the provenance is not there, by a key": {"rm hawser.intoto.json" + signedAgain, unproven},
	} {
		t.Run(name, func(t *testing.T) {
			copied := t.TempDir()
			run(t, signed, sign, "cp -r . "+copied+" && cd "+copied+" && "+c.tamper)
			out, err := verify(t, copied, filepath.Join(dir, "own.pub"))
			if err == nil || !strings.Contains(out, c.want) {
				t.Errorf("want it refused with %q; error %v, it printed:\n%s", c.want, err, out)
			}
		})
	}
}

func TestTheWorkflowCallsWhatIsThere(t *testing.T) {
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(apiserver.Root(), name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	workflow, makefile := read(".github/workflows/release.yaml"), read("Makefile")
	called := regexp.MustCompile(`\bmake ([a-z-]+)|\b(hack/[a-z-]+\.sh)`).FindAllStringSubmatch(workflow, -1)
	if len(called) < 3 {
		t.Errorf("the workflow calls %q, want make release, make verify-release and hack/publish.sh", called)
	}
	for _, call := range called {
		if target, script := call[1], call[2]; script != "" {
			read(script)
		} else if !strings.Contains(makefile, "\n"+target+":") {
			t.Errorf("the Makefile lacks the target %s", target)
		}
	}
}
