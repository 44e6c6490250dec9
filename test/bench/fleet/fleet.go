/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package fleet measures Hawser's manager with many nodes and volumes: what one change costs beside them, how much
// memory they take, and what happens when the manager restarts, a zone of nodes goes silent or a driver fails. The
// agents and the attacher are stubs, so that only the manager and the API server are measured.
package fleet

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/bench/attach/cluster"
	"github.com/hawser-io/hawser/test/bench/attach/feed"
	"github.com/hawser-io/hawser/test/bench/attach/judge"
	"github.com/hawser-io/hawser/test/bench/attach/process"
	"github.com/hawser-io/hawser/test/bench/attach/stage"
	"github.com/hawser-io/hawser/test/bench/attach/stub"
)

// Options of a run.
type Options struct {
	// Dir of the cluster; must not exist. After an error it stays, with the logs.
	Dir string
	// Out receives progress and report.
	Out io.Writer

	nodes, volumes, repetitions, failing, memory int
	idle                                         time.Duration
	fsync, keep                                  bool
	manager, parts                               string
}

// AddFlags adds the flags of this part alone.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	flags.IntVar(&o.nodes, "fleet-nodes", 500, "fleet: number of nodes; a tenth of them is the zone that goes silent")
	flags.IntVar(&o.volumes, "fleet-volumes", 10_000,
		"fleet: number of volumes that are attached, an equal share to each node")
	flags.IntVar(&o.repetitions, "fleet-repetitions", 20, "fleet: number of volumes that are measured one at a time")
	flags.IntVar(&o.failing, "fleet-failing", 1000, "fleet: number of volumes whose driver fails")
	flags.DurationVar(&o.idle, "fleet-idle", time.Minute, "fleet: how long requests are counted with all attached, "+
		"and with those whose driver fails")
	flags.BoolVar(&o.fsync, "fsync", false, "fleet: etcd flushes each write to the disk, as by default")
	flags.BoolVar(&o.keep, "fleet-keep", false, "fleet: keep the cluster's directory with logs and profiles")
	flags.StringVar(&o.parts, "fleet-parts", "", "fleet: comma-separated parts to measure once all are attached: "+
		"idle, zone, driver, restart, leader and detach; empty for all")
	flags.IntVar(&o.memory, "fleet-memory", 1024, "fleet: memory limit of the manager's container in MiB; the default is "+
		"the shipped one")
	flags.StringVar(&o.manager, "fleet-manager", filepath.Join(apiserver.Root(), "bin", "manager"),
		"fleet: Hawser's manager")
}

// Run measures and reports.
func Run(ctx context.Context, o Options) (err error) {
	if o.volumes%o.nodes != 0 || o.volumes < 10*few || o.nodes%10 != 0 {
		return fmt.Errorf("%d volumes on %d nodes: there must be %d volumes at least, and equal shares in ten zones",
			o.volumes, o.nodes, 10*few)
	}
	b := &bench{Options: o}
	if b.cluster, err = cluster.Start(o.Dir, cluster.Options{Fsync: o.fsync}); err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, b.cluster.Stop()); err == nil && !o.keep {
			err = os.RemoveAll(b.cluster.Dir())
		}
	}()
	ctx, b.fail = context.WithCancelCause(ctx)
	defer b.fail(nil)
	// The measurements before an error are worth reporting too.
	err = b.run(ctx)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = errors.Join(err, cause)
	}
	b.report()
	return err
}

// few is the smallest number of volumes beside which one change is measured.
const few = 100

type bench struct {
	Options
	cluster *cluster.Cluster
	stage   *stage.Stage
	// many volumes are attached, single ones one at a time beside them, broken ones by a driver that fails.
	many, single, broken []*stage.Volume
	load                 client.Client
	feed                 *feed.Feed
	agents               *stub.Agents
	fail                 context.CancelCauseFunc

	// manager that is measured.
	manager *process.Process
	// names of the volumes, by their attachments.
	names map[string]string
	// The present races. Whatever is not in the race is ignored.
	attaching, detaching, marked, unknown atomic.Pointer[judge.Race]

	// base and resident are the live heap and the memory of the manager without nodes and volumes.
	base, resident int64
	rows           []row
}

func (b *bench) say(format string, args ...any) {
	_, _ = fmt.Fprintf(b.Out, time.Now().Format("15:04:05 ")+format+"\n", args...) // progress only
}

