/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
)

// DefaultForgetAfter is how long a driver stays known after its registration socket was removed.
const DefaultForgetAfter = time.Minute

// Options of a Registry.
type Options struct {
	// KubeletDir is the kubelet's root directory, such as /var/lib/kubelet, which contains plugins_registry.
	KubeletDir string
	// Registerer for the metrics of the drivers' calls. May be nil.
	Registerer prometheus.Registerer
	// ForgetAfter is how long a driver stays known after its socket was removed. The default is DefaultForgetAfter.
	ForgetAfter time.Duration
	// Clock defaults to the real clock.
	Clock clock.WithDelayedExecution
}

// Registry tracks the CSI drivers that are registered on the node.
type Registry struct {
	dir         string
	metrics     *Metrics
	forgetAfter time.Duration
	clock       clock.WithDelayedExecution
	changed     chan struct{}

	mu      sync.Mutex
	plugins map[string]*plugin // by registration socket
	serial  int
	workers sync.WaitGroup
}

var _ driver.Registry = (*Registry)(nil)

// plugin is the state of one registration socket.
type plugin struct {
	// driver that registered there, nil until it is identified.
	driver *Driver
	// endpoint that the plugin last named, known before the driver has answered at it.
	endpoint string
	// serial grows with each registration. Of two sockets of one driver, the later one is used.
	serial int
	// gone is true once the socket was removed.
	gone bool
	// cancel ends the attempt to identify the socket, and every wait that belongs to it.
	cancel context.CancelFunc
	// attempt distinguishes a late answer from the present attempt.
	attempt int
}

// NewRegistry returns a Registry that is empty until it is started.
func NewRegistry(o Options) (*Registry, error) {
	if o.ForgetAfter == 0 {
		o.ForgetAfter = DefaultForgetAfter
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	r := &Registry{
		dir:         filepath.Join(o.KubeletDir, "plugins_registry"),
		forgetAfter: o.ForgetAfter,
		clock:       o.Clock,
		changed:     make(chan struct{}, 1),
		plugins:     map[string]*plugin{},
	}
	if o.Registerer == nil {
		return r, nil
	}
	metrics, err := NewMetrics(o.Registerer)
	r.metrics = metrics
	return r, err
}

// Changed is signalled when a driver came, went, or registered again, which means that it was restarted.
func (r *Registry) Changed() <-chan struct{} { return r.changed }

func (r *Registry) signal() {
	select {
	case r.changed <- struct{}{}:
	default: // a signal that covers this change is already pending
	}
}

// Get returns the driver of that name.
func (r *Registry) Get(name string) (driver.Driver, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.present()[name]
	if !ok {
		return nil, false
	}
	return p.driver, true
}

// Drivers returns the descriptions of all known drivers, ordered by name.
func (r *Registry) Drivers() []volumesv1alpha1.NodeDriver {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := []volumesv1alpha1.NodeDriver{}
	for name, p := range r.present() {
		lines = append(lines, p.driver.desc.line(name))
	}
	slices.SortFunc(lines, func(a, b volumesv1alpha1.NodeDriver) int { return strings.Compare(a.Name, b.Name) })
	return lines
}

// present selects the socket of each driver: one that exists before one that is gone, and then the later one. The
// caller must hold r.mu.
func (r *Registry) present() map[string]*plugin {
	best := map[string]*plugin{}
	for _, p := range r.plugins {
		if p.driver == nil {
			continue
		}
		other := best[p.driver.name]
		if other == nil || other.gone && !p.gone || other.gone == p.gone && p.serial > other.serial {
			best[p.driver.name] = p
		}
	}
	return best
}

// Start watches the registration directory until ctx ends, which is not an error.
func (r *Registry) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer r.workers.Wait()
	defer cancel()
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching plugin registration: %w", err)
	}
	err = r.watch(ctx, watcher)
	return errors.Join(err, watcher.Close())
}

func (r *Registry) watch(ctx context.Context, watcher *fsnotify.Watcher) error {
	if err := r.scan(ctx, watcher); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-watcher.Events:
			if err := r.handle(ctx, watcher, event); err != nil {
				return err
			}
		case err := <-watcher.Errors:
			// Events were lost, for instance because there were too many, so read the whole directory again.
			logr.FromContextOrDiscard(ctx).Info("Reading the plugin registration directory again", "error", err.Error())
			if err := r.scan(ctx, watcher); err != nil {
				return err
			}
		}
	}
}

// Readable fails if the registration directory cannot be read, so that drivers that register are not found.
func (r *Registry) Readable() error {
	if _, err := os.ReadDir(r.dir); err != nil {
		return fmt.Errorf("reading plugin registration directory: %w", err)
	}
	return nil
}

