/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package boot

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// bzImage wraps a kernel as the build of the kernel does.
func bzImage(t *testing.T, kernel string) []byte {
	t.Helper()
	compress := exec.Command("xz", "--stdout")
	compress.Stdin = strings.NewReader(kernel)
	payload, err := compress.Output()
	if err != nil {
		t.Fatal(err)
	}
	payload = binary.LittleEndian.AppendUint32(payload, uint32(len(kernel)))
	const sectors, offset = 3, 100
	image := make([]byte, (sectors+1)*sector+offset)
	image[setupSectors] = sectors
	copy(image[0x202:], "HdrS")
	binary.LittleEndian.PutUint32(image[payloadOffset:], offset)
	binary.LittleEndian.PutUint32(image[payloadLength:], uint32(len(payload)))
	return append(append(image, payload...), "what follows"...)
}

func TestTheKernelOfABzImageIsUnpacked(t *testing.T) {
	const kernel = "\x7fELF and the kernel"
	got, err := Vmlinux(bzImage(t, kernel))
	if err != nil || string(got) != kernel {
		t.Errorf("kernel %q, error %v, want %q", got, err, kernel)
	}
}

func TestWhatIsNoBzImageIsNamed(t *testing.T) {
	whole := bzImage(t, "\x7fELF")
	other := bytes.Clone(whole)
	copy(other[(3+1)*sector+100:], "gzip??")
	for name, image := range map[string][]byte{
		"not a bzImage":              []byte("short"),
		"beyond that of the image":   whole[:len(whole)-30],
		"not compressed with xz":     other,
		"the kernel is no ELF file":  bzImage(t, "script"),
		"not a bzImage ":             make([]byte, 4096),
		"decompressing the kernel: ": append(bytes.Clone(whole[:(3+1)*sector+100+8]), make([]byte, 200)...),
	} {
		if _, err := Vmlinux(image); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(name)) {
			t.Errorf("image that is broken: error %v, want %q", err, name)
		}
	}
}

func TestAnInitramfsIsReadByCpio(t *testing.T) {
	archive := &bytes.Buffer{}
	if err := initramfs(archive, []file{{name: "dev"}, {"init", []byte("program")}, {"empty", []byte{}}}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	unpack := exec.Command("cpio", "--extract", "--quiet", "--format=newc")
	unpack.Dir, unpack.Stdin = dir, archive
	if out, err := unpack.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("cpio: error %v, output %q, want none", err, out)
	}
	content, err := os.ReadFile(filepath.Join(dir, "init"))
	if err != nil || string(content) != "program" {
		t.Errorf("init is %q, error %v, want the program", content, err)
	}
	for name, directory := range map[string]bool{"dev": true, "init": false, "empty": false} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.IsDir() != directory || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, error %v, want a directory: %t, with mode 0755", name, info, err, directory)
		}
	}
}
