/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package attach measures attach and detach of many volumes on many nodes. The contenders are Hawser in both modes,
// upstream's controller in the real kube-controller-manager, and a bare client of Hawser's protocol. They take turns on
// the same API server.
package attach

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/bench/attach/cluster"
	"github.com/hawser-io/hawser/test/bench/attach/process"
	"github.com/hawser-io/hawser/test/bench/attach/raw"
	"github.com/hawser-io/hawser/test/bench/attach/stage"
	"github.com/hawser-io/hawser/test/bench/attach/stub"
	"github.com/hawser-io/hawser/test/system"
)

// Options of a run.
type Options struct {
	// Dir of the cluster; must not exist. After an error it stays, with the logs.
	Dir string
	// Out receives progress and report.
	Out io.Writer

	volumes, nodes, repetitions, rounds int
	idle, stallTimeout                  time.Duration
	finalizer, keep                     bool
	contenders, curve                   string
	managerProgram, managerArgs         string
	json                                string
	profile                             time.Duration
}

// AddFlags adds the flags of this part alone.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	flags.IntVar(&o.volumes, "volumes", 1000, "attach: number of volumes that are attached at once")
	flags.IntVar(&o.nodes, "nodes", 50, "attach: number of nodes for these volumes")
	flags.IntVar(&o.repetitions, "repetitions", 20, "attach: number of volumes that are measured one at a time")
	flags.IntVar(&o.rounds, "attach-rounds", 3, "attach: how often each contender attaches and detaches all volumes, "+
		"in turn with the others; the rates are medians")
	flags.DurationVar(&o.idle, "idle", time.Minute, "attach: how long idle requests are counted")
	flags.DurationVar(&o.stallTimeout, "stall-timeout", 150*time.Second,
		"attach: give up the remaining volumes when none was attached or detached for this long")
	flags.BoolVar(&o.finalizer, "attacher-finalizer", false,
		"attach: the stub attacher sets a finalizer, as the real one does")
	flags.StringVar(&o.contenders, "contenders", "", "attach: comma-separated names of the contenders; empty for all")
	flags.StringVar(&o.curve, "curve", "100", "attach: comma-separated numbers of attached volumes next to which single "+
		"volumes are measured, besides 0 and all; each number uses few nodes, so that a node has as many as with all")
	flags.StringVar(&o.managerProgram, "manager", filepath.Join(apiserver.Root(), "bin", "manager"),
		"attach: Hawser's manager")
	flags.StringVar(&o.managerArgs, "manager-args", "", "attach: further arguments of it, separated by blanks")
	flags.StringVar(&o.json, "json", "", "attach: file for the machine-readable report; "+
		"empty for the name of the cluster's directory with the suffix -report.json")
	flags.BoolVar(&o.keep, "keep", false, "attach: keep the cluster's directory with its logs also after success")
	flags.DurationVar(&o.profile, "profile", 0, "attach: length of CPU profiles of API server and manager at the "+
		"beginning of each mass phase, written to the cluster's directory")
}

// Run measures and reports.
func Run(ctx context.Context, o Options) (err error) {
	b := &bench{Options: o}
	if b.curve, err = numbers(o.curve); err != nil {
		return err
	}
	begin := time.Now()
	if b.cluster, err = cluster.Start(o.Dir, cluster.Options{}); err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, b.cluster.Stop()); err == nil && !o.keep {
			err = os.RemoveAll(b.cluster.Dir())
		}
	}()
	b.say("control plane up (%.1f s)", time.Since(begin).Seconds())
	ctx, b.fail = context.WithCancelCause(ctx)
	defer b.fail(nil)
	// The measurements before an error are worth reporting too.
	return errors.Join(b.run(ctx), b.publish())
}

type bench struct {
	Options
	curve   []int
	cluster *cluster.Cluster
	stage   *stage.Stage
	// many volumes are attached at once, single ones one at a time.
	many, single []*stage.Volume
	// load creates and deletes the wishes; manager may write what only Hawser's manager may.
	load, manager client.Client
	fail          context.CancelCauseFunc
	report        Report
}

func numbers(list string) ([]int, error) {
	var all []int
	for _, field := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("--curve: %q is not a number of volumes", field)
		}
		all = append(all, n)
	}
	return all, nil
}

func (b *bench) say(format string, args ...any) {
	_, _ = fmt.Fprintf(b.Out, time.Now().Format("15:04:05 ")+format+"\n", args...) // progress only
}

// run measures all contenders in turn, once for each round.
func (b *bench) run(ctx context.Context) error {
	if err := b.set(ctx); err != nil {
		return err
	}
	if err := b.raw(ctx); err != nil {
		return err
	}
	for round := range b.rounds {
		if err := b.round(ctx, round); err != nil {
			return err
		}
	}
	return nil
}

