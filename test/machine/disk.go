/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"

	"github.com/hawser-io/hawser/test/machine/qmp"
)

// A machine has two SCSI controllers: one for disks as such, and one for those that are like a cloud's.
const scsiBus, cloudBus = "scsi0", "scsi1"

// Disk is a SCSI disk.
type Disk struct {
	// ID is also its serial number, which has at most 36 characters.
	ID string
	// File of its content, in the format qcow2.
	File string
	// Azure makes it a disk like those of Azure's virtual machines, which differ by their logical unit numbers.
	Azure bool
	LUN   int
}

// CreateDisk makes the file of an empty disk.
func CreateDisk(ctx context.Context, file string, bytes int64) error {
	return qemuImg(ctx, "create", "-q", "-f", "qcow2", file, fmt.Sprint(bytes))
}

// DiskSize is how many bytes the disk of a file has. The header of the format qcow2 names them.
func DiskSize(file string) (int64, error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, fmt.Errorf("reading the size of a disk: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	size := make([]byte, 8)
	if _, err := f.ReadAt(size, 24); err != nil {
		return 0, fmt.Errorf("reading the size of a disk: %w", err)
	}
	return int64(binary.BigEndian.Uint64(size)), nil
}

// createOverlay makes the file of a disk that begins with the content of another.
func createOverlay(ctx context.Context, file, backing, format string) error {
	return qemuImg(ctx, "create", "-q", "-f", "qcow2", "-b", backing, "-F", format, file)
}

// ResizeDisk changes the size of a disk that is not plugged in.
func ResizeDisk(ctx context.Context, file string, bytes int64) error {
	return qemuImg(ctx, "resize", "-q", "-f", "qcow2", file, fmt.Sprint(bytes))
}

func qemuImg(ctx context.Context, args ...string) error {
	if out, err := exec.CommandContext(ctx, "qemu-img", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("running qemu-img %v: %w: %s", args, err, out)
	}
	return nil
}

// Plug plugs a disk in, which the kernel then finds. A disk that is in already stays.
func (m *Machine) Plug(ctx context.Context, disk Disk) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.Contains(m.disks, disk) {
		return nil
	}
	if err := m.plug(ctx, disk); err != nil {
		return err
	}
	m.disks = append(m.disks, disk)
	return nil
}

func (m *Machine) plug(ctx context.Context, disk Disk) error {
	if err := m.qmp.Execute(ctx, "blockdev-add", map[string]any{"driver": "qcow2", "node-name": disk.ID,
		"file": map[string]string{"driver": "file", "filename": disk.File}}, nil); err != nil {
		return err
	}
	device := map[string]any{"driver": "scsi-hd", "bus": scsiBus + ".0", "id": disk.ID, "drive": disk.ID,
		"serial": disk.ID}
	if disk.Azure {
		maps.Copy(device, map[string]any{"bus": cloudBus + ".0", "channel": 0, "scsi-id": 0, "lun": disk.LUN,
			"vendor": "Msft", "product": "Virtual Disk"})
	}
	return m.qmp.Execute(ctx, "device_add", device, nil)
}

// Unplug pulls a disk out, whether or not the machine uses it. One that is not in is no error.
func (m *Machine) Unplug(ctx context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.disks, func(d Disk) bool { return d.ID == id })
	if i < 0 {
		return nil
	}
	if m.On() {
		if err := m.unplug(ctx, id); err != nil {
			return err
		}
	}
	m.disks = slices.Delete(m.disks, i, i+1)
	return nil
}

func (m *Machine) unplug(ctx context.Context, id string) error {
	mark := m.qmp.Mark()
	if err := m.qmp.Execute(ctx, "device_del", map[string]string{"id": id}, nil); err != nil {
		return err
	}
	if err := m.qmp.Await(ctx, mark, func(e qmp.Event) bool {
		var gone struct{ Device string }
		return e.Name == "DEVICE_DELETED" && json.Unmarshal(e.Data, &gone) == nil && gone.Device == id
	}); err != nil {
		return err
	}
	return m.qmp.Execute(ctx, "blockdev-del", map[string]string{"node-name": id}, nil)
}

// Resize changes the size of a disk that is plugged in; it reports whether it is.
func (m *Machine) Resize(ctx context.Context, id string, bytes int64) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.On() || !slices.ContainsFunc(m.disks, func(d Disk) bool { return d.ID == id }) {
		return false, nil
	}
	return true, m.qmp.Execute(ctx, "block_resize", map[string]any{"node-name": id, "size": bytes}, nil)
}

// On reports whether the machine has power.
func (m *Machine) On() bool {
	select {
	case <-m.off:
		return false
	default:
		return true
	}
}
