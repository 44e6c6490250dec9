/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent"
	"github.com/hawser-io/hawser/internal/mount"
)

// machine is a node: a kernel with its devices and mounts, a disk, and one agent at a time. The world's lock guards it.
type machine struct {
	world *World
	name  string
	dir   string

	// hardware and installation are what the machine is recognized by.
	hardware, installation int

	boot      int
	since     time.Time
	devices   map[string]device
	mounts    []mounted
	lastID    int
	lastSeq   uint64
	lastMinor int
	// busy are the driver calls that are going on, by volume handle.
	busy map[string]*call
	// raw are the volumes that are staged as devices, which no mount shows, with their attachments.
	raw map[string]types.UID
	// held are devices that a process keeps open, until then.
	held map[uint64]time.Time

	agent *process
	stop  context.CancelFunc
	// plugin of that agent for inline volumes; nil before it has started.
	plugin csi.NodeServer
	// death of the next agent.
	death *death
	// undone counts the driver calls that undo something.
	undone int
	// opened are the mounts that agents have open.
	opened map[*os.File]mounted
	// bound are the inline volumes that pods have, by target path.
	bound   map[string]inlineBind
	changes chan struct{}
	// watchers of directories, of every agent that has not closed its own.
	watchers []*directories

	// kubelet is nil where none runs.
	kubelet     *kubelet
	kubeletLife int
	// containers run for these pods, with the volume of each. They outlive a kubelet.
	containers map[types.UID]string
	// recorded is the boot in which the kubelet last recorded a stage of the volume.
	recorded map[string]int
	// writes of records by kubelets.
	writes int
	life   int
	// heard is when the agent that lives renewed its Lease last or began a session, and void which records of the manager
	// it has contradicted since: that of the Node's out-of-service taint, or of its fence.
	heard time.Time
	void  map[volumesv1alpha1.EvidenceType]bool
	// silent: no agent comes for a while.
	silent bool
	// off: no kubelet comes either.
	off bool
}

// device is a volume that is attached to the machine.
type device struct {
	// uid of the attachment that it belongs to.
	uid   types.UID
	minor int
	seq   uint64
}

// mounted is a mount, with what nobody in the world but the world itself knows.
type mounted struct {
	mount.Entry
	// handle and uid of the volume's attachment; empty for the node's own disk.
	handle string
	uid    types.UID
	seq    uint64
	// sick is since when the filesystem works no more; zero for one that does.
	sick time.Time
}

// ownDisk holds every directory of the machine.
var ownDisk = mount.Entry{ID: 1, Path: "/", Root: "/", Major: 259, Minor: 1, FSType: "ext4", Source: "/dev/nvme0n1p1"}

func (w *World) machine(name string) *machine { return w.machineIn(name, name) }

// machineIn that directory has the node's name.
func (w *World) machineIn(name, dir string) *machine {
	m := &machine{world: w, name: name, dir: filepath.Join(w.dir, dir), devices: map[string]device{},
		recorded: map[string]int{}, opened: map[*os.File]mounted{}, bound: map[string]inlineBind{},
		void: map[volumesv1alpha1.EvidenceType]bool{}}
	w.must(os.MkdirAll(m.dir, 0o700))
	m.identify(int(name[0]), int(name[0]))
	m.start()
	return m
}

func (m *machine) root() string       { return filepath.Join(m.dir, "root") }
func (m *machine) kubeletDir() string { return filepath.Join(m.dir, "kubelet") }

// start boots the machine.
func (m *machine) start() {
	m.boot++
	m.since, m.mounts = time.Now(), []mounted{{Entry: ownDisk}}
	m.busy, m.held, m.raw = map[string]*call{}, map[uint64]time.Time{}, map[string]types.UID{}
	m.containers, m.opened = map[types.UID]string{}, map[*os.File]mounted{}
	m.world.must(os.WriteFile(filepath.Join(m.dir, "boot_id"), fmt.Appendln(nil, m.bootIDLocked()), 0o600))
	before := m.devices
	m.devices = map[string]device{}
	for handle, d := range before {
		m.devices[handle] = m.newDevice(d.uid)
	}
}

