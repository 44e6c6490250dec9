/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

func testThereAndBack(t *testing.T, c *cluster) {
	n, v, a := c.started(t)
	n.driver.before = n.inUseIsSet
	a.writes.reset()
	begin := time.Now()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	got := n.ready(i)
	path := filepath.Join(n.root, "published", "default", i.Name)
	if got.Status.Path != path || got.Status.DevicePath != device("vol") || got.Status.Timeline.Published == nil {
		t.Errorf("status: %+v", got.Status)
	}
	if e, ok := n.kernel.at(path); !ok || e.Minor != minorOf("vol") {
		t.Errorf("nothing mounted at %s: %v", path, n.kernel.mounted())
	}
	n.state("the line", func(s *volumesv1alpha1.NodeVolumeState) bool {
		l := handshake.VolumeOf(s, v.name())
		return l != nil && l.InUse && l.AttachmentUID == "uid-1" && l.StagedPath != "" && l.Capacity != nil &&
			len(l.Publications) == 1 &&
			s.Status.Summary.Published == 1 && s.Status.Summary.Attached == 1
	})
	// What only informs waits a second for company. Where the machine is so slow that it comes over several seconds,
	// each may cost a write.
	allowed := 3
	if took := time.Since(begin); took > 2*time.Second {
		allowed += int(took.Seconds())
	}
	if w := a.writes.list(); len(w) > allowed {
		t.Errorf("more than %d writes for one intent: %v", allowed, w)
	}
	n.release(i)
	n.gone(v)
	n.nothingLeft()
	n.eventually("nothing kept in memory", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		views := 0
		a.views.Range(func(_, _ any) bool { views++; return true })
		return len(a.volumes) == 0 && views == 0
	})
	want := []string{"stage vol", "publish vol", "unpublish vol", "unstage vol"}
	if got := n.driver.made(); !reflect.DeepEqual(got, want) {
		t.Errorf("calls: %v", got)
	}
}

// inUseIsSet refuses a driver call for a volume that the API does not say is in use under its entry's UID.
func (n *node) inUseIsSet(method, handle string) error {
	s := &volumesv1alpha1.NodeVolumeState{}
	if err := n.client.Get(n.t.Context(), clientKey(n.name), s); err != nil {
		return err
	}
	line, entry := handshake.VolumeOf(s, testVolume{handle: handle}.name()), handshake.AttachmentOf(s,
		testVolume{handle: handle}.name())
	if line == nil || !line.InUse || entry != nil && entry.AttachmentUID != line.AttachmentUID {
		n.t.Errorf("%s of %s without inUse", method, handle)
	}
	return nil
}

// nothingLeft waits until no mount, no record and no file is left.
func (n *node) nothingLeft() {
	n.t.Helper()
	var left []string
	err := wait.PollUntilContextTimeout(n.t.Context(), 10*time.Millisecond, patience, true,
		func(context.Context) (bool, error) {
			left = n.leftovers()
			return len(left) == 0, nil
		})
	if err != nil {
		n.t.Errorf("left behind: %v", left)
	}
}

func (n *node) leftovers() []string {
	left := append(n.kernel.mounted(), n.kernel.referred()...)
	for _, pattern := range []string{
		n.root + "/volumes/*", n.root + "/volumes/.new*", n.root + "/publish/*", n.root + "/staged/*",
		n.root + "/published/default/*", n.root + "/sources/*",
		n.kubelet + "/plugins/kubernetes.io/csi/" + fakeDriverName + "/*",
		n.kubelet + "/plugins/kubernetes.io/csi/volumeDevices/pv-*",
	} {
		found, err := filepath.Glob(pattern)
		n.must(err)
		left = append(left, found...)
	}
	return left
}
