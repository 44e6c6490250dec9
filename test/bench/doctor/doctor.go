/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package doctor measures `kubectl hawser doctor` against a real API server: a cluster in which all is well, and the
// same with pods that wait.
package doctor

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/bench/attach/cluster"
)

// Options of a run.
type Options struct {
	// Dir of the cluster; must not exist.
	Dir string
	// Out receives the report.
	Out io.Writer

	volumes, nodes, waiting, rounds int
}

// AddFlags adds the flags of this part alone.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	flags.IntVar(&o.volumes, "doctor-volumes", 10000, "doctor: volumes, each with claim, pod and attachment")
	flags.IntVar(&o.nodes, "doctor-nodes", 1000, "doctor: number of nodes")
	flags.IntVar(&o.waiting, "doctor-waiting", 10000, "doctor: pods that wait in the last measurement")
	flags.IntVar(&o.rounds, "doctor-rounds", 5, "doctor: runs of the command in each measurement")
}

// Run measures and reports.
func Run(ctx context.Context, o Options) (err error) {
	if o.volumes < 1 || o.nodes < 1 || o.waiting < 0 || o.waiting > o.volumes || o.rounds < 1 {
		return errors.New("want volumes, nodes and rounds, and at most as many pods that wait as volumes")
	}
	c, err := cluster.Start(o.Dir, cluster.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	b := &bench{Options: o, program: filepath.Join(c.Dir(), "kubectl-hawser")}
	build := exec.CommandContext(ctx, "go", "build", "-o", b.program, "./cmd/kubectl-hawser")
	build.Dir, build.Stderr = apiserver.Root(), os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("building the plugin: %w", err)
	}
	if b.kubeconfig, err = c.Kubeconfig("doctor", "bench:doctor", "system:masters"); err != nil {
		return err
	}
	if b.client, err = cluster.Client(c.Instruments()); err != nil {
		return err
	}
	if err := b.fill(ctx); err != nil {
		return fmt.Errorf("creating the volumes: %w", err)
	}
	if err := b.measure(ctx, "all is well"); err != nil {
		return err
	}
	if err := b.wait(ctx); err != nil {
		return fmt.Errorf("letting pods wait: %w", err)
	}
	return b.measure(ctx, fmt.Sprintf("%d pods wait", o.waiting))
}

type bench struct {
	Options
	program, kubeconfig string
	client              client.Client
}

// run is one run of the command.
type run struct {
	took, cpu time.Duration
	// peak of the resident memory, in MiB.
	peak   int64
	output string
}

func (b *bench) measure(ctx context.Context, what string) error {
	var runs []run
	for range b.rounds {
		r, err := b.once(ctx)
		if err != nil {
			return err
		}
		runs = append(runs, r)
	}
	slices.SortFunc(runs, func(a, b run) int { return int(a.took - b.took) })
	middle, peak := runs[len(runs)/2], int64(0)
	for _, r := range runs {
		peak = max(peak, r.peak)
	}
	_, err := fmt.Fprintf(b.Out, "%d volumes, %d nodes, %s: median %s (%s to %s), CPU %s, peak memory %d MiB\n%s\n",
		b.volumes, b.nodes, what, middle.took.Round(time.Millisecond), runs[0].took.Round(time.Millisecond),
		runs[len(runs)-1].took.Round(time.Millisecond), middle.cpu.Round(time.Millisecond), peak, middle.output)
	return err
}

func (b *bench) once(ctx context.Context) (run, error) {
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, b.program, "doctor", "--kubeconfig", b.kubeconfig)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	start := time.Now()
	err := cmd.Run()
	took := time.Since(start)
	if code := cmd.ProcessState.ExitCode(); code != 0 && code != 1 {
		return run{}, fmt.Errorf("the command ended with %d: %w: %s", code, err, errOut.String())
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return run{}, errors.New("the system reports no usage of a process")
	}
	const kibibytes = 1 << 10
	return run{took: took, cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(),
		peak: usage.Maxrss / kibibytes, output: out.String()}, nil
}
