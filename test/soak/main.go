/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Command soak lets a whole system live through random wishes and random trouble for some minutes: intents and, in attach mode
// Replace, pods come and go; agents, controllers, attachers, drivers and kubelets are killed; nodes fail and are put out of
// service; drivers answer with errors, late, or not at all. At the end everything is asked to go, and nothing may be left; and
// the ledger of the driver must not tell of a volume that was taken away while in use, or used on two nodes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hawser-io/hawser/internal/controller"
	"github.com/hawser-io/hawser/test/system"
)

// Options of a soak.
type Options struct {
	Dir     string
	Minutes float64
	Seed    uint64
	Mode    controller.AttachMode
	Nodes   int
	// Pace is the mean time between two things that happen.
	Pace time.Duration
	// Drain is how long it may take until nothing is left.
	Drain time.Duration
	// Race: every program is built with the race detector.
	Race bool
	Keep bool
}

func main() { os.Exit(status()) }

// status is the exit status: deferred calls have run when the program exits.
func status() int {
	o := Options{}
	flag.StringVar(&o.Dir, "dir", "/tmp/hawser-soak", "folder of the cluster; must not exist")
	flag.Float64Var(&o.Minutes, "minutes", 5, "how long there is trouble")
	flag.Uint64Var(&o.Seed, "seed", uint64(time.Now().Unix()), "what is wished and what goes wrong follows from it")
	mode := flag.String("mode", string(controller.Replace), "attach mode: Coexist or Replace")
	flag.IntVar(&o.Nodes, "nodes", 3, "number of nodes")
	flag.DurationVar(&o.Pace, "pace", 400*time.Millisecond, "mean time between two things that happen")
	flag.DurationVar(&o.Drain, "drain", 10*time.Minute, "how long it may take until nothing is left")
	flag.BoolVar(&o.Race, "race", true, "build every program with the race detector")
	flag.BoolVar(&o.Keep, "keep", false, "leave the cluster running at the end")
	flag.Parse()
	o.Mode = controller.AttachMode(*mode)
	ctrl.SetLogger(klog.Background())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "soak failed:", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, o Options) (err error) {
	if o.Mode != controller.Coexist && o.Mode != controller.Replace {
		return fmt.Errorf("attach mode %q is not known", o.Mode)
	}
	if err := os.Mkdir(o.Dir, 0o755); err != nil {
		return fmt.Errorf("making the folder: %w", err)
	}
	file, err := os.Create(filepath.Join(o.Dir, "soak.log"))
	if err != nil {
		return fmt.Errorf("making the log: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	out := io.MultiWriter(os.Stdout, file)
	_, _ = fmt.Fprintf(out, "soak --minutes=%g --seed=%d --mode=%s --nodes=%d --pace=%s\n", o.Minutes, o.Seed, o.Mode, o.Nodes, o.Pace) // progress only
	sys, err := up(ctx, o, out)
	if err != nil {
		return err
	}
	defer func() {
		switch {
		case o.Keep:
			_, _ = fmt.Fprintf(out, "left running; stop it with: make local-down DIR=%s\n", o.Dir)
		case err != nil:
			err = errors.Join(err, stopAll(sys), fmt.Errorf("everything is left in %s for a look", o.Dir))
		default:
			err = sys.Down(context.WithoutCancel(ctx))
		}
	}()
	s, err := newSoak(o, sys, out)
	if err != nil {
		return err
	}
	return s.run(ctx)
}

// up starts the system.
func up(ctx context.Context, o Options, out io.Writer) (*system.System, error) {
	options := system.Options{
		Dir: o.Dir, Out: out, AttachDetach: o.Mode == controller.Coexist,
		ManagerArgs:           []string{"--attach-mode=" + string(o.Mode)},
		AgentArgs:             []string{"--driver-timeout=5s"},
		ControllerManagerArgs: []string{"--node-monitor-grace-period=25s"},
	}
	for i := range o.Nodes {
		options.Nodes = append(options.Nodes, fmt.Sprintf("node-%c", 'a'+i))
	}
	if o.Race {
		bin, err := system.BuildRace(ctx)
		if err != nil {
			return nil, err
		}
		options.Bin = bin
	}
	sys, err := system.Up(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("starting: %w", err)
	}
	return sys, nil
}
