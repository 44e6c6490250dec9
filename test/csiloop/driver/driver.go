/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package driver serves CSI over a backing store: the controller, a node, or both in one process.
package driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/hawser-io/hawser/test/csiloop"
	"github.com/hawser-io/hawser/test/csiloop/recorder"
	"github.com/hawser-io/hawser/test/csiloop/store"
)

// Mode is which services a process serves.
type Mode string

const (
	// ModeController serves the controller only.
	ModeController Mode = "controller"
	// ModeNode serves a node only.
	ModeNode Mode = "node"
	// ModeAll serves both.
	ModeAll Mode = "all"
)

func (m Mode) node() bool       { return m == ModeNode || m == ModeAll }
func (m Mode) controller() bool { return m == ModeController || m == ModeAll }

// Options of one process.
type Options struct {
	Mode       Mode
	BackingDir string
	// KubeletDir and NodeID of the pseudo node; not used by ModeController.
	KubeletDir string
	NodeID     string
	// Endpoint is the path of the CSI socket. Empty is the default path of the mode.
	Endpoint string
	// MaxVolumes on the node; 0 is no limit.
	MaxVolumes int64
	// Capacity of the backing store in bytes; 0 is the disk's.
	Capacity int64
}

func (o *Options) complete() error {
	if !o.Mode.node() && !o.Mode.controller() {
		return fmt.Errorf("mode %q is not controller, node or all", o.Mode)
	}
	if o.BackingDir == "" {
		return errors.New("a backing directory is required")
	}
	if o.Mode.node() && (o.NodeID == "" || o.KubeletDir == "") {
		return fmt.Errorf("mode %s needs a node id and a kubelet directory", o.Mode)
	}
	if o.MaxVolumes < 0 || o.Capacity < 0 {
		return errors.New("limits cannot be negative")
	}
	o.Endpoint = strings.TrimPrefix(o.Endpoint, "unix://")
	switch {
	case o.Endpoint != "":
	case o.Mode.node():
		o.Endpoint = csiloop.NodeSocket(o.KubeletDir)
	default:
		o.Endpoint = csiloop.ControllerSocket(o.BackingDir)
	}
	return nil
}

// grace is how long calls in flight may run after the process is asked to stop.
const grace = 5 * time.Second

// Run serves until the context ends, and calls ready once it serves.
func Run(ctx context.Context, options Options, ready func()) (err error) {
	if err := options.complete(); err != nil {
		return err
	}
	backing, err := store.Open(options.BackingDir, options.Capacity)
	if err != nil {
		return err
	}
	if options.Mode.node() {
		if err := backing.RegisterNode(store.Node{ID: options.NodeID, MaxVolumes: options.MaxVolumes}); err != nil {
			return fmt.Errorf("registering node: %w", err)
		}
		lock, err := backing.HoldNode(options.NodeID)
		if err != nil {
			return fmt.Errorf("serving node %s: %w", options.NodeID, err)
		}
		defer func() { err = errors.Join(err, lock.Close()) }()
	}
	return serve(ctx, options, backing, ready)
}

func serve(ctx context.Context, options Options, backing *store.Store, ready func()) error {
	group, ctx := errgroup.WithContext(ctx)
	calls := recorder.New(backing.Dir(), string(options.Mode), options.NodeID)
	server := grpc.NewServer(grpc.UnaryInterceptor(calls.Intercept))
	csi.RegisterIdentityServer(server, &identity{})
	if options.Mode.controller() {
		csi.RegisterControllerServer(server, &controller{store: backing})
	}
	if options.Mode.node() {
		csi.RegisterNodeServer(server, &node{store: backing, id: options.NodeID, maxVolumes: options.MaxVolumes})
	}
	if err := listen(ctx, group, server, options.Endpoint); err != nil {
		return err
	}
	if options.Mode.node() {
		registrar := grpc.NewServer()
		registration.RegisterRegistrationServer(registrar, &registrant{endpoint: options.Endpoint})
		if err := listen(ctx, group, registrar, csiloop.RegistrationSocket(options.KubeletDir)); err != nil {
			return err
		}
	}
	ready()
	return group.Wait()
}

// listen serves on a socket until the context ends. It replaces the socket of a killed process, and removes its own
// socket at its end.
func listen(ctx context.Context, group *errgroup.Group, server *grpc.Server, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("creating socket directory: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing old socket: %w", err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("listening on a path of %d bytes: %w", len(path), err)
	}
	group.Go(func() error {
		// The server may be stopped before this call.
		if err := server.Serve(listener); !errors.Is(err, grpc.ErrServerStopped) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		stop(server)
		return nil
	})
	return nil
}

// stop waits a limited time for calls in flight: one may hang in a fault.
func stop(server *grpc.Server) {
	done := make(chan struct{})
	go func() {
		server.GracefulStop()
		close(done)
	}()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		slog.Warn("the end of the process cancels calls")
		server.Stop()
	}
}
