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
	"slices"
	"strings"
	"testing"

	"github.com/hawser-io/hawser/internal/version"
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

// verify runs checks of a release, and returns what they printed.
func verify(t *testing.T, dist, checks string, env ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(apiserver.Root(), "hack", "verify-release.sh"), "v0.1.0", dist)
	cmd.Env = append(append(os.Environ(), "COSIGN_PUBLIC_KEY=", "COMMIT="+commit, "CHECKS="+checks), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// sums writes the checksums again, as one does who hides what he has changed.
const sums = " && find . -type f ! -path ./SHA256SUMS ! -path ./SHA256SUMS.sigstore.json -printf '%P\\n' |" +
	" LC_ALL=C sort | xargs sha256sum >SHA256SUMS"

// tampering with a release, and what refuses it.
type tampering map[string]struct{ tamper, want string }

// isRefused tampers with a copy of the release each time.
func (all tampering) isRefused(t *testing.T, dist, checks string, env ...string) {
	t.Helper()
	if out, err := verify(t, dist, checks, env...); err != nil {
		t.Fatalf("an untouched release is refused: %v\n%s", err, out)
	}
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			copied := t.TempDir()
			run(t, dist, env, "cp -r . "+copied+" && cd "+copied+" && "+c.tamper)
			out, err := verify(t, copied, checks, env...)
			if err == nil || !strings.Contains(out, "not so: "+c.want) {
				t.Errorf("want it refused with %q; error %v, it printed:\n%s", c.want, err, out)
			}
		})
	}
}

// partOf makes the parts of a release that are cheap, with the provenance.
func partOf(t *testing.T, env ...string) string {
	t.Helper()
	dir := t.TempDir()
	tree, dist := filepath.Join(dir, "tree"), filepath.Join(dir, "dist")
	copyTree(t, tree) // the repository's own may have changes that are not committed
	run(t, tree, append(env, "COMMIT="+commit, "HELM="+program(t, "tools", "helm"),
		"KUBECTL="+program(t, "bin", "kubectl"), "PARTS=install chart monitoring provenance",
		"SOURCE_DATE_EPOCH=1700000000"), "hack/release.sh v0.1.0 registry.example.com/hawser "+dist)
	return dist
}

func TestATamperedReleaseIsRefused(t *testing.T) {
	const unlisted, unproven = "every file has its checksum", "the provenance"
	const otherImage = "the chart is well-formed"
	tampering{
		"a file is changed":                {"echo >>hawser-alerts.yaml", unlisted},
		"a file is added":                  {"touch more", unlisted},
		"a file is added by the checksums": {"touch SHA256SUMS.sh", unlisted},
		"a directory is added":             {"mkdir more", unlisted},
		"a link is added":                  {"ln -s install.yaml more", unlisted},
		"a link is in the place of a file": {"mv install.yaml SHA256SUMS.sigstore.json && " +
			"ln -s SHA256SUMS.sigstore.json install.yaml", unlisted},
		"a file is missing":                {"rm hawser-alerts.yaml", unlisted},
		"another image in install.yaml":    {"sed -i s,/agent:v0.1.0,/agent:v0.1.1, install.yaml" + sums, otherImage},
		"another image in observer.yaml":   {"sed -i s,registry.example.com,x.example.com, observer.yaml" + sums, otherImage},
		"other images in the provenance":   {"sed -i s,example.com/hawser,example.com/x, *.intoto.json" + sums, otherImage},
		"the provenance of something else": {"sed -i s/hawser-alerts/other/ hawser.intoto.json" + sums, unproven},
		"the commit is another one":        {"sed -i s/0123456789/1123456789/ *.intoto.json" + sums, unproven},
		"the provenance of a version":      {"sed -i s/v0.1.0/v0.1.1/ hawser.intoto.json" + sums, unproven},
		"the provenance lacks a file":      {"touch more" + sums, unproven},
		"the provenance has another form":  {"sed -i s,slsa.dev,x, hawser.intoto.json" + sums, unproven},
	}.isRefused(t, partOf(t), "listed chart provenance", "HELM="+program(t, "tools", "helm"))
}

// TestAPartOfAReleaseIsNotComplete, although everything that is there has its checksum.
func TestAPartOfAReleaseIsNotComplete(t *testing.T) {
	out, err := verify(t, partOf(t), "")
	if err == nil || !strings.Contains(out, "not so: no file of a release is missing") ||
		!strings.Contains(out, "< manager_v0.1.0.tar\n") {
		t.Errorf("want it refused, and what is missing named; error %v, it printed:\n%s", err, out)
	}
}

func TestOnlyTheSignatureOfTheKeyIsAccepted(t *testing.T) {
	dir := t.TempDir()
	key := func(name string) string { return filepath.Join(dir, name) }
	env := []string{"COSIGN=" + cosign(t), "COSIGN_PASSWORD="}
	for _, name := range []string{"own", "foreign"} {
		run(t, dir, env, cosign(t)+" generate-key-pair --output-key-prefix "+name)
	}
	dist := partOf(t, append(env, "COSIGN_KEY="+key("own.key"))...)
	const unsigned = "the checksums are signed"
	tampering{
		"a file and its checksum are changed": {"echo >>hawser-alerts.yaml" + sums, unsigned},
		"the signature is missing":            {"rm SHA256SUMS.sigstore.json", unsigned},
		"the signature is changed":            {"sed -i 's/signature\":\"./&_/' SHA256SUMS.sigstore.json", unsigned},
		"another key has signed": {cosign(t) + " sign-blob --yes --use-signing-config=false --tlog-upload=false" +
			" --bundle SHA256SUMS.sigstore.json SHA256SUMS --key " + key("foreign.key"), unsigned},
	}.isRefused(t, dist, "signature listed provenance", append(env, "COSIGN_PUBLIC_KEY="+key("own.pub"))...)
}

