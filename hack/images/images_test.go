/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// pack packs an image of two architectures from made-up files, with these additional flags.
func pack(t *testing.T, flags ...string) (archive string, err error) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "LICENSE"), "the licence")
	for _, architecture := range []string{"amd64", "arm64"} {
		write(t, filepath.Join(dir, "program-"+architecture), "program of "+architecture)
	}
	archive = filepath.Join(dir, "image.tar")
	return archive, run(append([]string{"--name", "hawser/agent", "--tag", "dev", "--version", "v1.2.3",
		"--entrypoint", "/usr/local/bin/agent", "--binary", filepath.Join(dir, "program-ARCH"), "--user", "65532:65532",
		"--licence", filepath.Join(dir, "LICENSE"), "--epoch", "1700000000", "--output", archive}, flags...))
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// images reads the images of an archive by architecture, and the annotations of the index.
func images(t *testing.T, archive string) (map[string]v1.Image, map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range entries(t, archive) {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, file, content)
	}
	whole, err := layout.ImageIndexFromPath(dir)
	check(t, err)
	manifest, err := whole.IndexManifest()
	check(t, err)
	index, err := whole.ImageIndex(manifest.Manifests[0].Digest)
	check(t, err)
	platforms, err := index.IndexManifest()
	check(t, err)
	found := map[string]v1.Image{}
	for _, platform := range platforms.Manifests {
		found[platform.Platform.Architecture], err = index.Image(platform.Digest)
		check(t, err)
	}
	return found, manifest.Manifests[0].Annotations
}

// entries are the files of a tar with their content.
func entries(t *testing.T, file string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(file)
	check(t, err)
	return read(t, bytes.NewReader(data))
}

func read(t *testing.T, from io.Reader) map[string]string {
	t.Helper()
	reader, found := tar.NewReader(from), map[string]string{}
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		check(t, err)
		content, err := io.ReadAll(reader)
		check(t, err)
		found[header.Name] = string(content)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAnImageHasTheProgramOfItsArchitecture(t *testing.T) {
	archive, err := pack(t)
	check(t, err)
	found, annotations := images(t, archive)
	if got, want := slices.Sorted(maps.Keys(found)), []string{"amd64", "arm64"}; !slices.Equal(got, want) {
		t.Fatalf("architectures %q, want %q", got, want)
	}
	if got, want := annotations["io.containerd.image.name"], "docker.io/hawser/agent:dev"; got != want {
		t.Errorf("containerd imports it as %s, want %s", got, want)
	}
	for architecture, image := range found {
		files := read(t, mutate.Extract(image))
		if got, want := files["usr/local/bin/agent"], "program of "+architecture; got != want {
			t.Errorf("%s: the program is %q, want %q", architecture, got, want)
		}
		if got := files["licenses/LICENSE"]; got != "the licence" {
			t.Errorf("%s: the licence is %q, want the file's", architecture, got)
		}
		config, err := image.ConfigFile()
		check(t, err)
		if config.Architecture != architecture || config.Config.User != "65532:65532" ||
			!slices.Equal(config.Config.Entrypoint, []string{"/usr/local/bin/agent"}) {
			t.Errorf("%s: architecture %s, user %s, entrypoint %q; want those of the flags", architecture,
				config.Architecture, config.Config.User, config.Config.Entrypoint)
		}
	}
}

func TestTheSBOMOfEachArchitectureIsAttachedToItsImage(t *testing.T) {
	dir := t.TempDir()
	for _, architecture := range []string{"amd64", "arm64"} {
		write(t, filepath.Join(dir, architecture+".json"), `{"name":"of `+architecture+`"}`)
	}
	archive, err := pack(t, "--sbom", filepath.Join(dir, "ARCH.json"))
	check(t, err)
	files := entries(t, archive)
	blob := func(digest v1.Hash) string { return files["blobs/"+digest.Algorithm+"/"+digest.Hex] }
	read := func(text string) *v1.IndexManifest {
		manifest, err := v1.ParseIndexManifest(strings.NewReader(text))
		check(t, err)
		return manifest
	}
	manifests := read(blob(read(files["index.json"]).Manifests[0].Digest)).Manifests
	if len(manifests) != 4 {
		t.Fatalf("%d manifests, want two of images and two of SBOMs", len(manifests))
	}
	for i, image := range manifests[:2] {
		if image.ArtifactType != "" || manifests[2+i].ArtifactType != "" {
			t.Error("a descriptor has an artifactType, which skopeo 1.9 drops, so that the index gets another digest")
		}
		attached := manifests[2+i]
		if attached.Platform.Architecture != "unknown" || attached.Annotations[referenceDigest] != image.Digest.String() {
			t.Errorf("%s: the manifest of its SBOM is for %v of %s", image.Digest, attached.Platform, attached.Annotations)
		}
		manifest, err := v1.ParseManifest(strings.NewReader(blob(attached.Digest)))
		check(t, err)
		text := blob(manifest.Layers[0].Digest)
		for _, want := range []string{`"predicate":{"name":"of ` + image.Platform.Architecture, image.Digest.Hex, spdx} {
			if !strings.Contains(text, want) {
				t.Errorf("the statement of %s lacks %s: %s", image.Platform.Architecture, want, text)
			}
		}
	}
}

func TestTheSameInputGivesTheSameBytes(t *testing.T) {
	first, err := pack(t)
	check(t, err)
	second, err := pack(t)
	check(t, err)
	if !maps.Equal(entries(t, first), entries(t, second)) {
		t.Error("two archives of the same input differ, want the same bytes")
	}
}

// rootWith writes the tar of a root file system with these files.
func rootWith(t *testing.T, names ...string) string {
	t.Helper()
	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	for _, name := range names {
		check(t, writer.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Typeflag: tar.TypeReg}))
	}
	check(t, writer.Close())
	file := filepath.Join(t.TempDir(), "root.tar")
	write(t, file, buffer.String())
	return file
}