// scan creates the directory if the kubelet has not yet, watches it, and then reads its contents.
func (r *Registry) scan(ctx context.Context, watcher *fsnotify.Watcher) error {
	if err := os.MkdirAll(r.dir, 0o750); err != nil {
		return fmt.Errorf("creating plugin registration directory: %w", err)
	}
	if err := watcher.Add(r.dir); err != nil {
		return fmt.Errorf("watching %s: %w", r.dir, err)
	}
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return fmt.Errorf("reading plugin registration directory: %w", err)
	}
	found := map[string]bool{}
	for _, entry := range entries {
		socket := filepath.Join(r.dir, entry.Name())
		found[socket] = true
		r.appeared(ctx, watcher, socket)
	}
	for _, socket := range r.sockets() {
		if !found[socket] {
			r.vanished(socket)
		}
	}
	return nil
}

func (r *Registry) handle(ctx context.Context, watcher *fsnotify.Watcher, event fsnotify.Event) error {
	removed := event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename)
	switch {
	case event.Name == r.dir && removed:
		return r.scan(ctx, watcher)
	case filepath.Dir(event.Name) != r.dir:
		if event.Has(fsnotify.Create) {
			r.endpointAppeared(ctx, watcher, event.Name)
		}
	case event.Has(fsnotify.Create):
		r.appeared(ctx, watcher, event.Name)
	case removed:
		r.vanished(event.Name)
	}
	return nil
}

func (r *Registry) sockets() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	sockets := make([]string, 0, len(r.plugins))
	for socket := range r.plugins {
		sockets = append(sockets, socket)
	}
	return sockets
}

// endpointAppeared identifies drivers again whose own socket, apart from the registration's, was created again. A
// driver can restart without its registrar.
func (r *Registry) endpointAppeared(ctx context.Context, watcher *fsnotify.Watcher, endpoint string) {
	for _, socket := range r.sockets() {
		r.mu.Lock()
		p := r.plugins[socket]
		again := p != nil && !p.gone && p.endpoint == endpoint
		r.mu.Unlock()
		if again {
			r.appeared(ctx, watcher, socket)
		}
	}
}

// appeared starts to identify a new socket. Each socket has its own goroutine, so that a plugin that hangs delays no
// other.
func (r *Registry) appeared(ctx context.Context, watcher *fsnotify.Watcher, socket string) {
	if strings.HasPrefix(filepath.Base(socket), ".") {
		return
	}
	if info, err := os.Lstat(socket); err != nil || info.Mode().Type() != fs.ModeSocket {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	r.mu.Lock()
	p := r.plugins[socket]
	if p == nil {
		p = &plugin{}
		r.plugins[socket] = p
	} else {
		p.cancel()
	}
	r.serial++
	p.attempt, p.cancel, p.gone = r.serial, cancel, false
	attempt := p.attempt
	r.mu.Unlock()
	r.workers.Go(func() {
		defer cancel()
		d, err := r.identify(ctx, socket, func(endpoint string) { r.watchEndpoint(ctx, watcher, socket, endpoint) })
		if err == nil {
			r.identified(ctx, socket, attempt, d)
		}
	})
}

// watchEndpoint watches for a driver that restarts without its registrar. It is called before the driver, so that no
// restart falls between the answer and the watch.
func (r *Registry) watchEndpoint(ctx context.Context, watcher *fsnotify.Watcher, socket, endpoint string) {
	r.mu.Lock()
	if p := r.plugins[socket]; p != nil {
		p.endpoint = endpoint
	}
	r.mu.Unlock()
	// Without the watch, only the next call notices that the driver alone restarted.
	if err := watcher.Add(filepath.Dir(endpoint)); err != nil && ctx.Err() == nil {
		logr.FromContextOrDiscard(ctx).Info("Not watching a driver's endpoint", "endpoint", endpoint, "error", err.Error())
	}
}

// identified stores the driver, unless the socket was replaced meanwhile.
func (r *Registry) identified(ctx context.Context, socket string, attempt int, d *Driver) {
	if d == nil {
		return // not a CSI driver; the entry stays so that the registry notices the socket's end
	}
	r.mu.Lock()
	p := r.plugins[socket]
	current := p != nil && p.attempt == attempt
	if current {
		p.driver, p.serial = d, attempt
	}
	r.mu.Unlock()
	if current {
		logr.FromContextOrDiscard(ctx).Info("Driver registered", "driver", d.name, "endpoint", d.endpoint)
		r.signal()
	}
}

// vanished marks a socket as gone. Its driver stays known for a while, because most likely it restarts.
func (r *Registry) vanished(socket string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.plugins[socket]
	if p == nil || p.gone {
		return
	}
	p.cancel()
	p.gone = true
	if p.driver == nil {
		delete(r.plugins, socket)
		return
	}
	attempt := p.attempt
	r.clock.AfterFunc(r.forgetAfter, func() { r.forget(socket, attempt) })
}

// forget removes a driver that did not return. A driver that returned has another attempt number.
func (r *Registry) forget(socket string, attempt int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.plugins[socket]; p != nil && p.attempt == attempt {
		delete(r.plugins, socket)
		r.signal()
	}
}
