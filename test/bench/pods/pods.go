/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package pods measures how long pods wait for their volumes, on two nodes with real kubelets in their default
// configuration. It compares inline volumes of Hawser with claims that upstream attaches, in one cluster in attach mode
// Coexist, and counts the writes to the API for each pod. The last part counts those of a claim in attach mode Replace.
package pods

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/hawser-io/hawser/test/bench/attach/stage"
	"github.com/hawser-io/hawser/test/system"
)

// Options of a run.
type Options struct {
	// Dir of the cluster; must not exist.
	Dir string
	// Out receives the report.
	Out io.Writer

	rounds, mass int
	seed         uint64
}

// AddFlags adds the flags of this part alone.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	flags.IntVar(&o.rounds, "pod-rounds", 20, "pods: pods of each kind that are measured one at a time")
	flags.IntVar(&o.mass, "pod-mass", 50, "pods: number of pods with a claim each that are created at once")
	flags.Uint64Var(&o.seed, "pod-seed", 1, "pods: seed of the pauses between two pods")
}

// check refuses what a kubelet cannot run, and runs that would measure nothing.
func (o Options) check() error {
	if o.rounds < 1 || o.mass < 1 || o.mass > 100 {
		return fmt.Errorf("--pod-rounds is %d and --pod-mass is %d; want at least 1, and a mass of at most 100", o.rounds,
			o.mass)
	}
	return nil
}

// Run measures and reports. It needs root, for mounts, and Linux.
func Run(ctx context.Context, o Options) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	program, err := system.BuildStatic(ctx, "./test/kubelet/cmd/program")
	if err != nil {
		return err
	}
	b := &bench{Options: o, random: rand.New(rand.NewPCG(o.seed, 0)), results: map[string]*result{}}
	b.System, err = system.Up(ctx, system.Options{Dir: o.Dir, Nodes: []string{nodeA, nodeB}, Out: o.Out,
		AttachDetach: true, ContainerProgram: program, KubeletDefaults: true})
	if err != nil {
		return fmt.Errorf("starting: %w", err)
	}
	// The signal that ended the run must not interrupt its end.
	defer func() { err = errors.Join(err, b.Down(context.WithoutCancel(ctx))) }()
	for _, part := range []func(context.Context) error{b.StartScheduler, b.prepare, b.alone, b.plugged, b.moves,
		b.together, b.replaced} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	b.report()
	return nil
}

type bench struct {
	Options
	*system.System
	random *rand.Rand
	// results by the name of the kind.
	results map[string]*result
}

// result of one kind of pod.
type result struct {
	// running: created -> container running. moved: deleted -> the next pod runs on the other node.
	running, moved []time.Duration
	// plugged: intent created -> its volume is mounted in the directory of a running pod.
	plugged []time.Duration
	// mass: many created at once -> all running.
	mass time.Duration
	// writes to the API for each pod of those that were counted.
	writes  float64
	counted map[string]float64
}

func (b *bench) of(k kind) *result {
	if b.results[k.name] == nil {
		b.results[k.name] = &result{}
	}
	return b.results[k.name]
}

func (b *bench) say(format string, args ...any) {
	_, _ = fmt.Fprintf(b.Options.Out, format+"\n", args...)
}

// apart pauses for up to the interval of the kubelet's reports, so that pods do not begin at the same moment of it.
func (b *bench) apart(ctx context.Context) error {
	return stage.Pause(ctx, time.Duration(b.random.Int64N(int64(10*time.Second))))
}
