/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/mount"
)

const driverName = "csi.example.com"

func volumeName(handle string) string { return record.UniqueName(driverName, handle) }

// host is a kubelet's directory and a mount table.
type host struct {
	t       *testing.T
	dir     string
	entries []mount.Entry
	known   []Known
	before  []Source
	watched []string
}

func newHost(t *testing.T) *host { return &host{t: t, dir: t.TempDir()} }

func (h *host) path(parts ...string) string {
	return filepath.Join(append([]string{h.dir}, parts...)...)
}

func (h *host) stage(handle string, parts ...string) string {
	return h.path(append([]string{"plugins/kubernetes.io/csi", driverName, HashOf(handle)}, parts...)...)
}

func (h *host) pod(pod, volume string, parts ...string) string {
	return h.path(append([]string{"pods", pod, "volumes/kubernetes.io~csi", volume}, parts...)...)
}

func (h *host) device(parts ...string) string {
	return h.path(append([]string{"plugins/kubernetes.io/csi/volumeDevices"}, parts...)...)
}

func (h *host) write(path, content string) {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) record(dir, handle string) {
	h.t.Helper()
	h.write(filepath.Join(dir, recordName), fmt.Sprintf(`{"driverName":%q,"volumeHandle":%q,"specVolID":%q}`,
		driverName, handle, "pv-"+handle))
}

// mount mounts the whole of the device 7:minor.
func (h *host) mount(path string, minor int, change ...func(*mount.Entry)) {
	e := mount.Entry{ID: len(h.entries) + 1, Path: path, Major: 7, Minor: minor, Root: "/", FSType: "ext4",
		Source: fmt.Sprintf("/dev/loop%d", minor)}
	for _, f := range change {
		f(&e)
	}
	h.entries = append(h.entries, e)
}

// knows is a volume that the controller lists.
func (h *host) knows(handle string) {
	h.known = append(h.known, Known{Name: volumeName(handle), Driver: driverName, Handle: handle,
		PersistentVolumes: []string{"pv-" + handle}, Attached: true})
}

// owns is a volume that the agent has a record of.
func (h *host) owns(handle string) {
	h.known = append(h.known, Known{Name: volumeName(handle), Driver: driverName, Handle: handle,
		PersistentVolumes: []string{"pv-" + handle}, Own: true})
}

func (h *host) look() (map[string]*Use, []Sign) {
	signs := FindSigns(h.dir, mount.NewTable(h.entries), h.before, func(dir string) error {
		h.watched = append(h.watched, dir)
		return nil
	})
	return Attribute(signs, h.known)
}