func (m *machine) bootIDLocked() string {
	return fmt.Sprintf("boot-%d-%d", m.installation, m.boot)
}

func (m *machine) bootID() string {
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	return m.bootIDLocked()
}

// newDevice has a number that is free and a sequence number that never comes again.
func (m *machine) newDevice(uid types.UID) device {
	m.lastSeq++
	return device{uid: uid, minor: m.freeMinor(), seq: m.lastSeq}
}

// freeMinor is one that was not there before or, in harsh worlds, one of few, so that they come again soon.
func (m *machine) freeMinor() int {
	if !m.world.harsh {
		m.lastMinor++
		return m.lastMinor
	}
	r := m.world.chance.draw(m.name, "device number")
	for {
		n := 1 + r.IntN(6)
		used := false
		for _, d := range m.devices {
			used = used || d.minor == n
		}
		for _, e := range m.mounts {
			used = used || e.Major == loopMajor && e.Minor == n
		}
		if !used {
			return n
		}
	}
}

const loopMajor = 7

// reboot the machine; its agent dies with it and another one comes.
func (m *machine) reboot() {
	m.world.chance.reach(reboot)
	m.world.log("%s reboots", m.name)
	m.world.mu.Lock()
	m.agent.kill()
	m.kubelet.kill()
	m.start()
	m.world.check()
	m.world.mu.Unlock()
	m.launchAfter(m.world.chance.between(m.name, time.Second, time.Minute))
	m.startKubeletAfter(m.world.chance.between(m.name, time.Second, time.Minute))
}

// launchAfter has an agent launched, unless another one is to come after it.
func (m *machine) launchAfter(d time.Duration) {
	m.world.mu.Lock()
	m.life++
	life := m.life
	m.world.mu.Unlock()
	m.world.later(d, func() { m.launch(life) })
}

// launch an agent.
func (m *machine) launch(life int) {
	w := m.world
	p := w.process("agent of "+m.name, agentKilled, func() {
		m.launchAfter(w.chance.between(m.name, time.Second, 30*time.Second))
	})
	ctx, cancel := context.WithCancel(w.ctx)
	changes := make(chan struct{}, 1)
	w.mu.Lock()
	if life != m.life || m.silent {
		w.mu.Unlock()
		cancel()
		return
	}
	m.agent, m.stop, m.changes, m.plugin = p, cancel, changes, nil
	p.death.Store(m.death)
	m.death = nil
	since := m.since
	w.mu.Unlock()
	wall := w.clockOf(m.name)
	held, err := live{p}.newCache(nowhere, agent.CacheOptions(m.name))
	w.must(err)
	a, err := agent.New(agent.Options{
		NodeName: m.name, RootDir: m.root(), KubeletDir: m.kubeletDir(), Version: "simulated",
		BootIDFile: filepath.Join(m.dir, "boot_id"), MachineIdentityFile: m.identityFile(),
		DriverTimeout: driverTimeout, Cache: held, Live: live{p},
		Registry: registry{&driverOf{m: m, p: p}}, Mounts: kernel{m: m, p: p}, MountChanges: changes,
		Recorder: silent{}, Log: w.logger(p.name), Host: host{m: m, p: p}, Clock: wall,
		Uptime: func() time.Duration { return time.Since(since) },
		Step:   func(name string) { _ = p.pass(context.Background(), name) },
	})
	w.must(err)
	w.log("%s starts", p.name)
	w.running.Go(func() { _ = held.Start(ctx) }) // ends with ctx
	if w.inline {
		w.running.Go(func() { m.serve(ctx, p, a) })
	}
	w.running.Go(func() {
		err := a.Start(ctx)
		switch {
		case p.isDead() || w.ctx.Err() != nil:
		default:
			w.log("%s ends: %v", p.name, err)
			p.kill()
			m.launchAfter(w.chance.between(m.name, time.Second, 10*time.Second))
		}
	})
}