// round measures the contenders without Hawser on an API server without its admission policies. Contenders that their
// own limits slow down take part in the first round only.
func (b *bench) round(ctx context.Context, round int) error {
	installed := false
	for _, c := range b.inTurn(round) {
		if c.hawser && !installed {
			if err := b.install(ctx); err != nil {
				return err
			}
			installed = true
		}
		if err := b.measure(ctx, c, round); err != nil {
			if cause := context.Cause(ctx); !errors.Is(err, cause) {
				err = errors.Join(err, cause)
			}
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	if !installed {
		return nil
	}
	return b.uninstall(ctx)
}

// inTurn are the contenders of the round: first those without Hawser, then the others. Every second round reverses the
// order, so that no contender is always the last.
func (b *bench) inTurn(round int) []contender {
	var ignorant, others []contender
	names := strings.Split(b.contenders, ",")
	for _, c := range b.all() {
		switch {
		case b.contenders != "" && !slices.Contains(names, c.name) || c.limited && round > 0:
		case c.hawser:
			others = append(others, c)
		default:
			ignorant = append(ignorant, c)
		}
	}
	if round%2 == 1 {
		slices.Reverse(others)
	}
	return append(ignorant, others...)
}

// set creates the stage.
func (b *bench) set(ctx context.Context) error {
	manager, err := b.cluster.Administrator(system.ManagerUser)
	if err != nil {
		return err
	}
	if b.manager, err = cluster.Client(manager); err != nil {
		return err
	}
	if b.load, err = cluster.Client(b.cluster.Instruments()); err != nil {
		return err
	}
	b.plan()
	begin := time.Now()
	if err := b.stage.Set(ctx); err != nil {
		return err
	}
	b.say("%d nodes and %d volumes created (%.1f s)", len(b.stage.Nodes), len(b.stage.Volumes),
		time.Since(begin).Seconds())
	return nil
}

// plan the volumes. The single ones are on nodes that have the same number of others at every point of the curve. The
// cost of a change is compared by the total number of volumes, not by the number on the node.
func (b *bench) plan() {
	b.stage = stage.New(b.load, b.nodes)
	b.many = b.stage.Plan(b.volumes, b.nodes)
	least := slices.Min(append([]int{b.volumes}, b.curve...))
	b.single = b.stage.Plan(b.repetitions+1, b.nodesOf(least))
}

// nodesOf is how many nodes have this number of volumes, if all nodes have equal shares.
func (b *bench) nodesOf(volumes int) int { return max(1, volumes*b.nodes/b.volumes) }

// nextTo returns the volumes next to which single ones are measured, on as few nodes as have this number.
func (b *bench) nextTo(existing int) []*stage.Volume {
	nodes := b.stage.Nodes[:b.nodesOf(existing)]
	var volumes []*stage.Volume
	for _, v := range b.many {
		if len(volumes) < existing && slices.Contains(nodes, v.Node) {
			volumes = append(volumes, v)
		}
	}
	return volumes
}

// rawCount is how many objects of each kind the raw rates write.
const rawCount = 2000

func (b *bench) raw(ctx context.Context) error {
	for _, kind := range []struct {
		rates   *raw.Rates
		measure func(context.Context, client.Client, int) (raw.Rates, error)
	}{{&b.report.Raw.VolumeAttachments, raw.VolumeAttachments}, {&b.report.Raw.NodeVolumeStates, raw.NodeVolumeStates}} {
		var err error
		if *kind.rates, err = kind.measure(ctx, b.load, rawCount); err != nil {
			return err
		}
	}
	r := b.report.Raw
	b.say(
		"raw writes a second (creates, status patches, deletes): VolumeAttachments %.0f, %.0f, %.0f; NodeVolumeStates "+
			"%.0f, %.0f, %.0f",
		r.VolumeAttachments.Creates, r.VolumeAttachments.StatusPatches, r.VolumeAttachments.Deletes,
		r.NodeVolumeStates.Creates, r.NodeVolumeStates.StatusPatches, r.NodeVolumeStates.Deletes)
	return nil
}

// install everything of Hawser except its programs.
func (b *bench) install(ctx context.Context) error {
	for _, part := range []struct{ flag, path string }{
		{"-k", "namespace"}, {"-k", "rbac"}, {"-f", "replace/role.yaml"}, {"-k", "admission"},
		{"-f", "standalone/flowcontrol.yaml"},
	} {
		if err := b.cluster.Apply(ctx, part.flag, part.path); err != nil {
			return err
		}
	}
	if err := b.awaitPolicies(ctx, true); err != nil {
		return err
	}
	b.say("Hawser's roles, admission policies and flow control installed")
	if err := b.stage.SetLeases(ctx, func(string) time.Duration { return stage.Lasting }); err != nil {
		return err
	}
	return b.stage.SetStates(ctx)
}

// uninstall the admission policies, which would also cost the other contenders.
func (b *bench) uninstall(ctx context.Context) error {
	if err := b.cluster.Delete(ctx, "-k", "admission"); err != nil {
		return err
	}
	return b.awaitPolicies(ctx, false)
}

// awaitPolicies returns once the admission policies are in force or not. It polls because nothing signals that.
func (b *bench) awaitPolicies(ctx context.Context, inForce bool) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			probe := b.many[0].Intent()
			probe.Spec.DesiredState = volumesv1alpha1.DesiredPublished // an intent with Attached gets no finalizer
			err := b.load.Create(ctx, probe, client.DryRunAll)
			return len(probe.Finalizers) > 0 == inForce, err
		})
	if err != nil {
		return fmt.Errorf("waiting for the admission policies: %w", err)
	}
	return nil
}

// stubs answer until ctx ends.
func (b *bench) stubs(ctx context.Context, a *arena) error {
	attacher := &stub.Attacher{Finalizer: b.finalizer, Failed: b.fail}
	agents := &stub.Agents{Failed: b.fail}
	for _, c := range []*client.Client{&attacher.Client, &agents.Client} {
		var err error
		if *c, err = cluster.Client(b.cluster.Instruments()); err != nil {
			return err
		}
	}
	if err := attacher.Listen(ctx, a.feed); err != nil {
		return err
	}
	if !a.hawser {
		return nil
	}
	return agents.Listen(ctx, a.feed)
}

// start runs a program as a contender.
func (b *bench) start(ctx context.Context, log, program string, args ...string) (*process.Process, error) {
	return process.Start(ctx, filepath.Join(b.cluster.Dir(), log+".log"), program, args, b.fail)
}