func TestSignsOfTheKubeletsUse(t *testing.T) {
	for _, test := range []struct {
		name string
		make func(*host)
		// used are the handles of the volumes in use.
		used string
		// strange: something belongs to no volume that is known.
		strange bool
	}{
		{"nothing where there is no kubelet", func(h *host) { h.dir = filepath.Join(h.dir, "absent") }, "", false},
		{"a record of a stage names its volume, entry or none", func(h *host) { h.record(h.stage("a"), "a") }, "a",
			false},
		{"a handle may hold anything", func(h *host) { h.record(h.stage("a^b/c"), "a^b/c") }, "a^b/c", false},
		{"a directory without a record is none", func(h *host) { h.write(h.stage("a", "globalmount", "x"), "") }, "",
			false},
		{"a pod's record", func(h *host) { h.record(h.pod("p", "pv-a"), "a") }, "a", false},
		{"an inline volume belongs to its pod", func(h *host) {
			h.write(h.pod("p", "pv-a", recordName),
				`{"driverName":"d","volumeHandle":"csi-1","volumeLifecycleMode":"Ephemeral"}`)
			h.mount(h.pod("p", "pv-a", "mount"), 1)
			h.knows("a")
		}, "", false},
		{"a block volume's record", func(h *host) { h.record(h.device("pv-a", "data"), "a") }, "a", false},
		{"a stage of an earlier kubelet", func(h *host) { h.record(h.path("plugins/kubernetes.io/csi/pv/pv-a"), "a") },
			"a", false},
		{"a stage without a record is told by the hash",
			func(h *host) { h.mount(h.stage("a", "globalmount"), 1); h.knows("a"); h.knows("b") }, "a", false},
		{"the agent's own stage is none", func(h *host) {
			h.mount(h.stage("a", "globalmount"),
				1)
			h.knows("a")
			h.owns("a")
		}, "", false},
		{"but with the kubelet's record it is", func(h *host) {
			h.mount(h.stage("a", "globalmount"), 1)
			h.record(h.stage("a"), "a")
			h.owns("a")
		}, "a", false},
		{"or with a pod's mount", func(h *host) {
			h.mount(h.stage("a", "globalmount"), 1)
			h.mount(h.pod("p", "pv-a", "mount"), 1)
			h.owns("a")
		}, "a", false},
		{"the agent's reference to a device is none",
			func(h *host) { h.mount(h.device("pv-a", "dev", "intent"), 1); h.owns("a") }, "", false},
		{"a pod's mount of a device is", func(h *host) { h.mount(h.device("publish", "pv-a", "p"), 1); h.owns("a") },
			"a", false},
		{"a link to a device is", func(h *host) {
			h.write(h.path("pods/p/volumeDevices/kubernetes.io~csi/pv-a"), "")
			h.knows("a")
		}, "a", false},
		{"an unreadable record of a stage is told by the hash",
			func(h *host) { h.write(h.stage("a", recordName), ""); h.knows("a"); h.knows("b") }, "a", false},
		{"and belongs to none that is known otherwise",
			func(h *host) { h.write(h.stage("x", recordName), ""); h.knows("a") }, "", true},
		{"an unreadable record of a pod is told by the persistent volume", func(h *host) {
			h.write(h.pod("p", "pv-a", recordName), "{}")
			h.knows("a")
			h.knows("b")
		}, "a", false},
		{"or by the filesystem", func(h *host) {
			h.write(h.pod("p", "other-name", recordName), "{}")
			h.mount(h.pod("p", "other-name", "mount"), 1)
			h.mount(h.stage("a", "globalmount"), 1)
			h.knows("a")
			h.knows("b")
		}, "a", false},
		{"and may belong to any that is attached otherwise", func(h *host) {
			h.write(h.pod("p", "other-name", recordName), "{}")
			h.knows("a")
			h.knows("b")
			h.owns("c")
		}, "a b", true},
		{"a mount of a pod that nothing explains too",
			func(h *host) { h.mount(h.pod("p", "x", "mount"), 1); h.knows("a") }, "a", true},
		{"a record that speaks of another volume counts for both",
			func(h *host) { h.record(h.stage("a"), "b"); h.knows("a") }, "a b", false},
		{"a sub path of the filesystem", func(h *host) {
			h.mount(h.path("pods/p/volume-subpaths/anything/container/0"), 1, func(e *mount.Entry) { e.Root = "/part" })
			h.known = append(h.known, Known{Name: volumeName("a"), Driver: driverName, Handle: "a",
				Sources: []Source{{7, 1, "/"}}})
		}, "a", false},
		{"a sub path of something else", func(h *host) {
			h.mount(h.path("pods/p/volume-subpaths/pv-a/container/0"), 2)
			h.knows("a")
		}, "", false},
		{"a mount elsewhere of a filesystem that was in use", func(h *host) {
			h.mount("/mnt", 1)
			h.before = []Source{{7, 1, "/"}}
			h.known = append(h.known, Known{Name: volumeName("a"), Driver: driverName, Handle: "a", Sources: h.before})
		}, "a", false},
		{"not when the device is another volume's by now", func(h *host) {
			h.mount("/mnt", 1)
			h.mount(h.stage("b", "globalmount"), 1)
			h.record(h.stage("b"), "b")
			h.before = []Source{{7, 1, "/"}}
			h.known = append(h.known, Known{Name: volumeName("a"), Driver: driverName, Handle: "a", Sources: h.before})
		}, "b", false},
		{"a directory that cannot be read may hold a record of any", func(h *host) {
			h.write(h.path("pods"), "")
			if err := os.Remove(h.path("pods")); err != nil {
				h.t.Fatal(err)
			}
			if err := os.Symlink("pods", h.path("pods")); err != nil {
				h.t.Fatal(err)
			}
			h.knows("a")
		}, "a", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHost(t)
			test.make(h)
			uses, rest := h.look()
			var used []string
			for name := range uses {
				used = append(used, strings.TrimPrefix(name, record.UniqueName(driverName, "")))
			}
			slices.Sort(used)
			if got := strings.Join(used, " "); got != test.used {
				t.Errorf("in use: %q, want %q", got, test.used)
			}
			if (len(rest) > 0) != test.strange {
				t.Errorf("signs of no known volume: %+v, want some: %t", rest, test.strange)
			}
		})
	}
}