// setDeath of the agent or, before there is one, of the first one.
func (m *machine) setDeath(d *death) {
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	if m.agent == nil {
		m.death = d
	} else {
		m.agent.death.Store(d)
	}
}

// mount adds an entry.
func (m *machine) mount(e mounted) {
	m.lastID++
	e.ID = m.lastID + 100
	for _, o := range m.mounts { // a device has one filesystem, however often it is mounted
		if o.seq == e.seq {
			e.sick = o.sick
		}
	}
	m.mounts = append(m.mounts, e)
	m.changed()
}

func (m *machine) changed() {
	select {
	case m.changes <- struct{}{}:
	default:
	}
	m.world.check()
}

// at is what is mounted last at path.
func (m *machine) at(path string) (mounted, bool) {
	for _, e := range slices.Backward(m.mounts) {
		if e.Path == path {
			return e, true
		}
	}
	return mounted{}, false
}

// umount takes what is mounted last at path away, and says what it was.
func (m *machine) umount(path string) (mounted, bool) {
	for i, e := range slices.Backward(m.mounts) {
		if e.Path == path {
			m.mounts = slices.Delete(m.mounts, i, i+1)
			if e.handle != "" && m.world.chance.happens(m.name, deviceHeld) {
				m.held[e.seq] = time.Now().Add(m.world.chance.between(m.name, time.Second, time.Minute))
			}
			m.changed()
			return e, true
		}
	}
	return mounted{}, false
}

// makeReadOnly what is mounted last at path.
func (m *machine) makeReadOnly(path string) {
	for i, e := range slices.Backward(m.mounts) {
		if e.Path == path {
			m.mounts[i].Options = []string{"ro"}
			return
		}
	}
}

// of are the mounts of a volume, and its stage as a device.
func (m *machine) of(handle string) []mounted {
	return slices.DeleteFunc(m.inUse(), func(e mounted) bool { return e.handle != handle })
}

// inUse are the mounts of volumes, and the volumes that are staged as devices.
func (m *machine) inUse() []mounted {
	var found []mounted
	for _, e := range m.mounts {
		if e.handle != "" {
			found = append(found, e)
		}
	}
	for handle, uid := range m.raw {
		found = append(found, mounted{Entry: mount.Entry{Path: "no path, as a device"}, handle: handle, uid: uid})
	}
	return found
}

// host is what an agent has of its machine beside mounts.
type host struct {
	m *machine
	p *process
}

var _ agent.Host = host{}

// Lock waits for the agents before. They are dead already, or about to end.
func (h host) Lock(context.Context, string) (io.Closer, error) {
	return io.NopCloser(nil), h.p.pass(context.Background(), "taking the lock")
}

func (h host) ReplaceFile(path string, data []byte) error {
	if filepath.Base(path) == kubeletFile || filepath.Base(filepath.Dir(path)) == podBinds {
		return replace(path, data)
	}
	name := filepath.Base(path)
	if filepath.Base(filepath.Dir(path)) == "volumes" {
		name = "a record"
	}
	if err := h.p.pass(context.Background(), "writing "+name); err != nil {
		return err
	}
	if h.p.happens(diskFails) {
		h.m.world.log("%s: the disk does not take %s", h.p.name, name)
		return fmt.Errorf("no space left on device")
	}
	if err := replace(path, data); err != nil {
		return err
	}
	return h.p.pass(context.Background(), "having written "+name)
}

// kubeletFile is written under a lock of the agent. Who waits for such a lock keeps virtual time from going on, so
// this takes none.
const kubeletFile = "volumes-of-kubelet.json"

// podBinds is the directory of the agent's records of inline volumes.
const podBinds = "pods"

func replace(path string, data []byte) error {
	temp := path + ".temp"
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, path)
}
