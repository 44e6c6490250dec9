/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package boot

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// file of an initramfs. Directories and programs have the same mode.
type file struct {
	name    string
	content []byte
}

const (
	modeDirectory = 0o040755
	modeFile      = 0o100755
)

// initramfs writes the files, in this order, as the kernel reads them: a cpio archive with headers of the format newc.
func initramfs(w io.Writer, files []file) error {
	archive := &bytes.Buffer{}
	for number, f := range append(files, file{name: "TRAILER!!!", content: []byte{}}) {
		mode := modeFile
		if f.content == nil {
			mode = modeDirectory
		}
		fmt.Fprintf(archive, "070701%08X%08X%024X%08X%08X%032X%08X%08X", number+1, mode, 1, 0, len(f.content), 0,
			len(f.name)+1, 0)
		archive.WriteString(f.name + "\x00")
		pad(archive)
		archive.Write(f.content)
		pad(archive)
	}
	_, err := archive.WriteTo(w)
	return err
}

func pad(archive *bytes.Buffer) {
	archive.WriteString(strings.Repeat("\x00", -archive.Len()&3))
}
