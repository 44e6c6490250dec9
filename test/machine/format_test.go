/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/system"
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

func TestAFormatThatIsCutEndsWithAVolumeOrAnErrorThatNamesIt(t *testing.T) {
	for name, test := range map[string]struct {
		class, fsType string
		writes        int
		// failure is what the condition names, where the volume does not become Ready.
		failure string
	}{
		"ext4, at its second write": {class: diskExt4, fsType: "ext4", writes: 2},
		"ext4, late":                {class: diskExt4, fsType: "ext4", writes: 20},
		"xfs, at its second write":  {class: diskXFS, fsType: "xfs", writes: 2},
		"xfs, late":                 {class: diskXFS, fsType: "xfs", writes: 12, failure: "mount"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.stopFormat(test.fsType, test.writes)
			v := n.newVolume(test.class, "400Mi")
			n.must("until grep -q 'stopped by SIGSTOP' /run/format.trace; do sleep 0.1; done; sync")
			t.Logf("writes until then: %s", n.must("grep -c pwrite64 /run/format.trace"))
			n.ok(n.CutPower())
			n.ok(n.PowerOn(t.Context()))
			d := device(t, n.Machine, v.handle)
			t.Logf("after the cut: %s", n.must("blkid -p %s 2>&1; echo blkid: $?; wipefs %[1]s", d))
			n.startPrograms()
			if test.failure == "" {
				n.must("echo new >%s/file && sync -f %[1]s/file", v.ready())
				v.release()
				return
			}
			intent := v.await(func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
				c := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionStaged)
				return system.Ready(i) || c != nil && strings.Contains(c.Message, test.failure)
			})
			for _, c := range intent.Status.Conditions {
				t.Logf("%s %s %s: %s", c.Type, c.Status, c.Reason, c.Message)
			}
			v.release()
		})
	}
}
