/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hawser-io/hawser/hack/localcluster/internal/machine"
	"github.com/hawser-io/hawser/hack/localcluster/internal/process"
	"github.com/hawser-io/hawser/hack/localcluster/internal/purge"
)

// stopGrace is how long a program may take to stop before it is killed. An API server waits longer for its watches, but
// loses nothing when it is killed.
const stopGrace = 5 * time.Second

// stopOrder ends dependent processes first. Guests (see Run) end before all of them.
var stopOrder = []string{
	kubeletName(""), containerdName(""), machineName(""),
	AttacherAccount, provisionerName(""), resizerName(""),
	nodeParts, controllerManager, apiServer, etcd,
}

// stopRank is a process's place in that order. Names of a node's or driver's processes end with its name.
func stopRank(record process.Record) int {
	return slices.IndexFunc(stopOrder, func(name string) bool {
		return record.Name == name || strings.HasSuffix(name, "-") && strings.HasPrefix(record.Name, name)
	})
}

// Down stops all processes of the cluster. With purge its directory is deleted too, except for what
// lies behind a mount point; nothing is ever unmounted here.
func Down(l Layout, everything bool, out io.Writer) error {
	if err := stopAll(l, out); err != nil {
		return err
	}
	if !everything {
		return nil
	}
	return deleteDirectory(l, out)
}

// Discard takes down everything of a cluster that its owner needs no more: processes, mounts below its directory, loop
// devices on files of it, and the directory. It prints what it takes.
func Discard(l Layout, out io.Writer) error {
	root, err := filepath.EvalSymlinks(l.Root)
	if errors.Is(err, os.ErrNotExist) {
		_, _ = fmt.Fprintf(out, "there is no %s\n", l.Root) // progress only
		return nil
	}
	if err != nil {
		return fmt.Errorf("resolving the cluster's directory: %w", err)
	}
	l.Root = root
	// A wrong directory may have the mounts of others below it.
	if _, err := os.Stat(l.portsFile()); err != nil {
		return fmt.Errorf("%s is not the directory of a cluster: %w", root, err)
	}
	if err := stopAll(l, out); err != nil {
		return err
	}
	devices, err := loopDevices(root)
	if err != nil {
		return err
	}
	if err := errors.Join(purge.Unmount(root, out), detach(devices, out)); err != nil {
		return err
	}
	return deleteDirectory(l, out)
}

func deleteDirectory(l Layout, out io.Writer) error {
	if err := purge.Directory(l.Root); err != nil {
		return fmt.Errorf("deleting the cluster's directory: %w", err)
	}
	_, _ = fmt.Fprintf(out, "deleted %s\n", l.Root) // progress only
	return nil
}

// stopAll stops the processes, and what only the machines of real nodes held.
func stopAll(l Layout, out io.Writer) error {
	records, err := l.Processes().List()
	if err != nil {
		return err
	}
	slices.SortStableFunc(records, func(a, b process.Record) int { return cmp.Compare(stopRank(a), stopRank(b)) })
	if !slices.ContainsFunc(records, func(r process.Record) bool { return r.Machine }) {
		return stopEach(l, records, out)
	}
	devices, err := loopDevices(l.Root)
	if err != nil {
		return err
	}
	if err := stopEach(l, records, out); err != nil {
		return err
	}
	return errors.Join(detach(devices, out), machine.RemoveControlGroup(l.controlGroups()))
}

func stopEach(l Layout, records []process.Record, out io.Writer) error {
	for _, record := range records {
		if err := stopRecord(record, out); err != nil {
			return err
		}
		if err := l.Processes().Remove(record.Name); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends one process and keeps its record, so that Start can start it again.
func Stop(l Layout, name string, out io.Writer) error {
	record, err := l.Processes().Load(name)
	if err != nil {
		return err
	}
	return stopRecord(record, out)
}

func stopRecord(record process.Record, out io.Writer) error {
	if !record.Running() {
		return nil
	}
	if err := record.Stop(stopGrace); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "stopped %s\n", record.Name) // progress only
	return nil
}

// Run starts a guest: a program next to the cluster, or inside a real node. Down stops it too.
func Run(l Layout, name, node, program string, args []string) error {
	spec := process.Spec{Name: name, Program: program, Args: args}
	if node != "" {
		spec.Inside = machineName(node)
	}
	return startDetached(l, spec)
}

// Start starts a stopped process with the same arguments, and waits until it is ready.
func Start(ctx context.Context, l Layout, name string) error {
	record, err := l.Processes().Load(name)
	if err != nil {
		return err
	}
	return startAndWait(ctx, l, record.Spec)
}

// ErrNotRunning means that a part of the cluster does not run.
var ErrNotRunning = errors.New("not everything runs")

// Status prints the processes. The error is ErrNotRunning if a recorded process does not run, or if there is no record.
func Status(l Layout, out io.Writer) error {
	records, err := l.Processes().List()
	if err != nil {
		return err
	}
	healthy := len(records) > 0
	for _, record := range records {
		state := "running"
		if !record.Running() {
			state, healthy = "stopped", false
		}
		_, _ = fmt.Fprintf(out, "%-24s %-8s pid %-8d log %s\n", record.Name, state, record.PID, record.Log)
	}
	_, _ = fmt.Fprintf(out, "export KUBECONFIG=%s\n", l.AdminKubeconfig())
	if !healthy {
		return ErrNotRunning
	}
	return nil
}
