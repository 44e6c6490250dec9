/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// socket is where the plugin serves.
func (p *Plugin) socket() string {
	return filepath.Join(p.Paths.Kubelet, "plugins", volumesv1alpha1.InlineDriver, "csi.sock")
}

// registrationSocket is where the kubelet finds the plugin.
func (p *Plugin) registrationSocket() string {
	return filepath.Join(p.Paths.Kubelet, "plugins_registry", volumesv1alpha1.InlineDriver+"-reg.sock")
}

// Serve serves until ctx ends, which is no error. The kubelet finds the plugin only once it serves. Calls that wait
// when ctx ends are cut off, and their effects are complete or undone when Serve returns. It waits for what calls have
// begun: the caller lets another agent work on the node then.
func (p *Plugin) Serve(ctx context.Context) error {
	plugin := grpc.NewServer(grpc.WaitForHandlers(true))
	csi.RegisterIdentityServer(plugin, p)
	csi.RegisterNodeServer(plugin, p)
	register := grpc.NewServer(grpc.WaitForHandlers(true))
	registration.RegisterRegistrationServer(register, registrar{Plugin: p})
	calls, err := listen(ctx, p.socket(), targetDirMode)
	if err != nil {
		return err
	}
	questions, err := listen(ctx, p.registrationSocket(), targetDirMode)
	if err != nil {
		return errors.Join(err, calls.Close())
	}
	ended := make(chan error, 2)
	go func() { ended <- plugin.Serve(calls) }()
	go func() { ended <- register.Serve(questions) }()
	select {
	case err = <-ended:
		ended <- nil
	case <-ctx.Done():
	}
	register.Stop()
	plugin.Stop()
	p.background.Wait()
	return errors.Join(err, <-ended, <-ended)
}

// listen replaces what a killed agent has left. No other agent of the node can be at work.
func listen(ctx context.Context, path string, dirMode fs.FileMode) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
		return nil, fmt.Errorf("creating the directory of a socket: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("removing an earlier socket: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening at %s: %w", path, err)
	}
	return listener, nil
}
