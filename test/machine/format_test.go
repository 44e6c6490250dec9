/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine_test

import "testing"

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

// The disk driver formats again, as each driver over mount-utils does: the disk had no content before the first mkfs.
func TestAFormatThatIsCutIsRepeatedWhereBlkidFindsNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		class, fsType string
		writes        int
	}{
		"ext4": {diskExt4, "ext4", 20},
		"xfs":  {diskXFS, "xfs", 12},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.stopFormat(test.fsType, test.writes)
			v := n.newVolume(test.class, "400Mi")
			n.must("until grep -q 'stopped by SIGSTOP' /run/format.trace; do sleep 0.1; done; sync")
			n.ok(n.CutPower())
			n.ok(n.PowerOn(t.Context()))
			if got := n.must("blkid -p %s; echo $?", device(t, n.Machine, v.handle)); got != "2" {
				t.Errorf("blkid on the disk after the cut: %s, want that it finds nothing", got)
			}
			n.startPrograms()
			n.must("echo new >%s/file && sync -f %[1]s/file", v.mounted())
			v.release()
		})
	}
}