// packImages writes images of a program that is none.
func packImages(t *testing.T, dist string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, []byte("a program"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"operator", "manager", "agent"} {
		run(t, filepath.Join(apiserver.Root(), "hack", "images"), nil, "go run . --name registry.example.com/hawser/"+name+
			" --tag v0.1.0 --version v0.1.0 --title 'Hawser "+name+"' --entrypoint /"+name+" --binary "+file+
			" --licence ../../LICENSE --epoch 1700000000 --output "+filepath.Join(dist, name+"_v0.1.0.tar"))
	}
}

func TestAnImageThatLacksSomethingIsRefused(t *testing.T) {
	dist := t.TempDir()
	packImages(t, dist)
	run(t, dist, nil, "sha256sum * >SHA256SUMS")
	// in runs commands where the archive is unpacked. index, manifest and layer are names of blobs.
	in := func(commands string) string {
		return `mkdir agent && cd agent && tar -xf ../agent_v0.1.0.tar && cd blobs/sha256 &&
			name() { jq -r "$2" "$1" | cut -d : -f 2; } && index=$(name ../../index.json '.manifests[0].digest') &&
			manifest=$(name $index '.manifests[1].digest') && layer=$(name $manifest '.layers[0].digest') &&
			` + commands + ` && cd ../.. && tar -cf ../agent_v0.1.0.tar * && cd .. && rm -r agent`
	}
	const refused = "the images have what their names promise"
	tampering{
		"a layer is changed":    {in("echo >>$layer"), refused},
		"a layer is missing":    {in("rm $layer"), refused},
		"an image is missing":   {in("rm $manifest"), refused},
		"a blob is added":       {in("echo x >x && mv x $(sha256sum x | cut -d ' ' -f 1)"), refused},
		"it is another image":   {"cp manager_v0.1.0.tar agent_v0.1.0.tar", refused},
		"an archive is missing": {"rm agent_v0.1.0.tar", refused},
		"an architecture is not there": {in(`jq -c 'del(.manifests[1])' $index >new && rm $index $manifest && old=$index &&
			index=$(sha256sum new | cut -d ' ' -f 1) && mv new $index && sed -i s/$old/$index/ ../../index.json`), refused},
	}.isRefused(t, dist, "images")
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
	called := regexp.MustCompile(`\bmake [a-z-]*release\b|\bhack/[a-z-]+\.sh( [a-z]+)?`).FindAllString(workflow, -1)
	want := []string{"hack/modules.sh check", "hack/modules.sh tags", "make release", "make verify-release",
		"hack/publish.sh", "hack/publish-files.sh", "hack/modules.sh tags"}
	if !slices.Equal(called, want) {
		t.Errorf("the workflow calls %q, want %q", called, want)
	}
	for _, call := range called {
		program, argument, _ := strings.Cut(call, " ")
		if program != "make" {
			read(program)
		} else if !strings.Contains(makefile, "\n"+argument+":") {
			t.Errorf("the Makefile lacks the target %s", argument)
		}
	}
}

// refusal is what the release of a version in a tree fails with.
func refusal(t *testing.T, tree, version string, env ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "hack/release.sh", version, "registry.example.com/hawser",
		filepath.Join(t.TempDir(), "dist"))
	cmd.Dir, cmd.Env = tree, append(append(os.Environ(), "PARTS=changes", "SOURCE_DATE_EPOCH=1700000000"), env...)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return ""
	}
	return string(out)
}

func TestAReleaseNeedsItsOwnSectionOfTheChangelog(t *testing.T) {
	tree := t.TempDir()
	copyTree(t, tree)
	if got := refusal(t, tree, "v0.1.0"); got != "" {
		t.Errorf("v0.1.0, to try it: %s, want it made", got)
	}
	if got := refusal(t, tree, "v0.1.0", "FINAL=1"); !strings.Contains(got, "Not released yet") {
		t.Errorf("v0.1.0 for all: %q, want it refused as long as the changelog has it as not released", got)
	}
	run(t, tree, nil, "sed -i 's/^Not released yet.$//' CHANGELOG.md")
	if got := refusal(t, tree, "v0.1.0", "FINAL=1"); got != "" {
		t.Errorf("v0.1.0 for all, with a changelog of it: %s, want it made", got)
	}
	run(t, tree, nil, "sed -i 's/^## v0.1.0$/&-rc.1/' CHANGELOG.md")
	if got := refusal(t, tree, "v0.1.0"); !strings.Contains(got, "has no heading") {
		t.Errorf("v0.1.0 with a section for v0.1.0-rc.1: %q, want it refused", got)
	}
}

// TestAReleaseHasTheFormOfATag, so that the pages that programs and alerts link are there.
func TestAReleaseHasTheFormOfATag(t *testing.T) {
	before := version.Version
	t.Cleanup(func() { version.Version = before })
	for _, name := range []string{"v9.1.0", "v9.20.3", "v9.0.0-rc.1", "v9.0.0-alpha.10", "v9.0.0-beta.2", "v9.1.0-dev",
		"v9.1", "9.1.0", "v9.0.0-rc", "v9.0.0-rc.1.2", "v9.0.0-next.1", "v9.0.0+build"} {
		version.Version = name
		refused := strings.Contains(refusal(t, apiserver.Root(), name), "the version is "+name)
		if tagged := version.Ref() == name; refused == tagged {
			t.Errorf("version %s is refused: %t, and has a tag: %t; want one of them", name, refused, tagged)
		}
	}
}
