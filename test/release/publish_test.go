/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hawser-io/hawser/test/apiserver"
)

// registry is a skopeo that has the manifests of a registry as files. Without the directory no registry answers.
const registry = `#!/bin/bash
file=$REGISTRY/$(basename "${@: -1}")
if [[ $1 == copy ]]; then
	archive=${*: -2:1} && archive=${archive#oci-archive:}
	digest=$(tar -xOf "$archive" index.json | jq -r '.manifests[0].digest')
	tar -xOf "$archive" "blobs/sha256/${digest#sha256:}" >"$file"
elif [[ ! -d $REGISTRY ]]; then
	echo connection refused >&2
	exit 1
elif ! cat "$file" 2>/dev/null; then
	echo manifest unknown >&2
	exit 1
fi
`

func TestAVersionThatIsOutIsNotReplaced(t *testing.T) {
	dir := t.TempDir()
	dist := filepath.Join(dir, "dist")
	for name, text := range map[string]string{"skopeo": registry, "tool": "#!/bin/bash\necho \"$1\" >>\"$CALLS\"\n"} {
		//nolint:gosec // it is run
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(dist, 0o700); err != nil {
		t.Fatal(err)
	}
	packImages(t, dist)
	run(t, dist, nil, "echo chart >hawser-0.1.0.tgz && COMMIT="+commit+" SOURCE_DATE_EPOCH=1700000000 "+
		filepath.Join(apiserver.Root(), "hack", "provenance.sh")+
		" write v0.1.0 registry.example.com/hawser . >../provenance && mv ../provenance hawser.intoto.json && true"+sums)
	const complete = "sign sign sign push"
	const chartOf = `{"layers":[{"digest":"sha256:'$(sha256sum <$DIST/hawser-0.1.0.tgz | cut -d ' ' -f 1)'"}]}`
	for _, c := range []struct{ name, registry, want, calls string }{
		{"nothing is there", "mkdir $REGISTRY", "", complete},
		{"the registry does not answer", "true", "connection refused", ""},
		{"another image is there", "mkdir $REGISTRY && echo {} >$REGISTRY/agent:v0.1.0", "has another", ""},
		{"another chart is there", `mkdir $REGISTRY && echo '{"layers":[]}' >$REGISTRY/hawser:0.1.0`,
			"has another chart", ""},
		{"the chart is there", "mkdir $REGISTRY && echo '" + chartOf + "' >$REGISTRY/hawser:0.1.0", "", "sign sign sign"},
	} {
		place := t.TempDir()
		calls := filepath.Join(place, "calls")
		env := []string{"REGISTRY=" + filepath.Join(place, "registry"), "CALLS=" + calls, "DIST=" + dist, "COSIGN_KEY=key",
			"COSIGN=tool", "HELM=tool", "PATH=" + dir + ":" + os.Getenv("PATH")}
		run(t, place, env, c.registry+" && touch "+calls)
		cmd := exec.CommandContext(t.Context(), filepath.Join(apiserver.Root(), "hack", "publish.sh"), "v0.1.0", dist)
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		if (err == nil) != (c.want == "") || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: error %v, want one with %q; it printed:\n%s", c.name, err, c.want, out)
		}
		got, err := os.ReadFile(calls)
		if err != nil || strings.Join(strings.Fields(string(got)), " ") != c.calls {
			t.Errorf("%s: cosign and helm are called with %q (%v), want %q", c.name, got, err, c.calls)
		}
	}
}

// page is a gh that has the page of a release as files: its checksums, and whether it is a draft.
const page = `#!/bin/bash
echo "$2" >>"$CALLS"
case $2 in
view) [[ -e $PAGE/draft ]] || { echo "release not found" >&2 && exit 1; }; cat "$PAGE/draft" ;;
delete) rm "$PAGE"/* ;;
create) [[ ! -e $PAGE/draft && " $* " == *" ./SHA256SUMS "* ]] && cp SHA256SUMS "$PAGE" ;;
download) cat "$PAGE/SHA256SUMS" ;;
esac
`

func TestThePageOfAReleaseHasItsFiles(t *testing.T) {
	dir := t.TempDir()
	//nolint:gosec // it is run
	if err := os.WriteFile(filepath.Join(dir, "gh"), []byte(page), 0o755); err != nil {
		t.Fatal(err)
	}
	dist := t.TempDir()
	run(t, dist, nil, "echo changes >CHANGES.md && sha256sum CHANGES.md >SHA256SUMS")
	for _, c := range []struct{ name, page, want, calls string }{
		{"there is none", "true", "", "view create download"},
		{"a run was interrupted", "echo true >draft && echo part >SHA256SUMS", "", "view delete create download"},
		{"it is out", "echo false >draft && cp $DIST/SHA256SUMS .", "", "view download"},
		{"another one is out", "echo false >draft && echo other >SHA256SUMS", "has other files", "view download"},
		{"it cannot be read", "mkdir draft", "Is a directory", "view"},
		{"it has no checksums", "echo false >draft", "has other files", "view download"},
	} {
		place, calls := t.TempDir(), filepath.Join(t.TempDir(), "calls")
		env := []string{"PAGE=" + place, "CALLS=" + calls, "DIST=" + dist, "GITHUB_REPOSITORY=hawser-io/hawser",
			"PATH=" + dir + ":" + os.Getenv("PATH")}
		run(t, place, env, c.page)
		cmd := exec.CommandContext(t.Context(), filepath.Join(apiserver.Root(), "hack", "publish-files.sh"), "v0.1.0", dist)
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		if (err == nil) != (c.want == "") || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: error %v, want one with %q; it printed:\n%s", c.name, err, c.want, out)
		}
		got, err := os.ReadFile(calls)
		if err != nil || strings.Join(strings.Fields(string(got)), " ") != c.calls {
			t.Errorf("%s: gh is called with %q (%v), want %q", c.name, got, err, c.calls)
		}
	}
}

func TestAProvenanceHasTheDigestOfEveryFile(t *testing.T) {
	dir, dist := t.TempDir(), t.TempDir()
	run(t, dist, nil, "echo chart >hawser-0.1.0.tgz")
	write := func(path string) (string, error) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(apiserver.Root(), "hack", "provenance.sh"), "write", "v0.1.0",
			"registry.example.com/hawser", dist)
		cmd.Env = append(os.Environ(), "COMMIT="+commit, "SOURCE_DATE_EPOCH=1700000000", "PATH="+path)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := write(os.Getenv("PATH")); err != nil || !strings.Contains(out, "hawser-0.1.0.tgz") {
		t.Errorf("provenance of a chart: error %v, want its name in:\n%s", err, out)
	}
	//nolint:gosec // it is run
	if err := os.WriteFile(filepath.Join(dir, "sha256sum"), []byte("#!/bin/bash\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := write(dir + ":" + os.Getenv("PATH")); err == nil {
		t.Errorf("provenance where no digest can be computed: no error, want one; it printed:\n%s", out)
	}
}
