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
	clocktesting "k8s.io/utils/clock/testing"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

func testThereAndBack(t *testing.T, c *cluster) {
	n, v := c.node(t), testVolume{handle: "vol"}
	clock := clocktesting.NewFakeClock(time.Now())
	n.drive = func(o *Options) { o.Clock = clock }
	a := n.start()
	n.driver.before = n.inUseIsSet
	a.writes.reset()
	n.attach(v, "uid-1")
	// The intent has a watch of its own. If its event comes first, the agent writes that the volume is not attached.
	n.eventually("the agent sees the attachment", func() bool {
		return handshake.AttachmentOf(a.state.Newest(), v.name()) != nil
	})
	i := n.want(v, "data")
	got := n.ready(i)
	path := filepath.Join(n.root, "published", "default", i.Name)
	if got.Status.Path != path || got.Status.DevicePath != device("vol") || got.Status.Timeline.Published == nil {
		t.Errorf("intent %s: status %+v, want path %s, device %s and the time of publication", i.Name, got.Status, path,
			device("vol"))
	}
	if e, ok := n.kernel.at(path); !ok || e.Minor != minorOf("vol") {
		t.Errorf("intent %s: mounted are %v, want volume vol at %s", i.Name, n.kernel.mounted(), path)
	}
	clock.Step(time.Second) // what only informs waits for company no longer
	n.state("the line", func(s *volumesv1alpha1.NodeVolumeState) bool {
		l := handshake.VolumeOf(s, v.name())
		return l != nil && l.InUse && l.AttachmentUID == "uid-1" && l.StagedPath != "" && l.Capacity != nil &&
			len(l.Publications) == 1 &&
			s.Status.Summary.Published == 1 && s.Status.Summary.Attached == 1
	})
	if w := a.writes.list(); len(w) > 3 {
		t.Errorf("intent %s: writes %v, want at most 3", i.Name, w)
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
		t.Errorf("calls of the driver: %v, want %v", got, want)
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
		n.t.Errorf("%s of %s without inUse for its attachment, want that before", method, handle)
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
		n.t.Errorf("left behind on node %s: %v, want nothing", n.name, left)
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
