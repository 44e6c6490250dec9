/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package harness builds the loop CSI driver and runs its processes, in tests and outside of them.
package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hawser-io/hawser/test/csiloop"
	"github.com/hawser-io/hawser/test/csiloop/driver"
	"github.com/hawser-io/hawser/test/environment"
)

// Options of a process; see the driver's flags.
type Options struct {
	// Mode defaults to driver.ModeAll.
	Mode       driver.Mode
	BackingDir string
	KubeletDir string
	NodeID     string
	// Endpoint is the socket's path, if not the default path of the mode.
	Endpoint   string
	MaxVolumes int64
	Capacity   int64
	// Env is the whole environment; nil means this process's.
	Env []string
	// Log receives the process's output; nil means standard error.
	Log io.Writer
	// Detached processes outlive this one.
	Detached bool
}

func (o Options) args() []string {
	args := []string{"--mode=" + string(o.Mode), "--backing-dir=" + o.BackingDir}
	if o.Mode != driver.ModeController {
		args = append(args, "--kubelet-dir="+o.KubeletDir, "--node-id="+o.NodeID)
	}
	if o.Endpoint != "" {
		args = append(args, "--endpoint="+o.Endpoint)
	}
	return append(args, fmt.Sprintf("--max-volumes=%d", o.MaxVolumes), fmt.Sprintf("--capacity=%d", o.Capacity))
}

// environment disables the race detector's sleep of one second at the process's end.
func (o Options) environment() []string {
	env := o.Env
	if env == nil {
		env = environment.With()
	}
	if raceEnabled {
		env = append(slices.Clone(env), "GORACE=atexit_sleep_ms=0")
	}
	return env
}

func (o Options) endpoint() string {
	switch {
	case o.Endpoint != "":
		return o.Endpoint
	case o.Mode == driver.ModeController:
		return csiloop.ControllerSocket(o.BackingDir)
	}
	return csiloop.NodeSocket(o.KubeletDir)
}

// Process is a running driver.
type Process struct {
	// Endpoint is the path of its CSI socket.
	Endpoint string
	// PID of the process.
	PID int

	cmd    *exec.Cmd
	exited chan struct{}
	err    error
}

// Start builds the driver if needed, starts it and returns when it serves. The context limits only the start.
func Start(ctx context.Context, options Options) (*Process, error) {
	if options.Mode == "" {
		options.Mode = driver.ModeAll
	}
	binary, err := Build(ctx)
	if err != nil {
		return nil, err
	}
	process := &Process{Endpoint: options.endpoint(), exited: make(chan struct{})}
	process.cmd = exec.Command(binary, options.args()...)
	process.cmd.Env = options.environment()
	process.cmd.Stderr = options.Log
	if options.Log == nil {
		process.cmd.Stderr = os.Stderr
	}
	process.cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if !options.Detached {
		process.cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	}
	process.cmd.WaitDelay = stopTimeout // for a child program that keeps its standard error open
	output, err := process.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting driver: %w", err)
	}
	if err := process.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting driver: %w", err)
	}
	process.PID = process.cmd.Process.Pid
	ready := make(chan bool, 1)
	go process.watch(output, ready)
	return process, process.await(ctx, ready)
}

// watch reads the process's only line, then waits for its end.
func (p *Process) watch(output io.Reader, ready chan<- bool) {
	line, err := bufio.NewReader(output).ReadString('\n')
	ready <- err == nil && strings.TrimSpace(line) == "ready"
	p.err = p.cmd.Wait()
	close(p.exited)
}

func (p *Process) await(ctx context.Context, ready <-chan bool) error {
	select {
	case ok := <-ready:
		if ok {
			return nil
		}
		<-p.exited
		return fmt.Errorf("starting driver: it ended before it was ready: %w", p.err)
	case <-ctx.Done():
		return errors.Join(ctx.Err(), p.Kill())
	}
}

// Kill ends the process as kill -9 does, and returns when it has ended.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing driver: %w", err)
	}
	<-p.exited
	return nil
}

// Wait returns when the process has ended, for any reason, or when the context is done.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stopTimeout is longer than the driver's grace for calls in flight.
const stopTimeout = 15 * time.Second

// Stop asks the process to end. It returns an error unless the process ended normally. A process that was
// killed or died before counts as stopped.
func (p *Process) Stop() error {
	select {
	case <-p.exited:
		return nil
	default:
	}
	if err := p.cmd.Process.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping driver: %w", err)
	}
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
		return errors.Join(errors.New("stopping driver: it did not end"), p.Kill())
	}
	if p.err != nil {
		return fmt.Errorf("stopping driver: %w", p.err)
	}
	return nil
}

// Dial connects to the process. The connection also works for a process that is started later at the same endpoint.
func (p *Process) Dial() (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+p.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

var build struct {
	sync.Mutex
	path string
}

// Build builds the driver's binary, once, and returns its path. CSI_LOOP_BINARY names a binary to use instead.
func Build(ctx context.Context) (string, error) {
	build.Lock()
	defer build.Unlock()
	if given := os.Getenv("CSI_LOOP_BINARY"); given != "" {
		return given, nil
	}
	if build.path != "" {
		return build.path, nil
	}
	path, err := compile(ctx)
	if err != nil {
		return "", fmt.Errorf("building the loop driver: %w", err)
	}
	build.path = path
	return path, nil
}
