/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package boot makes what virtual machines boot: kernel, initramfs and root file system.
package boot

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/system"
)

// Files that a machine boots.
type Files struct {
	Kernel, Initramfs string
	// Root is the root file system, which all machines share. Each writes to a file of its own.
	Root string
	// Arguments of the kernel.
	Arguments string
}

// Prepare makes the files, or finds those that an earlier run has made. It needs root.
func Prepare(ctx context.Context, out io.Writer) (Files, error) { return prepare(ctx, out, "machine") }

// PrepareSELinux is Prepare for machines with SELinux, which enforces Debian's policy.
func PrepareSELinux(ctx context.Context, out io.Writer) (Files, error) {
	files, err := prepare(ctx, out, "machine-selinux", "selinux")
	files.Arguments = "security=selinux selinux=1 enforcing=1"
	return files, err
}

func prepare(ctx context.Context, out io.Writer, name string, variant ...string) (Files, error) {
	dir := filepath.Join(apiserver.Root(), ".cache", name)
	script := exec.CommandContext(ctx, filepath.Join(apiserver.Root(), "hack", "machine-image.sh"),
		append([]string{dir}, variant...)...)
	script.Stdout, script.Stderr = out, out
	if err := script.Run(); err != nil {
		return Files{}, fmt.Errorf("making the image: %w", err)
	}
	files := Files{Kernel: filepath.Join(dir, "vmlinux"), Initramfs: filepath.Join(dir, "initramfs"),
		Root: filepath.Join(dir, "root.img")}
	if err := writeInitramfs(ctx, files.Initramfs, filepath.Join(dir, "modules")); err != nil {
		return Files{}, err
	}
	return files, writeKernel(files.Kernel, filepath.Join(dir, "vmlinuz"))
}

// writeKernel does nothing if the kernel is newer than its compressed form.
func writeKernel(path, compressed string) error {
	from, err := os.Stat(compressed)
	if err != nil {
		return fmt.Errorf("finding the kernel: %w", err)
	}
	if to, err := os.Stat(path); err == nil && to.ModTime().After(from.ModTime()) {
		return nil
	}
	image, err := os.ReadFile(compressed)
	if err != nil {
		return fmt.Errorf("reading the kernel: %w", err)
	}
	kernel, err := Vmlinux(image)
	if err != nil {
		return fmt.Errorf("unpacking %s: %w", compressed, err)
	}
	return replace(path, func(w io.Writer) error {
		_, err := w.Write(kernel)
		return err
	})
}

func writeInitramfs(ctx context.Context, path, modules string) error {
	program, err := system.BuildStatic(ctx, "./test/machine/init")
	if err != nil {
		return err
	}
	begin, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("reading the first program: %w", err)
	}
	files := []file{{name: "proc"}, {name: "sys"}, {name: "dev"}, {name: "root"}, {name: "modules"}, {"init", begin}}
	entries, err := os.ReadDir(modules)
	if err != nil {
		return fmt.Errorf("listing the modules: %w", err)
	}
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(modules, entry.Name()))
		if err != nil {
			return fmt.Errorf("reading a module: %w", err)
		}
		files = append(files, file{filepath.Join("modules", entry.Name()), content})
	}
	return replace(path, func(w io.Writer) error { return initramfs(w, files) })
}

// replace writes a file at once: another suite may be booting from the earlier one.
func replace(path string, write func(io.Writer) error) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path))
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := write(file); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return os.Rename(file.Name(), path)
}