// run takes all measurements, in an order in which each finds what the ones before left. A manager that was started
// reconciles all volumes for some minutes, so those parts come late.
func (b *bench) run(ctx context.Context) error {
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"", b.install}, {"", b.enter}, {"", b.set}, {"", b.grow}, {"", b.memory}, {"idle", b.quiet}, {"zone", b.silence},
		{"driver", b.breakDriver}, {"restart", b.restart}, {"leader", b.loseLeader}, {"detach", b.shrink},
	} {
		if part.name != "" && b.parts != "" && !slices.Contains(strings.Split(b.parts, ","), part.name) {
			continue
		}
		if err := part.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// install Hawser without its programs.
func (b *bench) install(ctx context.Context) (err error) {
	if b.load, err = cluster.Client(b.cluster.Instruments()); err != nil {
		return err
	}
	for _, part := range []struct{ flag, path string }{
		{"-k", "namespace"}, {"-k", "rbac"}, {"-k", "admission"}, {"-f", "standalone/flowcontrol.yaml"},
	} {
		if err := b.cluster.Apply(ctx, part.flag, part.path); err != nil {
			return err
		}
	}
	b.plan()
	return nil
}

// plan the volumes. The single ones are on nodes that have their share of the others from the beginning.
func (b *bench) plan() {
	b.stage = stage.New(b.load, b.nodes)
	for _, node := range b.stage.Nodes {
		b.many = append(b.many, b.stage.PlanOn(b.volumes/b.nodes, []string{node})...)
	}
	b.single = b.stage.Plan(b.repetitions, few*b.nodes/b.volumes)
	b.broken = b.stage.Plan(b.failing, b.nodes)
	b.names = map[string]string{}
	for _, v := range b.stage.Volumes {
		b.names[v.Attachment] = v.Name
	}
}

// renewals a second of all agents outside of the zone. At 500 nodes that is their default interval. The renewals of
// more of them load every API server, and would hide here what the manager does.
const renewals = 50

// enter starts the stubs and the manager, and measures the manager's memory while there is nothing yet.
func (b *bench) enter(ctx context.Context) (err error) {
	for _, race := range []*atomic.Pointer[judge.Race]{&b.attaching, &b.detaching, &b.marked, &b.unknown} {
		race.Store(judge.NewRace(0, 1))
	}
	if b.feed, err = feed.New(b.cluster.Instruments()); err != nil {
		return err
	}
	broken := map[string]bool{}
	for _, v := range b.broken {
		broken[v.Attachment] = true
	}
	attacher := &stub.Attacher{Failed: b.fail, Fails: failing(broken)}
	b.agents = &stub.Agents{Failed: b.fail, Renewing: b.zone(), RenewRest: time.Duration(b.nodes) * time.Second / renewals}
	for _, c := range []*client.Client{&attacher.Client, &b.agents.Client} {
		if *c, err = cluster.Client(b.cluster.Instruments()); err != nil {
			return err
		}
	}
	for _, listen := range []func(context.Context, *feed.Feed) error{attacher.Listen, b.agents.Listen, b.listen} {
		if err := listen(ctx, b.feed); err != nil {
			return err
		}
	}
	if err := b.feed.Start(ctx); err != nil {
		return err
	}
	if b.manager, err = b.start(ctx, "manager", "--leader-elect=false", "--pprof-bind-address="+pprofAddress); err != nil {
		return err
	}
	return b.memoryOfNothing(ctx)
}

// set creates the nodes and the volumes. The manager creates the nodes' states.
func (b *bench) set(ctx context.Context) error {
	begin := time.Now()
	if err := b.stage.SetLeases(ctx, func(node string) time.Duration {
		if b.inZone(node) {
			return liveness.DefaultDuration
		}
		return stage.Lasting
	}); err != nil {
		return err
	}
	if err := b.stage.SetNodes(ctx); err != nil {
		return err
	}
	if err := b.memoryOfNodes(ctx); err != nil {
		return err
	}
	if err := b.stage.SetVolumes(ctx); err != nil {
		return err
	}
	b.say("%d nodes and %d volumes created (%.0f s)", b.nodes, len(b.stage.Volumes), time.Since(begin).Seconds())
	return b.agents.RenewAll(ctx)
}

// pprofAddress is where the manager serves its profiles.
const pprofAddress = "127.0.0.1:16061"

// start a manager as it is shipped, but without its endpoints. Of its container it has only what it knows of the limit
// of memory.
func (b *bench) start(ctx context.Context, log string, args ...string) (*process.Process, error) {
	kubeconfig, err := b.cluster.ServiceAccountKubeconfig(ctx, "manager", "hawser-manager")
	if err != nil {
		return nil, err
	}
	return process.Start(ctx, filepath.Join(b.cluster.Dir(), log+".log"), "env", append([]string{
		fmt.Sprintf("GOMEMLIMIT=%dMiB", b.Options.memory), b.Options.manager, "--kubeconfig=" + kubeconfig,
		"--metrics-bind-address=0", "--health-probe-bind-address=0",
	}, args...), b.fail)
}
