/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Command demo shows Hawser's main job on a real control plane with real devices. Claims become mounted
// volumes, which survive a killed agent and grow. They move to another node with their data, and leave nothing
// behind. Pods use them where real kubelets can run. In the end something is broken, and why names the cause.
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

	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/system"
)

const (
	nodeA, nodeB = "node-a", "node-b"
	namespace    = "hawser-demo"
	stepLimit    = 2 * time.Minute
)

func main() { os.Exit(status()) }

// status is the exit status: deferred calls have run when the program exits.
func status() int {
	dir := flag.String("dir", "/tmp/hawser-demo", "directory of the cluster; must not exist")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *dir, os.Getenv("KEEP") == "1", os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo failed:", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, dir string, keep bool, out io.Writer) (err error) {
	begin := time.Now()
	sys, err := system.Up(ctx, system.Options{Dir: dir, Nodes: []string{nodeA, nodeB}, Out: out, AttachDetach: true})
	if err != nil {
		return fmt.Errorf("starting: %w", err)
	}
	if keep {
		defer func() {
			_, _ = fmt.Fprintf(out, "\nleft running; stop it with: make local-down DIR=%s\nexport KUBECONFIG=%s\n", dir,
				sys.Kubeconfig())
		}()
	} else {
		// The signal that ended the demo must not interrupt its end.
		defer func() { err = errors.Join(err, sys.Down(context.WithoutCancel(ctx))) }()
	}
	d := &demo{System: sys, out: out}
	for _, step := range d.steps() {
		if err := d.show(ctx, step); err != nil {
			return err
		}
	}
	if err := showPods(ctx, dir+"-pods", out); err != nil {
		return fmt.Errorf("pods: %w", err)
	}
	_, _ = fmt.Fprintf(out, "\nthe demo has ended, %.0f s in total\n", time.Since(begin).Seconds())
	return nil
}

// demo is a running system and the data that its steps share.
type demo struct {
	*system.System
	out io.Writer
	// mounts before the agent was killed.
	mounts map[string]uint64
	// agentSince is when the killed agent had started.
	agentSince time.Time
}

type step struct {
	title string
	run   func(context.Context) error
}

func (d *demo) steps() []step {
	return []step{
		{"two filesystem claims (ext4, xfs) and a block claim become Ready on " + nodeA, d.publish},
		{"data is written to a filesystem and to the device and read back", d.writeAndRead},
		{"volumes grow while they are in use", d.expand},
		{"the agent of " + nodeA + " is killed with -9: nothing is unmounted", d.killAgent},
		{"the agent of " + nodeA + " starts again: nothing was unmounted, everything is Ready", d.restartAgent},
		{"an intent wants the exclusive volume on " + nodeB + " too: it waits, and why names the holder", d.contend},
		{"the intent on " + nodeA + " is deleted: the volume moves to " + nodeB + " with its data", d.move},
		{"everything is deleted: nothing is left behind", d.remove},
		{"the driver of " + nodeA + " is stopped: a new intent waits, and why names the cause", d.breakDriver},
		{"the driver starts again: the intent becomes Ready by itself, and is deleted", d.repairDriver},
	}
}

// show runs one step, prints its time and the output of kubectl after it.
func (d *demo) show(ctx context.Context, s step) error {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	_, _ = fmt.Fprintf(d.out, "\n== %s\n", s.title)
	begin := time.Now()
	if err := s.run(ctx); err != nil {
		// For the reader of the failure.
		state, _ := d.Kubectl(context.WithoutCancel(ctx), "get", "vai,nvs,volumeattachments", "-A", "-o", "wide")
		return fmt.Errorf("%s: %w\n%s", s.title, err, state)
	}
	_, _ = fmt.Fprintf(d.out, "   done in %d ms\n", time.Since(begin).Milliseconds())
	state, err := d.Kubectl(ctx, "get", "vai,nvs", "--all-namespaces")
	_, _ = fmt.Fprint(d.out, state)
	return err
}

func sample(name string) string {
	return filepath.Join(apiserver.Root(), "config", "samples", name)
}