func TestWhatAUseTells(t *testing.T) {
	h := newHost(t)
	h.record(h.stage("a"), "a")
	h.mount(h.stage("a", "globalmount"), 3)
	h.record(h.pod("p", "pv-a"), "a")
	h.mount(h.pod("p", "pv-a", "mount"), 3)
	uses, _ := h.look()
	u := uses[volumeName("a")]
	if u.StagedPath != h.stage("a", "globalmount") || u.DevicePath != "/dev/loop3" || !u.Published || u.Block ||
		len(u.Mounts) != 2 {
		t.Errorf("use of volume a: %+v, want it staged and published from /dev/loop3 with two mounts", u)
	}
	if !slices.Contains(h.watched, h.stage("a")) || !slices.Contains(h.watched, h.pod("p", "pv-a")) ||
		len(h.watched) != 2 {
		t.Errorf("watched directories: %v, want those of the stage and of the pod's record", h.watched)
	}
}

func TestARecordThatIsWrittenAgainIsTheSameAndOneMadeAnewIsNot(t *testing.T) {
	h := newHost(t)
	life := func() []string {
		uses, _ := h.look()
		return uses[volumeName("a")].Life
	}
	h.record(h.stage("a"), "a")
	first := life()
	h.record(h.stage("a"), "a") // truncated and written, as a restarted kubelet does
	if again := life(); !slices.Equal(first, again) {
		t.Errorf("life of volume a: %v, then %v, want the same", first, again)
	}
	if err := os.Remove(h.stage("a", recordName)); err != nil {
		t.Fatal(err)
	}
	h.record(h.stage("a"), "a")
	if anew := life(); slices.Equal(first, anew) {
		t.Errorf("life of volume a after another record: %v, want another than %v", anew, first)
	}
}

func TestARecordThatIsNoFileBlocksNothing(t *testing.T) {
	h := newHost(t)
	if err := os.MkdirAll(h.stage("a", recordName), 0o700); err != nil {
		t.Fatal(err)
	}
	h.knows("a")
	if uses, _ := h.look(); uses[volumeName("a")] == nil {
		t.Error("use of volume a with a directory in its record's place: none, want one")
	}
}

func TestWhatChangesBeforeADirectoryIsWatchedIsSeen(t *testing.T) {
	h := newHost(t)
	dir, links := h.pod("p", "pv-a"), h.path("pods/p/volumeDevices/kubernetes.io~csi")
	h.record(dir, "a")
	h.write(filepath.Join(links, "pv-c"), "")
	signs := FindSigns(h.dir, mount.NewTable(nil), nil, func(watched string) error {
		if watched == dir {
			h.record(dir, "b")
		} else {
			h.write(filepath.Join(links, "pv-d"), "")
		}
		return nil
	})
	var found []string
	for _, s := range signs {
		found = append(found, s.Handle+s.PersistentVolume)
	}
	if want := []string{"bpv-a", "pv-c", "pv-d"}; !slices.Equal(found, want) {
		t.Errorf("signs in directories that change until they are watched: %q, want %q", found, want)
	}
}
