/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine_test

import (
	"strings"
	"testing"
)

// stopFormat has the next mkfs of that filesystem stop before it continues after so many writes.
func (n *node) stopFormat(fsType string, writes int) {
	n.t.Helper()
	n.must(`cat >/usr/local/sbin/mkfs.%[1]s <<'END'
#!/bin/sh
if [ -e /run/stop-format ]; then
	exec strace -f -qq -o /run/format.trace -e trace=pwrite64 \
		-e inject=pwrite64:signal=SIGSTOP:when=$(cat /run/stop-format) /usr/sbin/mkfs.%[1]s "$@"
fi
exec /usr/sbin/mkfs.%[1]s "$@"
END
		chmod +x /usr/local/sbin/mkfs.%[1]s; sync; echo %[2]d >/run/stop-format`, fsType, writes)
}

// cutFormat cuts the power of the node after so many writes of mkfs to a new volume, with what it wrote on the disk.
func (n *node) cutFormat(class, fsType string, writes int) *volume {
	n.t.Helper()
	n.stopFormat(fsType, writes)
	v := n.newVolume(class, "400Mi")
	n.must("until grep -q 'stopped by SIGSTOP' /run/format.trace; do sleep 0.1; done")
	// A sync without a file does not have the disk flush what it caches, unless it is mounted.
	written := n.must("sync %s; sha256sum <%[1]s", device(n.t, n.Machine, v.handle))
	n.ok(n.CutPower())
	n.ok(n.PowerOn(n.t.Context()))
	if got := n.must("sha256sum <%s", device(n.t, n.Machine, v.handle)); got != written {
		n.t.Fatalf("content of the disk after the cut: %s, want what mkfs wrote before: %s", got, written)
	}
	return v
}

// The disk driver formats again, as each driver over mount-utils does: the disk had no content before the first mkfs.
func TestAFormatThatIsCutIsRepeatedWhereBlkidFindsNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		class, fsType string
		writes        int
	}{
		"ext4": {diskExt4, "ext4", 20},
		"xfs":  {diskXFS, "xfs", 2},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			v := n.cutFormat(test.class, test.fsType, test.writes)
			if got := n.must("blkid -p %s; echo $?", device(t, n.Machine, v.handle)); got != "2" {
				t.Errorf("blkid on the disk after the cut: %s, want that it finds nothing", got)
			}
			n.startPrograms()
			n.must("echo new >%s/file && sync -f %[1]s/file", v.mounted())
			v.release()
		})
	}
}

// mkfs.xfs writes the superblock early, so that blkid takes what it has begun for a filesystem. mount-utils formats
// that no more. mkfs.ext4 writes it last.
func TestAFormatThatIsCutAfterItsSuperblockIsNamedAndLeftAlone(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	v := n.cutFormat(diskXFS, "xfs", 40)
	disk := device(t, n.Machine, v.handle)
	sum := "sha256sum " + disk
	before := n.must("%s", sum)
	n.startPrograms()
	v.notStaged("Structure needs cleaning")
	v.explains(disk, "blkid -p", "wipefs", "delete the claim")
	for command, wanted := range map[string]string{"blkid -p": `TYPE="xfs"`, "wipefs": "xfs"} {
		if got := n.must("%s %s", command, disk); !strings.Contains(got, wanted) {
			t.Errorf("%s of the disk after the cut: %s, want %s", command, got, wanted)
		}
	}
	if after := n.must("%s", sum); after != before {
		t.Errorf("content of the disk %s after tries to mount it, want %s", after, before)
	}
	v.release()
	another := n.newVolume(diskXFS, "400Mi")
	another.fill()
	another.release()
}
