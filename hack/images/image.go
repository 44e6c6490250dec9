/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// searchPath of the programs in an image with a root file system.
const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// index is the image of all architectures.
func (o options) index() (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var attachments []mutate.IndexAddendum
	for _, architecture := range o.architectures {
		image, err := o.image(architecture)
		if err != nil {
			return nil, fmt.Errorf("architecture %s: %w", architecture, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: untyped{image}, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: architecture},
		}})
		if o.sboms == "" {
			continue
		}
		attachment, err := o.attachment(image, architecture)
		if err != nil {
			return nil, fmt.Errorf("architecture %s: attaching the SBOM: %w", architecture, err)
		}
		attachments = append(attachments, attachment)
	}
	// Behind the platforms, because some tools take the first manifest.
	index = mutate.AppendManifests(index, attachments...)
	return index, nil
}

// untyped is an image whose descriptor in an index has no artifactType, which is for other things than images. Some
// tools drop it when they copy an index, which then has another digest.
type untyped struct{ v1.Image }

func (untyped) ArtifactType() (string, error) { return "", nil }

// image is the image of one architecture: the root file system, if there is one, then program and licence.
func (o options) image(architecture string) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	layers, err := o.layers(architecture)
	if err != nil {
		return nil, err
	}
	for _, content := range layers {
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(content)), nil
		}, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, fmt.Errorf("packing a layer: %w", err)
		}
		image, err = mutate.Append(image, mutate.Addendum{Layer: layer,
			History: v1.History{Created: v1.Time{Time: o.created}, CreatedBy: "hack/images"}})
		if err != nil {
			return nil, fmt.Errorf("adding a layer: %w", err)
		}
	}
	return mutate.ConfigFile(image, o.config(image, architecture))
}

func (o options) config(image v1.Image, architecture string) *v1.ConfigFile {
	// It has just been made, in memory.
	config, err := image.ConfigFile()
	if err != nil {
		panic(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", architecture, v1.Time{Time: o.created}
	config.Config = v1.Config{Entrypoint: []string{o.entrypoint}, User: o.user, Labels: o.labels()}
	if o.roots != "" {
		config.Config.Env = []string{searchPath}
	}
	return config
}

// labels are those of the Dockerfile.
func (o options) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       o.title,
		"org.opencontainers.image.description": o.description,
		"org.opencontainers.image.version":     o.version,
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.vendor":      "The Hawser Authors",
		"org.opencontainers.image.source":      "https://github.com/hawser-io/hawser",
		"org.opencontainers.image.url":         "https://github.com/hawser-io/hawser",
	}
}

// layers returns the layers of an architecture as tar files.
func (o options) layers(architecture string) ([][]byte, error) {
	var layers [][]byte
	if o.roots != "" {
		root, err := o.rootFileSystem(strings.ReplaceAll(o.roots, "ARCH", architecture))
		if err != nil {
			return nil, err
		}
		layers = append(layers, root)
	}
	own, err := o.own(strings.ReplaceAll(o.binaries, "ARCH", architecture))
	return append(layers, own), err
}

// own is the layer with the program and the licence.
func (o options) own(binary string) ([]byte, error) {
	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	for _, file := range []struct {
		name, from string
		mode       int64
	}{{o.entrypoint, binary, 0o755}, {"/licenses/LICENSE", o.licence, 0o644}} {
		content, err := os.ReadFile(file.from)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file.from, err)
		}
		header := &tar.Header{Name: strings.TrimPrefix(file.name, "/"), Mode: file.mode, Size: int64(len(content)),
			ModTime: o.created, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if err := writer.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("packing %s: %w", file.name, err)
		}
		if _, err := writer.Write(content); err != nil {
			return nil, fmt.Errorf("packing %s: %w", file.name, err)
		}
	}
	return buffer.Bytes(), writer.Close()
}

// rootFileSystem copies the tar of a root file system without what no program of the image reads.
func (o options) rootFileSystem(file string) ([]byte, error) {
	source, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = source.Close() }()
	var buffer bytes.Buffer
	reader, writer := tar.NewReader(source), tar.NewWriter(&buffer)
	missing := slices.Clone(o.needs)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		header.Name = strings.TrimPrefix(header.Name, "./")
		if dropped(header.Name) {
			continue
		}
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == programName(header.Name) })
		header.ModTime, header.AccessTime, header.ChangeTime = o.created, time.Time{}, time.Time{}
		if err := writer.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("packing %s: %w", header.Name, err)
		}
		if _, err := io.Copy(writer, reader); err != nil {
			return nil, fmt.Errorf("packing %s: %w", header.Name, err)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("%s lacks the programs %s", file, strings.Join(missing, ", "))
	}
	return buffer.Bytes(), writer.Close()
}

// programName is the name of a program in a directory of searchPath, else empty.
func programName(file string) string {
	if slices.Contains(strings.Split(strings.TrimPrefix(searchPath, "PATH="), ":"), "/"+path.Dir(file)) {
		return path.Base(file)
	}
	return ""
}

// without are beginnings of names that the image does without: device nodes, which the runtime makes; caches and logs;
// what differs with the machine that made the root file system; Python, which one program of xfsprogs uses that the
// agent does not run, and the packages that it comes from.
var without = []string{
	"dev/", "var/cache/", "var/log/",
	"etc/hostname", "etc/resolv.conf", "etc/apt/", "var/lib/apt/",
	"usr/lib/python3", "usr/bin/py", "etc/python3", "var/lib/dpkg/status.d/python3", "var/lib/dpkg/status.d/libpython3",
}

// dropped reports whether the image does without the file. Of the documentation it keeps the licences.
func dropped(name string) bool {
	for _, prefix := range without {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return name == "" || strings.HasPrefix(name, "usr/share/") && path.Base(name) != "copyright"
}
