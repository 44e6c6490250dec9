/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine_test

import (
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hawser-io/hawser/test/machine"
)

func TestAMachineBootsDebiansKernelAndRunsCommands(t *testing.T) {
	m := start(t, options("boots"))
	got := must(t, m, "uname -r; cat /sys/class/dmi/id/product_uuid /etc/machine-id")
	if !strings.HasPrefix(got, "6.1.") ||
		!strings.Contains(got, m.UUID) || !strings.Contains(got, strings.ReplaceAll(m.UUID, "-", "")) {
		t.Errorf("machine has %q, want Debian's kernel and its identity", got)
	}
	answer, err := m.Try(t.Context(), time.Second, "echo began; sleep 600")
	if err != nil || !answer.TimedOut || answer.Output != "began\n" {
		t.Errorf("command that does not end: %+v, error %v, want that it is killed", answer, err)
	}
}

func TestARestoredMachineHasThePresentTime(t *testing.T) {
	m := restored(t)
	seconds, err := strconv.ParseFloat(must(t, m, "date +%%s"), 64)
	if err != nil || math.Abs(seconds-float64(time.Now().Unix())) > 5 {
		t.Errorf("the machine's clock is at %f, error %v, want the present time", seconds, err)
	}
	must(t, m, "echo kept >/root/file; sync")
}

// A kernel that boots on a busy host misjudges its clock's frequency, unless it is given.
func TestAMachinesClockRunsAsFastAsTheHosts(t *testing.T) {
	m := restored(t)
	uptime := func() (inside float64, outside time.Time) {
		inside, err := strconv.ParseFloat(must(t, m, "cut -d ' ' -f 1 /proc/uptime"), 64)
		if err != nil {
			t.Fatal(err)
		}
		return inside, time.Now()
	}
	inside, outside := uptime()
	must(t, m, "sleep 10")
	insideAfter, outsideAfter := uptime()
	ratio := (insideAfter - inside) / outsideAfter.Sub(outside).Seconds()
	t.Logf("the machine's clock runs at %.2f times the host's speed", ratio)
	if ratio < 0.8 || ratio > 1.2 {
		t.Errorf("the machine's clock runs at %.2f times the host's speed, want 1", ratio)
	}
}

func TestAResetIsAnotherBootOfTheSameDisk(t *testing.T) {
	m := restored(t)
	must(t, m, "echo kept >/root/kept; sync; echo lost >/root/lost")
	before := m.BootID
	if err := m.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := must(t, m, "cat /proc/sys/kernel/random/boot_id"); got == before || got != m.BootID {
		t.Errorf("boot ID %s after the reset, want another than %s, and %s", got, before, m.BootID)
	}
	if got := must(t, m, "cat /root/kept; test -e /root/lost && cat /root/lost; true"); got != "kept" {
		t.Errorf("files after the reset: %q, want what was synced and nothing else", got)
	}
}

func TestAPowerCutLosesExactlyWhatWasNotFlushed(t *testing.T) {
	m := restored(t)
	disk := machine.Disk{ID: "scratch", File: filepath.Join(m.Dir, "scratch.qcow2")}
	if err := machine.CreateDisk(t.Context(), disk.File, 64<<20); err != nil {
		t.Fatal(err)
	}
	if err := m.Plug(t.Context(), disk); err != nil {
		t.Fatal(err)
	}
	// Both writes reach QEMU. Only after the first one the disk is asked to keep it.
	must(t, m, `udevadm settle; d=%s
		yes flushed | dd of=$d bs=1M count=1 iflag=fullblock oflag=direct conv=fsync status=none
		yes written | dd of=$d bs=1M count=1 seek=8 iflag=fullblock oflag=direct status=none
		dd if=$d bs=1M skip=8 count=1 iflag=direct status=none | head -c 7`, device(t, m, disk.ID))
	if err := m.CutPower(); err != nil {
		t.Fatal(err)
	}
	if err := m.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := must(t, m, `d=%s; dd if=$d bs=7 count=1 status=none; dd if=$d bs=1M skip=8 count=1 status=none | tr -d '\0' |
		head -c 7`, device(t, m, disk.ID))
	if got != "flushed" {
		t.Errorf("the disk has %q after the power cut, want the flushed write and not the other one", got)
	}
}

func TestADiskIsPluggedAndUnpluggedUnderAMount(t *testing.T) {
	m := restored(t)
	disk := machine.Disk{ID: "data", File: filepath.Join(m.Dir, "data.qcow2")}
	if err := machine.CreateDisk(t.Context(), disk.File, 64<<20); err != nil {
		t.Fatal(err)
	}
	if err := m.Plug(t.Context(), disk); err != nil {
		t.Fatal(err)
	}
	d := device(t, m, disk.ID)
	must(t, m, "mkfs.ext4 -q %s && mkdir -p /mnt/data && mount %[1]s /mnt/data && echo hi >/mnt/data/file && sync", d)
	if err := m.Unplug(t.Context(), disk.ID); err != nil {
		t.Fatal(err)
	}
	if got := must(t, m, "test ! -e %s; stat -c %%n /mnt/data; grep -c ' /mnt/data ext4 rw' /proc/mounts", d); got !=
		"/mnt/data\n1" {
		t.Errorf("after the disk is gone: %q, want a mount that answers and seems writable", got)
	}
	answer, err := m.Try(t.Context(), 20*time.Second, "echo more >/mnt/data/more && sync -f /mnt/data/more")
	if err != nil || answer.Exit == 0 || answer.TimedOut {
		t.Errorf("a write to the disk that is gone: %+v, error %v, want an error", answer, err)
	}
	must(t, m, "umount /mnt/data")
}

// device waits for the disk of that serial number, and returns its node.
func device(t *testing.T, m *machine.Machine, serial string) string {
	t.Helper()
	return must(t, m, `for i in $(seq 200); do
		for f in /sys/block/sd*/device/vpd_pg80; do
			grep -q %s $f 2>/dev/null && echo /dev/$(echo $f | cut -d/ -f4) && exit 0
		done; sleep 0.05; done; exit 1`, serial)
}
