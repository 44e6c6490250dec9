/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/fsnotify/fsnotify"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/hawser-io/hawser/hack/localcluster/internal/csiclient"
	"github.com/hawser-io/hawser/hack/localcluster/internal/worker"
)

// callTimeout limits one call to a driver that registers.
const callTimeout = 10 * time.Second

// registrar follows the sockets in the registration directory. It lists the driver of a new socket, and removes the
// driver of a socket that vanished.
type registrar struct {
	*Kubelet
	watcher *fsnotify.Watcher
	queue   worker.Queue
	// drivers maps a socket to its driver.
	drivers sync.Map
}

func newRegistrar(k *Kubelet) (*registrar, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watching for drivers: %w", err)
	}
	if err := watcher.Add(k.Registry); err != nil {
		return nil, errors.Join(fmt.Errorf("watching %s: %w", k.Registry, err), watcher.Close())
	}
	return &registrar{Kubelet: k, watcher: watcher, queue: worker.NewQueue(5 * time.Second)}, nil
}

func (r *registrar) close() {
	_ = r.watcher.Close() // nothing depends on it afterwards
}

func (r *registrar) run(ctx context.Context) {
	go r.follow(ctx)
	// A driver that does not answer blocks a worker, but not the other drivers.
	worker.Run(ctx, r.Log, r.queue, 4, r.reconcile)
}

// follow enqueues changes of the directory. The watch begins before the first listing, so that no socket is missed.
func (r *registrar) follow(ctx context.Context) {
	r.enqueueAll()
	for {
		select {
		case <-ctx.Done():
			return
		case event, open := <-r.watcher.Events:
			if !open {
				return
			}
			if event.Op&(fsnotify.Create|fsnotify.Remove|fsnotify.Rename) != 0 && !hidden(event.Name) {
				r.queue.Add(event.Name)
			}
		case err, open := <-r.watcher.Errors:
			if !open {
				return
			}
			r.Log.Error("the watch of the registration directory stumbled, listing anew", "error", err)
			r.enqueueAll()
		}
	}
}

func (r *registrar) enqueueAll() {
	entries, err := os.ReadDir(r.Registry)
	if err != nil {
		r.Log.Error("cannot list the registration directory", "error", err)
	}
	for _, entry := range entries {
		if !hidden(entry.Name()) {
			r.queue.Add(filepath.Join(r.Registry, entry.Name()))
		}
	}
}

// hidden files are unfinished sockets.
func hidden(path string) bool { return strings.HasPrefix(filepath.Base(path), ".") }

// reconcile updates the CSINode for one path of the registration directory.
func (r *registrar) reconcile(ctx context.Context, socket string) error {
	info, err := os.Stat(socket)
	if errors.Is(err, os.ErrNotExist) {
		name, known := r.drivers.Load(socket)
		if !known {
			return nil
		}
		if err := r.unlist(ctx, name.(string)); err != nil {
			return fmt.Errorf("taking driver %s off the list: %w", name, err)
		}
		r.drivers.Delete(socket)
		r.Log.Info("driver unregistered", "driver", name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking at %s: %w", socket, err)
	}
	if info.Mode()&os.ModeSocket == 0 {
		return nil
	}
	name, err := r.greet(ctx, socket)
	if err != nil {
		return fmt.Errorf("registering %s: %w", filepath.Base(socket), err)
	}
	if name != "" {
		r.drivers.Store(socket, name)
		r.Log.Info("driver registered", "driver", name)
	}
	return nil
}

// greet identifies the plugin, lists the driver, and notifies it of the outcome. It ignores plugins of other types.
func (r *registrar) greet(ctx context.Context, socket string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*callTimeout)
	defer cancel()
	connection, err := csiclient.Dial(socket)
	if err != nil {
		return "", err
	}
	defer func() { _ = connection.Close() }() // all calls have returned

	plugin := registration.NewRegistrationClient(connection)
	asking, cancelAsking := context.WithTimeout(ctx, callTimeout)
	defer cancelAsking()
	info, err := plugin.GetInfo(asking, &registration.InfoRequest{})
	if err != nil {
		return "", fmt.Errorf("asking who is there: %w", err)
	}
	if info.GetType() != registration.CSIPlugin {
		return "", nil
	}
	status := &registration.RegistrationStatus{PluginRegistered: true}
	failure := r.admit(ctx, info)
	if failure != nil {
		status = &registration.RegistrationStatus{Error: failure.Error()}
	}
	if _, err := plugin.NotifyRegistrationStatus(ctx, status); err != nil {
		failure = errors.Join(failure, fmt.Errorf("telling the outcome: %w", err))
	}
	return info.GetName(), failure
}

// admit asks the driver for its node information and lists it.
func (r *registrar) admit(ctx context.Context, info *registration.PluginInfo) error {
	endpoint := strings.TrimPrefix(info.GetEndpoint(), "unix://")
	if endpoint == "" {
		return errors.New("the registration names no endpoint")
	}
	connection, err := csiclient.Dial(endpoint)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }() // the call has returned

	asking, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	node, err := csi.NewNodeClient(connection).NodeGetInfo(asking, &csi.NodeGetInfoRequest{})
	if err != nil {
		return fmt.Errorf("asking driver %s about the node: %w", info.GetName(), err)
	}
	return r.list(ctx, info.GetName(), node)
}
