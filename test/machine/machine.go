/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package machine runs nodes that can fail: virtual machines with a kernel, disks and power of their own, under QEMU's
// emulation. `make test-machines` runs its tests, which need QEMU and root. Everything else compiles and is tested
// without it:
//
//	boot      kernel, initramfs and root file system
//	init      the first process of a machine
//	command   scripts that run inside, from outside
//	qmp       QEMU's protocol
//	disk      a CSI driver over the machine's SCSI disks, which can be pulled out
package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hawser-io/hawser/test/machine/boot"
	"github.com/hawser-io/hawser/test/machine/command"
	"github.com/hawser-io/hawser/test/machine/qmp"
)

// Options of a machine.
type Options struct {
	// Name of the machine.
	Name string
	// Dir contains its disk, its sockets and what it prints. Paths of sockets have at most 108 bytes.
	Dir   string
	Files boot.Files
	// MiB of memory; 0 for 1024.
	MiB int
	// Processors; 0 for one.
	Processors int
	// UUID is the system UUID of its firmware.
	UUID string
	// Share is a directory of the host that MountShare mounts inside.
	Share string
	// From is the snapshot that the machine begins with, in place of a boot.
	From *Snapshot
}

// Machine is one that was started.
type Machine struct {
	Options
	// BootID of the present boot.
	BootID string

	process *exec.Cmd
	// off is closed when QEMU has ended.
	off     chan struct{}
	qmp     *qmp.Client
	command command.Client

	mu sync.Mutex
	// disks that are plugged in, in the order of that. They stay when the power is cut.
	disks []Disk
}

// BootTimeout is how long a boot may take. Under emulation on a busy machine it takes some twenty seconds, and has
// taken three minutes after a reset.
const BootTimeout = 5 * time.Minute

// Start starts a machine and returns once it takes commands.
func Start(ctx context.Context, o Options) (*Machine, error) {
	m := &Machine{Options: o}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the directory of machine %s: %w", o.Name, err)
	}
	backing, format := o.Files.Root, "raw"
	if o.From != nil {
		backing, format = o.From.disk(), "qcow2"
	}
	if err := createOverlay(ctx, m.root(), backing, format); err != nil {
		return nil, err
	}
	err := m.powerOn(ctx, o.From)
	if err != nil {
		return nil, errors.Join(err, m.CutPower(), m.Failure())
	}
	return m, nil
}

func (m *Machine) root() string    { return filepath.Join(m.Dir, "root.qcow2") }
func (m *Machine) console() string { return filepath.Join(m.Dir, "console") }

// PowerOn boots a machine whose power was cut, with the disks that were plugged in.
func (m *Machine) PowerOn(ctx context.Context) error { return m.powerOn(ctx, nil) }

func (m *Machine) powerOn(ctx context.Context, from *Snapshot) error {
	ctx, cancel := context.WithTimeout(ctx, BootTimeout)
	defer cancel()
	if err := m.startQEMU(ctx, from != nil); err != nil {
		return err
	}
	m.mu.Lock()
	disks := slices.Clone(m.disks)
	m.mu.Unlock()
	for _, disk := range disks {
		if err := m.plug(ctx, disk); err != nil {
			return err
		}
	}
	if from != nil {
		if err := m.load(ctx, *from); err != nil {
			return err
		}
	}
	if err := m.qmp.Execute(ctx, "cont", nil, nil); err != nil {
		return err
	}
	if err := m.awaitBoot(ctx, ""); err != nil {
		return err
	}
	if from != nil {
		return m.setClock(ctx)
	}
	return nil
}

// startQEMU starts a QEMU whose processors do not run yet.
func (m *Machine) startQEMU(ctx context.Context, incoming bool) error {
	socket := filepath.Join(m.Dir, "qmp")
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("listening for QEMU: %w", err)
	}
	defer func() { _ = listener.Close() }() // has served its only connection
	m.process = exec.Command("qemu-system-x86_64", m.arguments(socket, incoming)...)
	log, err := os.Create(filepath.Join(m.Dir, "qemu.log"))
	if err != nil {
		return err
	}
	m.process.Stdout, m.process.Stderr = log, log
	if err := errors.Join(m.startProcess(), log.Close()); err != nil {
		return fmt.Errorf("starting QEMU: %w", err)
	}
	connected := make(chan error, 1)
	go func() {
		connection, err := listener.Accept()
		if err == nil {
			m.qmp, err = qmp.New(ctx, connection)
		}
		connected <- err
	}()
	select {
	case err = <-connected:
	case <-m.off:
		err = errors.New("QEMU ended at once")
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("connecting to QEMU: %w", err)
	}
	return m.findPort(ctx)
}

