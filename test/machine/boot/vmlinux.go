/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package boot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
)

// Offsets in the setup header of a bzImage (Documentation/arch/x86/boot.rst of the kernel).
const (
	setupSectors  = 0x1f1
	payloadOffset = 0x248
	payloadLength = 0x24c
	headerEnd     = 0x250
	sector        = 512
)

// Vmlinux is the kernel that a bzImage contains, as an ELF file. QEMU boots it without the decompressor of the bzImage,
// which takes most of a minute where the processor is emulated.
func Vmlinux(bzImage []byte) ([]byte, error) {
	if len(bzImage) < headerEnd || string(bzImage[0x202:0x206]) != "HdrS" {
		return nil, errors.New("not a bzImage")
	}
	sectors := int(bzImage[setupSectors])
	if sectors == 0 {
		sectors = 4
	}
	begin := (sectors+1)*sector + int(binary.LittleEndian.Uint32(bzImage[payloadOffset:]))
	end := begin + int(binary.LittleEndian.Uint32(bzImage[payloadLength:]))
	if end > len(bzImage) {
		return nil, fmt.Errorf("the kernel's end is %d, beyond that of the image, which has %d bytes", end, len(bzImage))
	}
	payload := bzImage[begin:end]
	if !bytes.HasPrefix(payload, []byte("\xfd7zXZ\x00")) {
		return nil, errors.New("the kernel is not compressed with xz")
	}
	// The size of the kernel follows the stream.
	cmd := exec.Command("xz", "--decompress", "--stdout", "--single-stream")
	cmd.Stdin = bytes.NewReader(payload)
	vmlinux, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("decompressing the kernel: %w", err)
	}
	if !bytes.HasPrefix(vmlinux, []byte("\x7fELF")) {
		return nil, errors.New("the kernel is no ELF file")
	}
	return vmlinux, nil
}
