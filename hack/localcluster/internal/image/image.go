/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package image packs one static program as a container image. Images cannot be pulled here, and a static program needs
// no other file.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// Pack writes a docker archive to the file: an image of that name that runs the program. Its arguments are those of the
// container, with command as the default.
func Pack(file, name, program string, command ...string) error {
	content, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("reading the program: %w", err)
	}
	base := filepath.Base(program)
	layer, err := archive(entry{base, 0o755, content})
	if err != nil {
		return err
	}
	type object map[string]any
	config, err := json.Marshal(object{
		"architecture": runtime.GOARCH,
		"os":           runtime.GOOS,
		"config":       object{"Entrypoint": []string{"/" + base}, "Cmd": command},
		"rootfs":       object{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return fmt.Errorf("encoding the image's configuration: %w", err)
	}
	manifest, err := json.Marshal([]object{{
		"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return fmt.Errorf("encoding the image's manifest: %w", err)
	}
	whole, err := archive(entry{"manifest.json", 0o644, manifest}, entry{"config.json", 0o644, config},
		entry{"layer.tar", 0o644, layer})
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, whole, 0o644); err != nil {
		return fmt.Errorf("writing the image: %w", err)
	}
	return nil
}

type entry struct {
	name    string
	mode    int64
	content []byte
}

func archive(entries ...entry) ([]byte, error) {
	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	var problems []error
	for _, e := range entries {
		problems = append(problems, writer.WriteHeader(&tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.content))}))
		_, err := writer.Write(e.content)
		problems = append(problems, err)
	}
	if err := errors.Join(append(problems, writer.Close())...); err != nil {
		return nil, fmt.Errorf("packing: %w", err)
	}
	return buffer.Bytes(), nil
}