// startProcess starts a process that dies with this one: the kernel kills it when the thread that started it ends.
func (m *Machine) startProcess() error {
	m.process.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL, Setpgid: true}
	started := make(chan error)
	m.off = make(chan struct{})
	go func(process *exec.Cmd, off chan struct{}) {
		runtime.LockOSThread()
		err := process.Start()
		started <- err
		if err == nil {
			_ = process.Wait() // it is killed, as a rule
		}
		close(off)
	}(m.process, m.off)
	return <-started
}

func (m *Machine) arguments(socket string, incoming bool) []string {
	args := []string{"-S", "-nodefaults", "-no-user-config", "-display", "none",
		"-machine", "q35,hpet=off", "-accel", "tcg,thread=multi", "-cpu", "max",
		"-smp", fmt.Sprint(max(m.Processors, 1)), "-m", fmt.Sprint(m.memory()), "-uuid", m.UUID,
		"-kernel", m.Files.Kernel, "-initrd", m.Files.Initramfs,
		"-append", "console=ttyS0 quiet mitigations=off nokaslr random.trust_cpu=on tsc=reliable no_timer_check " +
			"nowatchdog panic=1 machine_id=" + machineID(m.UUID) + " " + m.Files.Arguments,
		"-chardev", "file,id=console,append=on,path=" + m.console(), "-serial", "chardev:console",
		"-qmp", "unix:" + socket,
		"-drive", "if=virtio,format=qcow2,cache=writeback,file=" + m.root(),
		"-netdev", fmt.Sprintf("user,id=net0,hostfwd=tcp:127.0.0.1:0-:%d", command.Port),
		"-device", "virtio-net-pci,netdev=net0,romfile=", "-device", "virtio-rng-pci",
		"-device", "virtio-scsi-pci,id=" + scsiBus, "-device", "virtio-scsi-pci,id=" + cloudBus,
	}
	if m.Share != "" {
		args = append(args, "-virtfs", "local,mount_tag=share,security_model=none,path="+m.Share)
	}
	if incoming {
		args = append(args, "-incoming", "defer")
	}
	return args
}

func (m *Machine) memory() int {
	if m.MiB == 0 {
		return 1024
	}
	return m.MiB
}

var forwarded = regexp.MustCompile(`TCP\[HOST_FORWARD\]\s+\S+\s+127\.0\.0\.1\s+(\d+)`)

// findPort asks which port QEMU has chosen for the commands.
func (m *Machine) findPort(ctx context.Context) error {
	var answer string
	if err := m.qmp.Execute(ctx, "human-monitor-command", map[string]string{"command-line": "info usernet"},
		&answer); err != nil {
		return err
	}
	found := forwarded.FindStringSubmatch(answer)
	if found == nil {
		return fmt.Errorf("QEMU forwards no port: %s", answer)
	}
	m.command.URL = "http://127.0.0.1:" + found[1]
	return nil
}

// awaitBoot waits until the machine takes commands in another boot than old.
func (m *Machine) awaitBoot(ctx context.Context, old string) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		select {
		case <-m.off:
			return false, errors.New("QEMU has ended")
		default:
		}
		// A request that came before the network was up is never answered.
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		var id string
		if id, last = m.command.BootID(ctx); last != nil || id == old {
			return false, nil
		}
		m.BootID = id
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the boot of machine %s: %w (%w)", m.Name, err, last)
	}
	return nil
}

// Failure shows what the machine and QEMU printed.
func (m *Machine) Failure() error {
	var errs []error
	for _, file := range []string{m.console(), filepath.Join(m.Dir, "qemu.log")} {
		data, err := os.ReadFile(file)
		errs = append(errs, err, fmt.Errorf("%s: %s", file, data[max(0, len(data)-2000):]))
	}
	return errors.Join(errs...)
}

// Reset is the reset button: the kernel ends without a word, and boots. What QEMU has of its writes is not lost.
func (m *Machine) Reset(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, BootTimeout)
	defer cancel()
	if err := m.qmp.Execute(ctx, "system_reset", nil, nil); err != nil {
		return err
	}
	return m.awaitBoot(ctx, m.BootID)
}

// Pause stops the machine's processors, as a hypervisor may that is out of memory. What it is writing waits.
func (m *Machine) Pause(ctx context.Context) error { return m.qmp.Execute(ctx, "stop", nil, nil) }

// Resume lets a paused machine go on, with the present time.
func (m *Machine) Resume(ctx context.Context) error {
	if err := m.qmp.Execute(ctx, "cont", nil, nil); err != nil {
		return err
	}
	return m.setClock(ctx)
}

// CutPower ends QEMU at once. What the machine wrote to a new part of a disk and did not flush is lost.
func (m *Machine) CutPower() error {
	if m.process == nil || m.process.Process == nil {
		return nil
	}
	if err := m.process.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("cutting the power of machine %s: %w", m.Name, err)
	}
	<-m.off
	if m.qmp == nil {
		return nil
	}
	return m.qmp.Close()
}