func TestARootFileSystemKeepsWhatItsProgramsRead(t *testing.T) {
	root := rootWith(t, "./dev/null", "./etc/hostname", "./etc/resolv.conf", "./etc/apt/sources.list", "./sbin/blkid",
		"./lib/libblkid.so.1", "./usr/share/man/man8/blkid.8.gz", "./usr/share/doc/util-linux/copyright",
		"./usr/lib/python3/x.py", "./var/lib/dpkg/status.d/python3", "./var/lib/dpkg/status.d/util-linux")
	archive, err := pack(t, "--root", root, "--needs", "blkid")
	check(t, err)
	found, _ := images(t, archive)
	got := slices.Sorted(maps.Keys(read(t, mutate.Extract(found["amd64"]))))
	want := []string{"lib/libblkid.so.1", "licenses/LICENSE", "sbin/blkid", "usr/local/bin/agent",
		"usr/share/doc/util-linux/copyright", "var/lib/dpkg/status.d/util-linux"}
	if !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
}

func TestARootFileSystemWithoutAProgramIsRefused(t *testing.T) {
	_, err := pack(t, "--root", rootWith(t, "./sbin/blkid", "./usr/lib/mkfs.ext4"), "--needs", "blkid,mkfs.ext4")
	if err == nil || !strings.Contains(err.Error(), "lacks the programs mkfs.ext4") {
		t.Errorf("got %v, want an error that names mkfs.ext4 only", err)
	}
}

// TestTheDockerfileMakesTheSameImages compares what can be compared without a container tool.
func TestTheDockerfileMakesTheSameImages(t *testing.T) {
	dockerfile := file(t, "Dockerfile")
	for label, value := range (options{}).labels() {
		if !strings.Contains(dockerfile, label+`="`) || value != "" && !strings.Contains(dockerfile, label+`="`+value+`"`) {
			t.Errorf("the Dockerfile lacks the label %s, or has another value than %q", label, value)
		}
	}
	script := file(t, "hack/images.sh")
	for _, stage := range []string{"operator", "manager", "agent"} {
		_, text, _ := strings.Cut(dockerfile, " AS "+stage+"\n")
		text, _, _ = strings.Cut(text, "\nFROM ")
		for _, pattern := range []string{`description="(.*)"`, `ENTRYPOINT \["(.*)"\]`} {
			found := regexp.MustCompile(pattern).FindStringSubmatch(text)
			if found == nil || !strings.Contains(script, found[1]) {
				t.Errorf("stage %s: hack/images.sh lacks what matches %s: %q", stage, pattern, found)
			}
		}
	}
}

// TestTheDockerfileFindsWhatItCopies reads .dockerignore, which leaves out everything that it does not name.
func TestTheDockerfileFindsWhatItCopies(t *testing.T) {
	ignore := strings.Split(file(t, ".dockerignore"), "\n")
	for _, line := range regexp.MustCompile(`(?m)^COPY ([^-].*) \S+$`).FindAllStringSubmatch(file(t, "Dockerfile"), -1) {
		for _, name := range strings.Fields(line[1]) {
			if !slices.Contains(ignore, "!"+name) {
				t.Errorf(".dockerignore leaves out %s, which the Dockerfile copies", name)
			}
		}
	}
}

func TestEveryPackageIsPinnedForEachArchitecture(t *testing.T) {
	for _, architecture := range []string{"amd64", "arm64"} {
		pins := file(t, "hack/images/debian-"+architecture+".sha256")
		if !regexp.MustCompile(`^# \d{8}T\d{6}Z\n`).MatchString(pins) {
			t.Errorf("%s: the first line is no time of a snapshot", architecture)
		}
		for _, name := range strings.Fields(file(t, "hack/images/packages")) {
			pin := `(?m)^[0-9a-f]{64}  ` + name + `_\S+_(` + architecture + `|all)\.deb$`
			if !regexp.MustCompile(pin).MatchString(pins) {
				t.Errorf("%s: no digest of package %s; make pin-packages writes them", architecture, name)
			}
		}
	}
}

// file reads a file of the repository.
func file(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", name))
	check(t, err)
	return string(data)
}
