/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// The first process of a virtual machine, and its command server. In the initramfs it loads modules, mounts the root
// file system and runs itself there.
package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hawser-io/hawser/test/machine/command"
)

// The program's names after that in the initramfs.
const (
	inRoot = "/run/machine-init"
	server = "machine-server"
)

func main() {
	var err error
	switch os.Args[0] {
	case inRoot:
		err = begin()
	case server:
		err = http.ListenAndServe(fmt.Sprintf(":%d", command.Port), command.Handler())
	default:
		err = findRoot()
	}
	// The kernel panics without its first process, so that QEMU's console has the reason.
	fmt.Println("machine-init:", err)
}

type mount struct {
	source, target, fsType string
	flags                  uintptr
	data                   string
}

func mountAll(mounts ...mount) error {
	for _, m := range mounts {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.source, m.target, m.fsType, m.flags, m.data); err != nil {
			return fmt.Errorf("mounting %s at %s: %w", m.fsType, m.target, err)
		}
	}
	return nil
}

// findRoot ends only with an error.
func findRoot() error {
	if err := mountAll(
		mount{"proc", "/proc", "proc", 0, ""},
		mount{"sysfs", "/sys", "sysfs", 0, ""},
		mount{"devtmpfs", "/dev", "devtmpfs", 0, ""},
	); err != nil {
		return err
	}
	if err := loadModules(); err != nil {
		return err
	}
	const root = "/root"
	for range time.Tick(10 * time.Millisecond) {
		if _, err := os.Stat("/dev/vda"); err == nil {
			break
		}
	}
	if err := mountAll(
		mount{"/dev/vda", root, "ext4", 0, ""},
		mount{"/proc", root + "/proc", "", unix.MS_MOVE, ""},
		mount{"/sys", root + "/sys", "", unix.MS_MOVE, ""},
		mount{"/dev", root + "/dev", "", unix.MS_MOVE, ""},
		mount{"tmpfs", root + "/run", "tmpfs", 0, "mode=755"},
	); err != nil {
		return err
	}
	self, err := os.ReadFile("/init")
	if err != nil {
		return err
	}
	if err := os.WriteFile(root+inRoot, self, 0o755); err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return err
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return unix.Exec(inRoot, []string{inRoot}, []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "TMPDIR=/run"})
}

// loadModules loads them in the order of their names.
func loadModules() error {
	modules, err := filepath.Glob("/modules/*.ko")
	if err != nil {
		return err
	}
	for _, path := range modules {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		// A module for a processor that this one is not is refused.
		if err := unix.FinitModule(int(file.Fd()), "", 0); err != nil {
			fmt.Println("machine-init:", filepath.Base(path), err)
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
	return nil
}

// loadPolicy loads the policy of SELinux, before anything begins that it is about, where kernel and root have it. What
// runs already, and what begins without another label, is the kernel's, which may do all.
func loadPolicy() error {
	for _, needed := range []string{"/sys/fs/selinux", "/etc/selinux/config"} {
		if _, err := os.Stat(needed); err != nil {
			return nil
		}
	}
	if out, err := exec.Command("/usr/sbin/load_policy", "-i").CombinedOutput(); err != nil {
		return fmt.Errorf("loading the policy of SELinux: %w: %s", err, out)
	}
	return nil
}

// begin starts what a machine needs, and then waits for processes without a parent.
func begin() error {
	if err := loadPolicy(); err != nil {
		return err
	}
	if err := mountAll(
		mount{"devpts", "/dev/pts", "devpts", 0, ""},
		mount{"tmpfs", "/dev/shm", "tmpfs", 0, ""},
		mount{"tmpfs", "/tmp", "tmpfs", 0, ""},
		mount{"cgroup2", "/sys/fs/cgroup", "cgroup2", 0, ""},
		mount{"", "/", "", unix.MS_SHARED | unix.MS_REC, ""}, // as systemd does
	); err != nil {
		return err
	}
	setUp := exec.Command("/bin/sh", "-e", "-c", `
		ip link set lo up; ip link set eth0 up
		ip addr add 10.0.2.15/24 dev eth0; ip route add default via 10.0.2.2
		mkdir -p /run/lock; modprobe loop
		sed -n 's/.*machine_id=\([0-9a-f]*\).*/\1/p' /proc/cmdline >/etc/machine-id
		if [ -e /sys/fs/selinux/enforce ]; then restorecon -R /dev /run /tmp; fi`)
	if out, err := setUp.CombinedOutput(); err != nil {
		return fmt.Errorf("setting up: %w: %s", err, out)
	}
	serve := exec.Command(inRoot)
	serve.Args = []string{server}
	serve.Stdout, serve.Stderr = os.Stdout, os.Stderr
	if err := serve.Start(); err != nil {
		return fmt.Errorf("starting the server: %w", err)
	}
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if err != nil && err != unix.EINTR || pid == serve.Process.Pid {
			return fmt.Errorf("the server has ended: %w", err)
		}
	}
}
