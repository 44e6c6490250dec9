/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/agent/report"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/machine"
	"github.com/hawser-io/hawser/internal/metrics"
)

// DefaultDriverTimeout is how long one driver call may take.
const DefaultDriverTimeout = 2 * time.Minute

// stopGrace is how long driver calls may go on once the agent is to stop.
const stopGrace = 15 * time.Second

// Options of an Agent. Those that are said to have a default may be left out.
type Options struct {
	NodeName   string
	RootDir    string
	KubeletDir string
	Version    string
	// BootIDFile is /proc/sys/kernel/random/boot_id by default.
	BootIDFile string
	// MachineIdentityFile replaces the firmware and the host's installation as the source of the machine's identity.
	MachineIdentityFile string
	// DriverTimeout is DefaultDriverTimeout by default.
	DriverTimeout time.Duration
	// StatsPeriod is DefaultStatsPeriod by default.
	StatsPeriod time.Duration
	// ExaminationPeriod is DefaultExaminationPeriod by default.
	ExaminationPeriod time.Duration

	// Cache holds the node's own intents and NodeVolumeState and nothing else, see CacheOptions.
	Cache cache.Cache
	// Live reads and writes without a cache.
	Live client.Client
	// Secrets reads the Secrets of the node's volumes; Live by default.
	Secrets operation.SecretReader
	// Registry of the node's drivers.
	Registry driver.Registry
	// Mounts of the node.
	Mounts operation.Mounts
	// MountChanges is signalled when the mount table changed.
	MountChanges <-chan struct{}
	// Filesystems that the node knows; only used to explain failures. May be nil.
	Filesystems operation.FilesystemKnower
	Recorder    events.EventRecorder
	// Calls measures the calls to drivers that are under way. May be nil.
	Calls *metrics.Calls
	// Connections that Live uses. May be nil: then nothing but a failed renewal of the Lease ends a session.
	Connections *report.Connections
	Log         logr.Logger

	// ServePods: the agent is the node plugin for inline volumes of pods.
	ServePods bool
	// Host is the machine that the agent runs on by default.
	Host Host
	// Clock is the real one by default.
	Clock clock.WithTicker
	// Uptime is the time since boot, by default CLOCK_MONOTONIC. Contexts end by the same clock.
	Uptime func() time.Duration
	// NodeFiles are the node's files from its root, by default of its first process.
	NodeFiles fs.FS
	// Step is called between any two steps, with their names; tests stop the agent there.
	Step func(name string)
}

// Agent carries out the intents of one node.
type Agent struct {
	Options
	paths  record.Paths
	bootID string
	// machine distinguishes this one from others under the node's name.
	machine volumesv1alpha1.MachineIdentity
	store   *record.Store
	state   *report.Writer
	queue   *dispatcher
	// observer finds out what the kubelet uses.
	observer *kubelet.Observer
	lock     io.Closer

	session *report.Session
	// node renders the node's part of its state.
	node    *report.Node
	intents *report.IntentWriter
	holders *operation.Holders
	steps   *operation.Environment
	pods    *record.PodBinds
	// plugin gives pods the volumes of intents.
	plugin *podPlugin

	mu      sync.Mutex
	volumes map[string]*operation.Volume
	// views are compared with the mount table: a copy of each volume's record after its last reconcile.
	views sync.Map
	// storageAsked are the drivers that are being asked about their storage.
	storageAsked sync.Map
	// started is closed once the first report of this process is acknowledged and reconciling begins.
	started chan struct{}
}

// New returns an Agent that does nothing before Start.
func New(o Options) (*Agent, error) {
	if o.NodeName == "" || o.RootDir == "" || o.KubeletDir == "" {
		return nil, errors.New("node name, root directory and kubelet directory are needed")
	}
	o.setDefaults()
	o.Mounts = boundedMounts{Mounts: o.Mounts, timeout: o.DriverTimeout}
	boot, err := os.ReadFile(o.BootIDFile)
	if err != nil {
		return nil, fmt.Errorf("reading boot ID: %w", err)
	}
	identity, err := machine.Read(o.MachineIdentityFile)
	if err != nil && o.MachineIdentityFile != "" {
		return nil, err
	}
	if err != nil {
		o.Log.Error(err, "a part of the machine's identity is not known")
	}
	a := &Agent{
		Options: o, machine: identity, paths: record.Paths{Root: o.RootDir, Kubelet: o.KubeletDir},
		bootID:  strings.TrimSpace(string(boot)),
		volumes: map[string]*operation.Volume{}, started: make(chan struct{}),
	}
	a.wire()
	return a, nil
}

func (o *Options) setDefaults() {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Host == nil {
		o.Host = thisHost{log: o.Log}
	}
	if o.Uptime == nil {
		o.Uptime = uptime
	}
	if o.DriverTimeout == 0 {
		o.DriverTimeout = DefaultDriverTimeout
	}
	if o.StatsPeriod == 0 {
		o.StatsPeriod = DefaultStatsPeriod
	}
	if o.ExaminationPeriod == 0 {
		o.ExaminationPeriod = DefaultExaminationPeriod
	}
	if o.BootIDFile == "" {
		o.BootIDFile = "/proc/sys/kernel/random/boot_id"
	}
	if o.Secrets == nil {
		o.Secrets = o.Live
	}
	if o.NodeFiles == nil {
		o.NodeFiles = os.DirFS("/proc/1/root")
	}
}

// uptime is the time since boot without the time of suspension, in which no driver works either. No program can set
// this clock. Every process reads the same time, and Go's timers and contexts end by it.
func uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(fmt.Sprintf("reading CLOCK_MONOTONIC: %v", err)) // every kernel that can do the rest has it
	}
	return time.Duration(t.Nano())
}

func (a *Agent) now() record.Moment { return record.Moment{BootID: a.bootID, Uptime: a.Uptime()} }

func (a *Agent) step(name string) {
	if a.Step != nil {
		a.Step(name)
	}
}

// volume returns what is kept of the volume, made on first use.
func (a *Agent) volume(name string) *operation.Volume {
	a.mu.Lock()
	defer a.mu.Unlock()
	v, ok := a.volumes[name]
	if !ok {
		v = operation.NewVolume(name)
		a.volumes[name] = v
	}
	return v
}

// noteRequeue has a step of the volume that is going on find out whether it is still the next one.
func (a *Agent) noteRequeue(name string) {
	a.mu.Lock()
	v := a.volumes[name]
	a.mu.Unlock()
	if v != nil {
		v.NoteRequeue()
	}
}

// NeedLeaderElection is false: every node has its agent.
func (a *Agent) NeedLeaderElection() bool { return false }

// Started is closed once the agent is at work: it holds the lock, and its first report is acknowledged.
func (a *Agent) Started() <-chan struct{} { return a.started }
