/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Command soak lets a whole system live through random wishes and random trouble for some minutes: intents and pods come and
// go, in attach mode Coexist with upstream's controller for the pods; agents, controllers, attachers, drivers and kubelets are
// killed; nodes fail and are put out of service; drivers answer with errors, late, or not at all. At the end everything is asked
// to go, and nothing may be left; and the ledger of the driver must not tell of a volume that was taken away while in use, or
// used on two nodes.
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
	Keep  bool
}

// both modes, one after the other.
const both = "Both"

func main() { os.Exit(status()) }

// status is the exit status: deferred calls have run when the program exits.
func status() int {
	o := Options{}
	flag.StringVar(&o.Dir, "dir", "/tmp/hawser-soak", "folder of the cluster; what an earlier soak left there is taken down first")
	flag.Float64Var(&o.Minutes, "minutes", 5, "how long there is trouble, in each mode")
	flag.Uint64Var(&o.Seed, "seed", uint64(time.Now().Unix()), "what is wished and what goes wrong follows from it")
	mode := flag.String("mode", both, "attach mode: Coexist, Replace or Both, one after the other")
	flag.IntVar(&o.Nodes, "nodes", 3, "number of nodes")
	flag.DurationVar(&o.Pace, "pace", 400*time.Millisecond, "mean time between two things that happen")
	flag.DurationVar(&o.Drain, "drain", 10*time.Minute, "how long it may take until nothing is left")
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
			fmt.Fprintf(os.Stderr, "soak failed: %v\nto wish and to break the same again: %s\n", err, again)
			return 1
		}
		fmt.Println("soak passed:", verdict)
	}
	return 0
}

// run soaks in one mode, and returns what was judged.
func run(ctx context.Context, o Options) (verdict string, err error) {
	if o.Mode != controller.Coexist && o.Mode != controller.Replace {
		return "", fmt.Errorf("attach mode %q is not known", o.Mode)
	}
	fmt.Println("building every program with the race detector")
	bin, err := system.BuildRace(ctx)
	if err != nil {
		return "", err
	}
	if err := takeDown(ctx, system.Open(system.Options{Dir: o.Dir, Bin: bin})); err != nil {
		return "", fmt.Errorf("taking down what an earlier soak left: %w", err)
	}
	if err := os.Mkdir(o.Dir, 0o755); err != nil {
		return "", fmt.Errorf("making the folder: %w", err)
	}
	log, err := os.Create(filepath.Join(o.Dir, "soak.log"))
	if err != nil {
		return "", fmt.Errorf("making the log: %w", err)
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	fmt.Println("what happens stands in", log.Name())
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
			err = errors.Join(err, stopAll(sys), fmt.Errorf("everything is left in %s for a look", o.Dir))
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
		Dir: o.Dir, Bin: bin, Out: out, AttachDetach: o.Mode == controller.Coexist,
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
	return sys, nil
}
