/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"slices"
	"testing"
)

// boundKubelet is a node whose kubelet's directory is bound from a data disk. A volume is staged, and shows at both
// paths.
const boundKubelet = `22 1 254:0 / / rw shared:1 - ext4 /dev/vda rw
30 22 8:1 / /mnt/data rw shared:2 - ext4 /dev/sda1 rw
31 22 8:1 /kubelet /var/lib/kubelet rw shared:2 - ext4 /dev/sda1 rw
40 31 7:3 / /var/lib/kubelet/plugins/stage rw shared:5 - ext4 /dev/loop3 rw
41 30 7:3 / /mnt/data/kubelet/plugins/stage rw shared:5 - ext4 /dev/loop3 rw
`

func TestOnlyTheKernelsOwnCopyOfAMountIsItsTwin(t *testing.T) {
	const stage, dir = "/var/lib/kubelet/plugins/stage", "/var/lib/kubelet"
	for name, test := range map[string]struct {
		table  string
		others []string
		own    bool
	}{
		"the copy below the other path of the directory": {boundKubelet, nil, true},
		"a pod's bind mount in the same peer group, and its copy": {boundKubelet +
			"50 31 7:3 / /var/lib/kubelet/pods/a/mount rw shared:5 - ext4 /dev/loop3 rw\n" +
			"51 30 7:3 / /mnt/data/kubelet/pods/a/mount rw shared:5 - ext4 /dev/loop3 rw\n",
			[]string{"/var/lib/kubelet/pods/a/mount", "/mnt/data/kubelet/pods/a/mount"}, true},
		"a bind mount of a part of it": {boundKubelet +
			"50 31 7:3 /a /var/lib/kubelet/pods/a/mount rw shared:5 - ext4 /dev/loop3 rw\n",
			[]string{"/var/lib/kubelet/pods/a/mount"}, true},
		"a bind mount outside of both paths": {boundKubelet +
			"50 22 7:3 / /srv rw shared:5 - ext4 /dev/loop3 rw\n", []string{"/srv"}, false},
		"a second mount on top of it, and its copy": {boundKubelet +
			"50 40 7:3 / /var/lib/kubelet/plugins/stage rw shared:5 - ext4 /dev/loop3 rw\n" +
			"51 41 7:3 / /mnt/data/kubelet/plugins/stage rw shared:5 - ext4 /dev/loop3 rw\n",
			[]string{stage, "/mnt/data/kubelet/plugins/stage"}, true},
		"a mount on the same directory that shares no changes": {`22 1 254:0 / / rw shared:1 - ext4 /dev/vda rw
30 22 8:1 / /mnt/data rw shared:2 - ext4 /dev/sda1 rw
31 22 8:1 /kubelet /var/lib/kubelet rw shared:2 - ext4 /dev/sda1 rw
40 31 7:3 / /var/lib/kubelet/plugins/stage rw shared:5 - ext4 /dev/loop3 rw
41 30 7:3 / /mnt/data/kubelet/plugins/stage rw - ext4 /dev/loop3 rw
`, []string{"/mnt/data/kubelet/plugins/stage"}, false},
		"a mount on the same directory whose paths share no changes": {`22 1 254:0 / / rw shared:1 - ext4 /dev/vda rw
30 22 8:1 / /mnt/data rw - ext4 /dev/sda1 rw
31 22 8:1 /kubelet /var/lib/kubelet rw - ext4 /dev/sda1 rw
40 31 7:3 / /var/lib/kubelet/plugins/stage rw shared:5 - ext4 /dev/loop3 rw
41 30 7:3 / /mnt/data/kubelet/plugins/stage rw shared:5 - ext4 /dev/loop3 rw
`, []string{"/mnt/data/kubelet/plugins/stage"}, false},
		"a mount at the same name of another directory": {boundKubelet +
			"32 22 8:1 /other /srv rw shared:2 - ext4 /dev/sda1 rw\n" +
			"50 32 7:3 / /srv/plugins/stage rw shared:5 - ext4 /dev/loop3 rw\n", []string{"/srv/plugins/stage"}, false},
		"a copy that only receives changes": {`22 1 254:0 / / rw shared:1 - ext4 /dev/vda rw
30 22 8:1 / /mnt/data rw master:2 - ext4 /dev/sda1 rw
31 22 8:1 /kubelet /var/lib/kubelet rw shared:2 - ext4 /dev/sda1 rw
40 31 7:3 / /var/lib/kubelet/plugins/stage rw shared:5 - ext4 /dev/loop3 rw
41 30 7:3 / /mnt/data/kubelet/plugins/stage rw master:5 - ext4 /dev/loop3 rw
`, []string{"/mnt/data/kubelet/plugins/stage"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			table := parse(t, test.table)
			e := table.All(stage)[0]
			if got := paths(table.Shares(e)); !slices.Equal(got, test.others) {
				t.Errorf("other mounts of what is staged: %q, want %q", got, test.others)
			}
			if got := table.Own(e, dir); got != test.own {
				t.Errorf("the filesystem belongs to the volume alone: %t, want %t", got, test.own)
			}
		})
	}
}

func TestATwinIsFoundWhereTheDirectoryIsASymbolicLinkToTheBoundOne(t *testing.T) {
	table := parseNamed(t, `22 1 254:0 / / rw shared:1 - ext4 /dev/vda rw
30 22 8:1 / /mnt/data rw shared:2 - ext4 /dev/sda1 rw
31 22 8:1 /kubelet /srv/kubelet rw shared:2 - ext4 /dev/sda1 rw
40 31 7:3 / /srv/kubelet/stage rw shared:5 - ext4 /dev/loop3 rw
41 30 7:3 / /mnt/data/kubelet/stage rw shared:5 - ext4 /dev/loop3 rw
`, Links{{name: "/var/lib/kubelet", resolved: "/srv/kubelet"}})
	e, ok := table.At("/var/lib/kubelet/stage")
	if got := table.Shares(e); !ok || len(got) > 0 {
		t.Errorf("other mounts of the stage: %q, want none", paths(got))
	}
}

func TestWhatIsPlacedGoesWithItsTwin(t *testing.T) {
	table := parse(t, boundKubelet+"50 22 7:3 / /srv rw shared:5 - ext4 /dev/loop3 rw\n")
	got := table.Without(table.OfDevice(7, 3), func(e Entry) bool { return e.Path == "/var/lib/kubelet/plugins/stage" })
	if !slices.Equal(paths(got), []string{"/srv"}) {
		t.Errorf("mounts without the stage: %q, want no copy of it, and the bind mount", paths(got))
	}
}
