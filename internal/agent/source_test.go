/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/handshake"
)

// shares are volumes of a made-up source: no controller attaches it, and it has no PersistentVolume.
var shares = map[string]testVolume{
	"a filesystem": {handle: "export", share: true},
	"a device":     {handle: "export", share: true, mode: corev1.PersistentVolumeBlock},
}

func TestASourceThatIsNeitherAttachedNorHasAPersistentVolumeIsMounted(t *testing.T) {
	c := newCluster(t)
	for name, v := range shares {
		t.Run(name, func(t *testing.T) {
			n, i := c.sharing(t, v)
			n.start()
			n.mounted(v, i)
			n.release(i)
			n.gone(v)
			n.nothingLeft()
			n.untouchedKubelet(v)
		})
	}
}

func TestASourceOfItsOwnIsReleasedWithoutItsRecord(t *testing.T) {
	c := newCluster(t)
	for name, v := range shares {
		t.Run(name, func(t *testing.T) {
			n, i := c.sharing(t, v)
			n.timeout = 500 * time.Millisecond // what the lost record may have named is waited for
			a := n.start()
			n.mounted(v, i)
			n.settled(v)
			a.stop()
			n.must(os.Remove(a.store.Path(v.name())))
			n.start()
			n.release(i)
			n.gone(v)
			n.nothingLeft()
			n.untouchedKubelet(v)
		})
	}
}

func TestTheKubeletKeepsNoSourceOfItsOwnStaged(t *testing.T) {
	b := newBench(t, testVolume{handle: "export", share: true, change: func(e *volumesv1alpha1.NodeAttachment) {
		e.PersistentVolumeName = ""
	}})
	b.want("intent", func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Status.VolumeName = "" })
	b.stage()
	b.done(plan.Publish)
	nobodyWants(b)
	b.done(plan.Unstage)
	isUnstaged(b)
}

// sharing returns a node that the manager has given the volume, and an intent that wants it.
func (c *cluster) sharing(t *testing.T, v testVolume) (*node, *volumesv1alpha1.VolumeAttachmentIntent) {
	t.Helper()
	n := c.node(t)
	n.attach(v, "generated")
	return n, n.want(v, "data")
}

// mounted waits until the volume is published for the intent, and checks where it is staged.
func (n *node) mounted(v testVolume, i *volumesv1alpha1.VolumeAttachmentIntent) {
	n.t.Helper()
	path := n.ready(i).Status.Path
	if e, ok := n.kernel.at(path); !ok {
		n.t.Errorf("volume %s of intent %s: %+v is mounted at %s, want the volume", v.name(), i.Name, e, path)
	}
	s := n.state("its stage", func(s *volumesv1alpha1.NodeVolumeState) bool {
		line := handshake.VolumeOf(s, v.name())
		return line != nil && line.StagedPath != ""
	})
	if at := handshake.VolumeOf(s, v.name()).StagedPath; !strings.HasPrefix(at, filepath.Join(n.root, "sources")+"/") {
		n.t.Errorf("volume %s is staged at %s, want a place below %s/sources", v.name(), at, n.root)
	}
}

// untouchedKubelet checks that nothing was made for the volume where the kubelet has its volumes.
func (n *node) untouchedKubelet(v testVolume) {
	n.t.Helper()
	found, err := filepath.Glob(n.kubelet + "/*")
	n.must(err)
	if len(found) > 0 {
		n.t.Errorf("volume %s, which no kubelet knows: the kubelet's directory %s has %v, want nothing", v.name(),
			n.kubelet, found)
	}
}
