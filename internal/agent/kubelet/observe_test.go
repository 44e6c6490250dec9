/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/mount"
)

// devices are those of a node that hangs until it is released, with what the kernel reports of each device.
type devices struct {
	ObserverMounts
	released chan struct{}
	busy     map[string]error
	asked    []string
}

func (d *devices) Table() (*mount.Table, error) {
	<-d.released
	return mount.NewTable(nil), nil
}

func (d *devices) CheckFree(_ context.Context, device mount.Device, _ bool) error {
	d.asked = append(d.asked, device.Path)
	return d.busy[device.Path]
}

// volumes count what they are told.
type volumes struct {
	Volumes
	awaited, changed int
}

func (v *volumes) AwaitHolder(string, *mount.HeldError) { v.awaited++ }

func (*volumes) NoteMountTableRelease(string, types.UID) {}

func (v *volumes) Changed(string) { v.changed++ }

// noState is a writer of a state that is not there, and counts the reports.
type noState struct{ reports int }

func (*noState) Newest() *volumesv1alpha1.NodeVolumeState { return nil }

func (s *noState) ReportSoon() { s.reports++ }

func (s *noState) ReportNow() { s.reports++ }

func (s *noState) ReportAnyway() { s.reports++ }

// noWatcher watches nothing.
type noWatcher struct{ Watcher }

func (noWatcher) WatchList() []string { return nil }

func (noWatcher) Changes() <-chan fsnotify.Event { return nil }

func (noWatcher) Failures() <-chan error { return nil }

func (noWatcher) Close() error { return nil }

func TestAnObservationThatOutlastsItsAgentIsNeitherTakenInNorWritten(t *testing.T) {
	f, dir := newFiled(t), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		node, v, state := &devices{released: make(chan struct{})}, &volumes{}, &noState{}
		f.Observer = NewObserver(ObserverOptions{Paths: record.Paths{Kubelet: dir}, BootID: "boot", Store: f.Store,
			Mounts: node, Reports: state, Volumes: v, Clock: clock.RealClock{}, Log: logr.Discard()})
		f.Watcher, f.Lifetime = noWatcher{}, t.Context()
		f.SetKnown(map[string]TrackedUse{"vol": {AttachmentUID: "uid-1"}})
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			f.Run(ctx)
			close(ended)
		}()
		synctest.Wait()
		end()
		<-ended
		f.writes, v.changed, state.reports = 0, 0, 0
		close(node.released)
		synctest.Wait()
		if _, there := f.Last.Uses["vol"]; !there || f.writes > 0 || v.changed > 0 || state.reports > 0 {
			t.Errorf("after the end: volume vol known %t, %d writes, %d changes, %d reports; want the volume and none", there,
				f.writes, v.changed, state.reports)
		}
	})
}

func TestAVolumeWithTwoDevicesIsFreeOnceBothAre(t *testing.T) {
	u := TrackedUse{Devices: []mount.Device{{Path: "/dev/a"}, {Path: "/dev/b"}}}
	for name, busy := range map[string]map[string]error{
		"the first is held":      {"/dev/a": &mount.HeldError{}},
		"the second is held":     {"/dev/b": &mount.HeldError{}},
		"the second is not read": {"/dev/b": errors.New("not known")},
		"both are free":          nil,
	} {
		node, v := &devices{busy: busy}, &volumes{}
		o := NewObserver(ObserverOptions{Mounts: node, Volumes: v, Log: logr.Discard()})
		err := o.checkFree("vol", u)
		if (err == nil) != (busy == nil) || busy == nil && len(node.asked) != 2 {
			t.Errorf("volume of which %s: error %v after asking for %v, want an error: %t", name, err, node.asked, busy != nil)
		}
	}
}
