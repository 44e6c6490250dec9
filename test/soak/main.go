/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Command soak runs a whole system under random wishes and random trouble for some minutes. A wish is an intent
// or a pod. In attach mode Coexist, upstream's controller attaches for the pods. Trouble is the kill of a
// program, a node that fails or is put out of service, or a driver that answers with errors, late, or not at
// all. At the end the soak deletes all wishes, and nothing may be left. The judge watches the node states and
// reads the driver's ledger. No volume may be taken away while in use, or used on two nodes.
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
	// Pace is the mean time between two actions.
	Pace time.Duration
	// Drain is how long the system may take until nothing is left.
	Drain time.Duration
	Keep  bool
}

// both modes, one after the other.
const both = "Both"

func main() { os.Exit(status()) }

// status is the exit status: deferred calls have run when the program exits.
func status() int {
	o := Options{}
	flag.StringVar(&o.Dir, "dir", "/tmp/hawser-soak",
		"directory of the cluster; the soak first takes down what an earlier one left there")
	flag.Float64Var(&o.Minutes, "minutes", 5, "duration of the trouble, in each mode")
	flag.Uint64Var(&o.Seed, "seed", uint64(time.Now().Unix()), "determines all wishes and all trouble")
	mode := flag.String("mode", both, "attach mode: Coexist, Replace or Both, one after the other")
	flag.IntVar(&o.Nodes, "nodes", 3, "number of nodes")
	flag.DurationVar(&o.Pace, "pace", 400*time.Millisecond, "mean time between two actions")
	flag.DurationVar(&o.Drain, "drain", 10*time.Minute, "how long the system may take until nothing is left")
	flag.Parse()
	o.Keep = os.Getenv("KEEP") == "1"
	modes := []controller.AttachMode{controller.AttachMode(*mode)}
	if *mode == both {
		modes = []controller.AttachMode{controller.Coexist, controller.Replace}
	}
	ctrl.SetLogger(klog.Background())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	for _, o.Mode = range modes {
		again := fmt.Sprintf("make soak MINUTES=%g SEED=%d MODE=%s", o.Minutes, o.Seed, o.Mode)
		fmt.Println("==", again)
		verdict, err := run(ctx, o)
		if err != nil {
			fmt.Fprintf(os.Stderr, "soak failed: %v\nto repeat the same wishes and trouble: %s\n", err, again)
			return 1
		}
		fmt.Println("soak passed:", verdict)
	}
	return 0
}

// run soaks in one mode, and returns the judge's summary.
func run(ctx context.Context, o Options) (verdict string, err error) {
	if o.Mode != controller.Coexist && o.Mode != controller.Replace {
		return "", fmt.Errorf("unknown attach mode %q", o.Mode)
	}
	fmt.Println("building every program with the race detector")
	bin, err := system.BuildRace(ctx)
	if err != nil {
		return "", err
	}
	if err := takeDown(ctx, system.Open(system.Options{Dir: o.Dir, Bin: bin})); err != nil {
		return "", fmt.Errorf("taking down an earlier soak: %w", err)
	}
	if err := os.Mkdir(o.Dir, 0o755); err != nil {
		return "", fmt.Errorf("creating the directory: %w", err)
	}
	log, err := os.Create(filepath.Join(o.Dir, "soak.log"))
	if err != nil {
		return "", fmt.Errorf("creating the log: %w", err)
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	fmt.Println("all actions are logged in", log.Name())
	sys, err := up(ctx, o, bin, log)
	if err != nil {
		return "", err
	}
	defer func() {
		switch {
		case ctx.Err() != nil:
			err = errors.Join(errors.New("interrupted"), takeDown(context.WithoutCancel(ctx), sys))
		case o.Keep:
			fmt.Printf("left running; stop it with: make local-down DIR=%s\n", o.Dir)
		case err != nil:
			err = errors.Join(err, stopAll(sys), fmt.Errorf("everything is kept in %s for inspection", o.Dir))
		default:
			err = sys.Down(context.WithoutCancel(ctx))
		}
	}()
	s, err := newSoak(o, sys, log)
	if err != nil {
		return "", err
	}
	if err := s.run(ctx); err != nil {
		return "", err
	}
	return s.summary(), nil
}

// up starts the system.
func up(ctx context.Context, o Options, bin string, out io.Writer) (*system.System, error) {
	options := system.Options{
		Dir: o.Dir, Bin: bin, Out: out, Machines: true, AttachDetach: o.Mode == controller.Coexist,
		ManagerArgs:           []string{"--attach-mode=" + string(o.Mode)},
		AgentArgs:             []string{"--driver-timeout=5s"},
		ControllerManagerArgs: []string{"--node-monitor-grace-period=25s"},
	}
	for i := range o.Nodes {
		options.Nodes = append(options.Nodes, fmt.Sprintf("node-%c", 'a'+i))
	}
	sys, err := system.Up(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("starting: %w", err)
	}
	// Some wishes have a detachPolicy, which an admission policy refuses in other namespaces.
	const allow = "volumes.hawser.io/allow-force-detach=true"
	if _, err := sys.Kubectl(ctx, "label", "namespace", namespace, allow); err != nil {
		return nil, errors.Join(err, sys.Down(context.WithoutCancel(ctx)))
	}
	return sys, nil
}
