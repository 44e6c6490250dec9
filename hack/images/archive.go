/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// writeArchive writes an OCI archive with the image under its name. `ctr images import` and `podman load` read it.
func writeArchive(file string, index v1.ImageIndex, reference, tag string) error {
	dir, err := os.MkdirTemp(filepath.Dir(file), ".layout-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	whole, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("beginning the layout: %w", err)
	}
	if err := whole.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          reference,
		"org.opencontainers.image.ref.name": tag,
	})); err != nil {
		return fmt.Errorf("writing the layout: %w", err)
	}
	// The file gets its name only when it is whole.
	if err := archiveDirectory(file+".new", dir); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	return os.Rename(file+".new", file)
}

func archiveDirectory(file, dir string) error {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	writer := tar.NewWriter(out)
	// Files come in the order of their names.
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		return addFile(writer, dir, path)
	})
	for _, finish := range []func() error{writer.Close, out.Close} {
		if failed := finish(); err == nil {
			err = failed
		}
	}
	return err
}

func addFile(writer *tar.Writer, dir, path string) error {
	name, err := filepath.Rel(dir, path)
	if err != nil {
		return err
	}
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := writer.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(writer, in)
	return err
}
