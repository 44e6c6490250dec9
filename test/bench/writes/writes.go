/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package writes measures what one write of a custom resource costs the API server, and what of it a client or the
// author of a kind may change: the verb, the size of the object, its conditions, the rules of its schema, admission
// policies, watches, and its encoding.
package writes

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/hawser-io/hawser/test/bench/attach/cluster"
	"github.com/hawser-io/hawser/test/bench/attach/process"
	"github.com/hawser-io/hawser/test/bench/attach/stage"
)

// Options of a run.
type Options struct {
	// Dir of the cluster; must not exist. After an error it stays, with the logs.
	Dir string
	// Out receives the report.
	Out io.Writer

	count, rounds int
}

// AddFlags adds the flags of this part alone.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	flags.IntVar(&o.count, "writes", 1000, "writes: number of writes of each kind in a round")
	flags.IntVar(&o.rounds, "writes-rounds", 3, "writes: number of rounds; the medians are reported")
}

// Run measures and reports.
func Run(ctx context.Context, o Options) (err error) {
	b := &bench{Options: o}
	for _, gates := range []string{"", "CBORServingAndStorage=true"} {
		if err := b.on(ctx, gates); err != nil {
			return err
		}
	}
	return nil
}

type bench struct {
	Options
	cluster *cluster.Cluster
	objects *objects
	// baseline is the cost of the write that the others are compared with.
	baseline time.Duration
}

// on measures on a control plane of its own, with these feature gates.
func (b *bench) on(ctx context.Context, gates string) (err error) {
	if b.cluster, err = cluster.Start(b.Dir, cluster.Options{FeatureGates: gates}); err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, b.cluster.Stop()); err == nil {
			err = os.RemoveAll(b.cluster.Dir())
		}
	}()
	if b.objects, err = create(ctx, b.cluster, b.count); err != nil {
		return err
	}
	b.line("| %s | CPU of the API server, of etcd | share |\n|---|---|---|", title(gates))
	for _, v := range b.variants(gates != "") {
		if err := b.measure(ctx, v); err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
	}
	return nil
}

func title(gates string) string {
	if gates == "" {
		return "one write"
	}
	return "one write, with the feature gate " + gates
}

func (b *bench) line(format string, args ...any) { _, _ = fmt.Fprintf(b.Out, format+"\n", args...) }

// variant of a write.
type variant struct {
	name string
	// before changes the cluster, if anything has to be changed, and returns how to undo that.
	before func(ctx context.Context) (undo func(context.Context) error, err error)
	write  func(ctx context.Context, round, i int) error
	// baseline is what the variants after it are compared with.
	baseline bool
}

func (b *bench) measure(ctx context.Context, v variant) error {
	if v.before != nil {
		undo, err := v.before(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = undo(ctx) }() // what follows would fail if it had not been undone
	}
	numbers := make([]int, b.count)
	for i := range numbers {
		numbers[i] = i
	}
	var apiServer, etcd []time.Duration
	for round := range b.rounds + 1 {
		before, err := b.cpu()
		if err != nil {
			return err
		}
		if err := stage.Each(ctx, numbers, func(ctx context.Context, i int) error {
			return v.write(ctx, round, i)
		}); err != nil {
			return err
		}
		after, err := b.cpu()
		if err != nil {
			return err
		}
		if round == 0 {
			continue // warms up
		}
		apiServer = append(apiServer, (after[0]-before[0])/time.Duration(b.count))
		etcd = append(etcd, (after[1]-before[1])/time.Duration(b.count))
	}
	cost := median(apiServer)
	if v.baseline {
		b.baseline = cost
	}
	b.line("| %s | %s, %s | %.2fx |", v.name, show(cost), show(median(etcd)), float64(cost)/float64(b.baseline))
	return nil
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

func show(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}

// cpu of API server and etcd.
func (b *bench) cpu() (times [2]time.Duration, err error) {
	for i, name := range []string{"kube-apiserver", "etcd"} {
		pid, err := process.Child(name)
		if err != nil {
			return times, err
		}
		if times[i], err = process.CPU(pid); err != nil {
			return times, err
		}
	}
	return times, nil
}
