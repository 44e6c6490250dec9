/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/mount"
)

func TestWhatTheKubeletUses(t *testing.T) {
	runAll(t, map[string]func(*testing.T, *cluster){
		"a volume of the kubelet has a line from its first mount to the end of its last record": testKubeletLine,
		"a volume that upstream attached takes the name of the attachment that replaces it":     testKubeletAdopts,
		"a line keeps its attachment over restarts while the mount stays":                       testKubeletRestart,
		"a mount that was made anew belongs to the new attachment":                              testKubeletAnew,
		"an agent and a kubelet on one volume share one line":                                   testKubeletShares,
		"a fence is acknowledged at once, by a look that was made after it":                     testFence,
		"nothing is written while nothing changes":                                              testIdle,
		"an agent's own volume costs no look's write":                                           testOwnIsNoUse,
		"a record that cannot be read keeps what it may belong to in use":                       testKubeletDoubt,
		"a block volume that is mapped into a pod has a line":                                   testKubeletBlock,
		"the node is released when nothing is attached and nobody has anything":                 testVolumesReleased,
		"a filesystem of the kubelet that was forced away is shut down and left to it":          testKubeletAway,
		"a filesystem of the kubelet is shut down also after it was recorded again":             testKubeletAwayRecordedAgain,
		"a stage that the kubelet recorded again is not shut down for an earlier attachment":    testKubeletAwayStagedAnew,
		"after a reboot what the kubelet stages is not shut down for an earlier attachment":     testKubeletAwayRebooted,
		"a device of the kubelet that was forced away is told":                                  testKubeletAwayBlock,
		"a mount of the kubelet that is not known to be old is not shut down":                   testKubeletNotAway,
		"a volume is not taken into use over an old mount of the kubelet":                       testKubeletStale,
		"after a reboot records of a volume that was forced away are a kubelet that waits":      testKubeletWaits,
		"a record that the kubelet wrote in this boot may be of what was forced away":           testKubeletTouches,
		"after a restart in the same boot a kubelet does not merely wait":                       testKubeletSameBoot,
	})
}

// kubeletRecord is what the kubelet writes beside a stage.
func kubeletRecord(v testVolume) []byte {
	s := v.source()
	data, err := json.Marshal(map[string]string{"driverName": s.Driver, "volumeHandle": s.Handle})
	if err != nil {
		panic(err)
	}
	return data
}

// fakeKubelet does to the node what a kubelet would.
type fakeKubelet struct{ *node }

func (k fakeKubelet) csi() string { return filepath.Join(k.kubelet, "plugins", "kubernetes.io", "csi") }

func (k fakeKubelet) stageDir(v testVolume) string {
	s := v.source()
	return filepath.Join(k.csi(), s.Driver, record.Hash(s.Handle))
}

func (k fakeKubelet) write(path string, data []byte) {
	k.t.Helper()
	k.must(os.MkdirAll(filepath.Dir(path), 0o750))
	k.must(os.WriteFile(path, data, 0o600))
}

func (k fakeKubelet) entry(v testVolume, path string) mount.Entry {
	return k.kernel.filesystemOf(v.handle, "ext4", path)
}

// stage records the volume and stages it.
func (k fakeKubelet) stage(v testVolume) {
	k.t.Helper()
	k.write(filepath.Join(k.stageDir(v), "vol_data.json"), kubeletRecord(v))
	k.must(os.MkdirAll(filepath.Join(k.stageDir(v), "globalmount"), 0o750))
	k.kernel.mount(k.entry(v, filepath.Join(k.stageDir(v), "globalmount")))
}

func (k fakeKubelet) unstage(v testVolume) {
	k.t.Helper()
	k.kernel.umount(filepath.Join(k.stageDir(v), "globalmount"))
	k.must(os.RemoveAll(k.stageDir(v)))
}

func (k fakeKubelet) podDir(v testVolume, pod string) string {
	return filepath.Join(k.kubelet, "pods", pod, "volumes", "kubernetes.io~csi", "pv-"+v.handle)
}

func (k fakeKubelet) publish(v testVolume, pod string) {
	k.t.Helper()
	var record map[string]string
	k.must(json.Unmarshal(kubeletRecord(v), &record))
	record["specVolID"] = "pv-" + v.handle
	data, err := json.Marshal(record)
	k.must(err)
	k.write(filepath.Join(k.podDir(v, pod), "vol_data.json"), data)
	k.kernel.mount(k.entry(v, filepath.Join(k.podDir(v, pod), "mount")))
}

func (k fakeKubelet) unpublish(v testVolume, pod string) {
	k.t.Helper()
	k.kernel.umount(filepath.Join(k.podDir(v, pod), "mount"))
	k.must(os.RemoveAll(k.podDir(v, pod)))
}

// line waits until the volume's line is as wanted.
func (n *node) line(v testVolume, what string,
	ok func(*volumesv1alpha1.NodeVolume) bool) *volumesv1alpha1.NodeVolumeState {
	n.t.Helper()
	return n.state(what, func(s *volumesv1alpha1.NodeVolumeState) bool {
		l := handshake.VolumeOf(s, v.name())
		return l != nil && ok(l)
	})
}

func usedByKubelet(uid types.UID) func(*volumesv1alpha1.NodeVolume) bool {
	return func(l *volumesv1alpha1.NodeVolume) bool {
		return l.InUse && l.PublishedBy == volumesv1alpha1.PublisherKubelet && l.AttachmentUID == uid
	}
}

func testKubeletLine(t *testing.T, c *cluster) {
	n, v, k, a := c.withKubelet(t)
	n.attach(v, "uid-1")
	k.stage(v)
	k.publish(v, "pod-1")
	s := n.line(v, "a line", usedByKubelet("uid-1"))
	l := handshake.VolumeOf(s, v.name())
	if l.StagedPath != filepath.Join(k.stageDir(v), "globalmount") || l.DevicePath != device("vol") {
		t.Errorf("volume %s: line %+v, want the kubelet's stage and %s", v.name(), l, device("vol"))
	}
	n.state("counted", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return s.Status.Summary.Staged == 1 && s.Status.Summary.Published == 1 && s.Status.Summary.Orphaned == 0
	})
	a.rest()
	k.unpublish(v, "pod-1")
	k.kernel.umount(filepath.Join(k.stageDir(v), "globalmount"))
	// Nothing is mounted any more, but the kubelet's record is there.
	n.line(v, "no stage", func(l *volumesv1alpha1.NodeVolume) bool { return l.InUse && l.StagedPath == "" })
	k.must(os.RemoveAll(k.stageDir(v))) // no mount shows this
	n.gone(v)
	if calls := n.driver.made(); len(calls) > 0 {
		t.Errorf("calls on node %s: %v, want none for the kubelet's volume", n.name, calls)
	}
}

func testKubeletAdopts(t *testing.T, c *cluster) {
	n := c.node(t)
	v, k := testVolume{handle: "vol"}, fakeKubelet{n}
	k.stage(v)
	n.start()
	n.line(v, "a line without an attachment", usedByKubelet(""))
	n.attach(v, "uid-1")
	n.line(v, "the attachment's line", usedByKubelet("uid-1"))
	n.changeEntry(v, func(e *volumesv1alpha1.NodeAttachment) { e.AttachmentUID = "uid-2" })
	n.looked()
	n.line(v, "the same line", usedByKubelet("uid-1"))
	k.unstage(v)
	n.gone(v)
}

// looked waits until the agent has acknowledged another fence.
func (n *node) looked() *volumesv1alpha1.NodeVolumeState {
	n.t.Helper()
	var at int64
	n.changeState(func(s *volumesv1alpha1.NodeVolumeState) { s.Spec.Protocol.Fences++; at = s.Generation + 1 })
	return n.state("a look", func(s *volumesv1alpha1.NodeVolumeState) bool { return s.Status.ObservedGeneration >= at })
}

func testKubeletRestart(t *testing.T, c *cluster) {
	n, v, k, a := c.withKubelet(t)
	n.attach(v, "uid-1")
	k.stage(v)
	n.line(v, "a line", usedByKubelet("uid-1"))
	a.kill()
	n.changeEntry(v, func(e *volumesv1alpha1.NodeAttachment) { e.State = volumesv1alpha1.AttachmentDetaching })
	b := n.start()
	n.looked()
	n.line(v, "the line of before", usedByKubelet("uid-1"))
	b.kill()
	n.must(os.Remove(filepath.Join(n.root, "volumes-of-kubelet.json")))
	n.start()
	n.looked()
	n.line(v, "the line that the API told of", usedByKubelet("uid-1"))
}

func testKubeletAnew(t *testing.T, c *cluster) {
	n, v, k, a := c.withKubelet(t)
	n.attach(v, "uid-1")
	k.stage(v)
	n.line(v, "a line", usedByKubelet("uid-1"))
	a.kill()
	k.unstage(v)
	n.changeEntry(v, func(e *volumesv1alpha1.NodeAttachment) { e.AttachmentUID = "uid-2" })
	k.stage(v)
	n.start()
	n.line(v, "the new attachment's line", usedByKubelet("uid-2"))
	if len(n.kernel.shutdowns) > 0 {
		t.Errorf("filesystems of node %s that were shut down: %v, want none", n.name, n.kernel.shutdowns)
	}
}

func testKubeletShares(t *testing.T, c *cluster) {
	n, v, k, _ := c.withKubelet(t)
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	n.ready(i)
	k.write(filepath.Join(k.stageDir(v), "vol_data.json"), kubeletRecord(v))
	k.publish(v, "pod-1")
	n.looked()
	n.line(v, "the agent's line", func(l *volumesv1alpha1.NodeVolume) bool {
		return l.InUse && l.PublishedBy == volumesv1alpha1.PublisherAgent && len(l.Publications) == 1
	})
	n.release(i)
	n.condition(i, volumesv1alpha1.ConditionPublished, volumesv1alpha1.ReasonReleased)
	n.unfinalize(i)
	n.line(v, "the kubelet's line", func(l *volumesv1alpha1.NodeVolume) bool {
		return usedByKubelet("uid-1")(l) && l.Error == nil && len(l.Publications) == 0
	})
	if _, ok := n.kernel.at(filepath.Join(n.root, "staged", record.Hash(v.name()))); ok {
		t.Errorf("volume %s: the agent's reference keeps the kubelet from unstaging, want it gone", v.name())
	}
	k.unpublish(v, "pod-1")
	if count, _ := n.driver.count("unstage vol"); count > 0 {
		t.Errorf("volume %s: %d unstage calls while the kubelet uses it, want 0", v.name(), count)
	}
	k.unstage(v)
	n.gone(v)
	n.nothingLeft()
}

func testFence(t *testing.T, c *cluster) {
	n, v, k, a := c.withKubelet(t)
	n.begun(0)
	n.looked() // the confirmation of the session has been seen as well
	a.rest()
	// A record without a mount: no change of the mount table shows it.
	k.write(filepath.Join(k.stageDir(v), "vol_data.json"), kubeletRecord(v))
	a.writes.reset()
	s := n.looked()
	if l := handshake.VolumeOf(s, v.name()); l == nil || !l.InUse {
		t.Errorf("volume %s: acknowledged is %+v, want it in use, which an observation shows", v.name(), s.Status)
	}
	a.rest()
	if w := a.writes.list(); len(w) != 1 {
		t.Errorf("writes for one acknowledgement: %v, want 1", w)
	}
}

func testIdle(t *testing.T, c *cluster) {
	n, v, k, a := c.withKubelet(t)
	n.attach(v, "uid-1")
	k.stage(v)
	k.publish(v, "pod-1")
	n.state("the publication", func(s *volumesv1alpha1.NodeVolumeState) bool { return s.Status.Summary.Published == 1 })
	n.looked()
	n.proven(a, v)
	a.rest()
	a.writes.reset()
	// The table changes, but not for the kubelet's volumes.
	n.kernel.mount(mount.Entry{Path: "/elsewhere", Root: "/", Major: 9, Minor: 9, FSType: "ext4"})
	n.kernel.umount("/elsewhere")
	n.kernel.changed()
	n.eventually("the events taken", func() bool { return len(n.kernel.changes) == 0 })
	a.rest()
	if w := a.writes.list(); len(w) > 0 {
		t.Errorf("writes of the agent of node %s: %v, want none", n.name, w)
	}
	// The kubelet writes its record again: one report proves that what is mounted is still of the attachment.
	before := a.observer.Use(v.name()).StageWritten
	k.write(filepath.Join(k.stageDir(v), "vol_data.json"), kubeletRecord(v))
	n.eventually("it is proven again", func() bool {
		u := a.observer.Use(v.name())
		return u.StageWritten != before && u.Proven()
	})
	a.rest()
	if w := a.writes.list(); len(w) != 1 {
		t.Errorf("writes for one proof: %v, want 1", w)
	}
}

func testOwnIsNoUse(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	i := n.want(v, "data")
	n.ready(i)
	n.looked()
	if u := a.observer.Use(v.name()); u != nil {
		t.Errorf("volume %s: use of the kubelet %+v, want none, it is the agent's own stage", v.name(), u)
	}
	n.release(i)
	n.gone(v)
	n.looked()
	if u := a.observer.Use(v.name()); u != nil {
		t.Errorf("volume %s after its end: use of the kubelet %+v, want none", v.name(), u)
	}
}

func testKubeletDoubt(t *testing.T, c *cluster) {
	n := c.node(t)
	v, w, k := testVolume{handle: "vol"}, testVolume{handle: "other"}, fakeKubelet{n}
	n.start()
	n.attach(v, "uid-1")
	n.attach(w, "uid-2")
	k.write(filepath.Join(k.stageDir(v), "vol_data.json"), nil)
	n.looked()
	s := n.line(v, "a line", usedByKubelet("uid-1"))
	if l := handshake.VolumeOf(s, w.name()); l != nil {
		t.Errorf("volume %s: line %+v, want none, the hash is another's", w.name(), l)
	}
	k.must(os.RemoveAll(k.stageDir(v)))
	n.gone(v)
	// A pod's record contains no hash. It may be of any volume that is attached.
	pod := filepath.Join(n.kubelet, "pods", "pod-1", "volumes", "kubernetes.io~csi", "whatever")
	k.write(filepath.Join(pod, "vol_data.json"), []byte(`{"driver`))
	n.looked()
	n.line(v, "a line", usedByKubelet("uid-1"))
	n.line(w, "a line", usedByKubelet("uid-2"))
	n.state("the record named", func(s *volumesv1alpha1.NodeVolumeState) bool {
		c := meta.FindStatusCondition(s.Status.Conditions, volumesv1alpha1.ConditionMountsConsistent)
		return c.Reason == volumesv1alpha1.ReasonMountsDiffer && strings.Contains(c.Message, pod)
	})
	k.must(os.RemoveAll(pod))
	n.gone(v)
	n.gone(w)
}

func testKubeletBlock(t *testing.T, c *cluster) {
	n := c.node(t)
	v, k := testVolume{handle: "raw"}, fakeKubelet{n}
	n.start()
	n.attach(v, "uid-1")
	k.mapDevice(v, "pod-1")
	s := n.line(v, "a line", usedByKubelet("uid-1"))
	if l := handshake.VolumeOf(s, v.name()); l.DevicePath != device("raw") {
		t.Errorf("volume %s: line %+v, want device %s", v.name(), l, device("raw"))
	}
	k.unmapDevice(v, "pod-1")
	n.gone(v)
}

func (k fakeKubelet) mapDevice(v testVolume, pod string) {
	k.t.Helper()
	var record map[string]string
	k.must(json.Unmarshal(kubeletRecord(v), &record))
	record["specVolID"] = "pv-" + v.handle
	data, err := json.Marshal(record)
	k.must(err)
	devices := filepath.Join(k.csi(), "volumeDevices")
	k.write(filepath.Join(devices, "pv-"+v.handle, "data", "vol_data.json"), data)
	links := filepath.Join(k.kubelet, "pods", pod, "volumeDevices", "kubernetes.io~csi")
	k.must(os.MkdirAll(links, 0o750))
	e := mount.Entry{FSType: "devtmpfs", Minor: 6, Root: strings.TrimPrefix(device(v.handle), "/dev"),
		Source: "devtmpfs"}
	for _, path := range []string{filepath.Join(devices, "publish", "pv-"+v.handle, pod),
		filepath.Join(devices, "pv-"+v.handle, "dev", pod)} {
		e.Path = path
		k.kernel.mount(e)
	}
	k.must(os.Symlink(e.Path, filepath.Join(links, "pv-"+v.handle)))
}

func (k fakeKubelet) unmapDevice(v testVolume, pod string) {
	k.t.Helper()
	devices := filepath.Join(k.csi(), "volumeDevices")
	k.must(os.Remove(filepath.Join(k.kubelet, "pods", pod, "volumeDevices", "kubernetes.io~csi", "pv-"+v.handle)))
	k.kernel.umount(filepath.Join(devices, "pv-"+v.handle, "dev", pod))
	k.kernel.umount(filepath.Join(devices, "publish", "pv-"+v.handle, pod))
	k.must(os.RemoveAll(filepath.Join(devices, "pv-"+v.handle)))
}

func released(s *volumesv1alpha1.NodeVolumeState) bool {
	return meta.IsStatusConditionTrue(s.Status.Conditions, volumesv1alpha1.ConditionVolumesReleased)
}

func testVolumesReleased(t *testing.T, c *cluster) {
	n, v, k, _ := c.withKubelet(t)
	n.state("released", released)
	k.stage(v)
	present := func(message string) {
		t.Helper()
		n.state(message, func(s *volumesv1alpha1.NodeVolumeState) bool {
			c := meta.FindStatusCondition(s.Status.Conditions, volumesv1alpha1.ConditionVolumesReleased)
			return c.Reason == volumesv1alpha1.ReasonVolumesPresent && c.Message == message
		})
	}
	present("0 attached, 1 in use")
	n.attach(v, "uid-1")
	present("1 attached, 1 in use")
	k.unstage(v)
	present("1 attached, 0 in use")
	n.changeEntry(v, func(e *volumesv1alpha1.NodeAttachment) { e.State = volumesv1alpha1.AttachmentDetaching })
	n.looked()
	present("1 attached, 0 in use")
	n.changeState(func(s *volumesv1alpha1.NodeVolumeState) { s.Spec.Attachments = nil })
	n.state("released", released)
	k.write(filepath.Join(k.stageDir(v), "vol_data.json"), nil)
	n.looked()
	present("0 attached, 0 in use, and 1 of no known volume")
	k.must(os.RemoveAll(k.stageDir(v)))
	n.state("released", released)
}

func testKubeletAway(t *testing.T, c *cluster) {
	n, v, k, a := c.withKubelet(t)
	n.attach(v, "uid-1")
	k.stage(v)
	k.publish(v, "pod-1")
	n.proven(a, v)
	n.changeEntry(v, forceAway)
	n.eventually("the filesystem shut down", func() bool { return n.kernel.shutDown() == 1 })
	n.looked()
	n.line(v, "still in use", usedByKubelet("uid-1"))
	if _, ok := n.kernel.at(filepath.Join(k.podDir(v, "pod-1"), "mount")); !ok {
		t.Errorf("volume %s: nothing is mounted for pod-1, want the kubelet's mount, which is the kubelet's to undo",
			v.name())
	}
	k.unpublish(v, "pod-1")
	n.looked()
	n.line(v, "still staged", usedByKubelet("uid-1"))
	k.unstage(v)
	n.gone(v)
	if n.kernel.shutDown() != 1 {
		t.Errorf("volume %s: shut down %d times, want 1", v.name(), n.kernel.shutDown())
	}
}

// proven waits until a report has proven on which attachment the volume is mounted, and the disk records it for the
// next agent.
func (n *node) proven(a *running, v testVolume) {
	n.t.Helper()
	n.eventually("it is proven on which attachment the volume is mounted", func() bool {
		now := a.observer.Use(v.name())
		data, err := os.ReadFile(a.observer.File().Path)
		var saved kubelet.UseFile
		if err == nil {
			err = json.Unmarshal(data, &saved)
		}
		return now != nil && now.Proven() && err == nil && saved.Uses[v.name()].ProvenStage == now.ProvenStage
	})
}

func testKubeletAwayRecordedAgain(t *testing.T, c *cluster) {
	n, v, k, a := c.withKubelet(t)
	n.attach(v, "uid-1")
	k.stage(v)
	n.proven(a, v)
	k.write(filepath.Join(k.stageDir(v), "vol_data.json"), kubeletRecord(v)) // as a restarted kubelet does
	n.looked()
	n.proven(a, v)
	a.stop()
	n.changeEntry(v, forceAway)
	n.start()
	n.eventually("the filesystem shut down", func() bool { return n.kernel.shutDown() == 1 })
}

// testKubeletAwayStagedAnew: the kubelet undid its stage and died before it removed its record. The next one finds the
// record and stages the next attachment under the same device number; it writes into the file that is there.
func testKubeletAwayStagedAnew(t *testing.T, c *cluster) {
	for name, away := range map[string]func(*node, testVolume){
		"the next attachment has an entry": func(n *node, v testVolume) { n.attach(v, "uid-2") },
		"upstream attached it again": func(n *node, _ testVolume) {
			n.changeState(func(s *volumesv1alpha1.NodeVolumeState) {
				metav1.SetMetaDataAnnotation(&s.ObjectMeta, volumesv1alpha1.DeclaredReleasedPrefix+"uid-1", "scrapped")
				s.Spec.Attachments = nil
			})
		},
		"the agent has yet to report": func(n *node, v testVolume) { n.changeEntry(v, forceAway) },
	} {
		t.Run(name, func(t *testing.T) {
			n := c.node(t)
			v, k := testVolume{handle: "vol"}, fakeKubelet{n}
			a := n.start()
			n.attach(v, "uid-1")
			k.stage(v)
			n.proven(a, v)
			a.kill()
			k.kernel.umount(filepath.Join(k.stageDir(v), "globalmount"))
			away(n, v)
			k.stage(v)
			a = n.start()
			n.looked()
			a.rest()
			n.leftAlone(v, k)
		})
	}
}

// leftAlone fails if what the kubelet has staged was shut down or taken away.
func (n *node) leftAlone(v testVolume, k fakeKubelet) {
	n.t.Helper()
	if n.kernel.shutDown() > 0 {
		n.t.Errorf("filesystems of node %s that were shut down: %v, want none", n.name, n.kernel.shutdowns)
	}
	if _, ok := n.kernel.at(filepath.Join(k.stageDir(v), "globalmount")); !ok {
		n.t.Errorf("volume %s: the kubelet's stage was unmounted, want it mounted", v.name())
	}
	if count, _ := n.driver.count("unstage " + v.handle); count > 0 {
		n.t.Errorf("volume %s: %d unstage calls of what the kubelet has staged, want 0", v.name(), count)
	}
}

func testKubeletAwayRebooted(t *testing.T, c *cluster) {
	n := c.node(t)
	v, k := testVolume{handle: "vol"}, fakeKubelet{n}
	n.rebooted(v, k)
	n.attach(v, "uid-2")
	k.stage(v)
	a := n.start()
	n.looked()
	a.rest()
	n.leftAlone(v, k)
}

func testKubeletAwayBlock(t *testing.T, c *cluster) {
	n := c.node(t)
	v, k := testVolume{handle: "raw"}, fakeKubelet{n}
	n.start()
	n.attach(v, "uid-1")
	k.mapDevice(v, "pod-1")
	n.line(v, "a line", usedByKubelet("uid-1"))
	n.changeEntry(v, forceAway)
	n.line(v, "unprotected", func(l *volumesv1alpha1.NodeVolume) bool {
		return usedByKubelet("uid-1")(l) && l.Unprotected && l.Error != nil
	})
	k.unmapDevice(v, "pod-1")
	n.gone(v)
}

func testKubeletNotAway(t *testing.T, c *cluster) {
	n, v, k, a := c.withKubelet(t)
	n.attach(v, "uid-1")
	// The attachment was forced away and is gone; upstream attached the volume again and the kubelet mounted it.
	n.changeEntry(v, func(e *volumesv1alpha1.NodeAttachment) {
		forceAway(e)
		e.DetachedTime = &e.Evidence.Time
	})
	n.looked()
	k.stage(v)
	n.line(v, "a line without an attachment", usedByKubelet(""))
	// An ordinary detach is no reason either.
	w := testVolume{handle: "other"}
	n.attach(w, "uid-2")
	k.stage(w)
	n.line(w, "a line", usedByKubelet("uid-2"))
	n.changeEntry(w, func(e *volumesv1alpha1.NodeAttachment) {
		e.State = volumesv1alpha1.AttachmentDetaching
		e.Evidence = &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceAgentReleased, Time: metav1.Now()}
	})
	n.looked()
	a.rest()
	if n.kernel.shutDown() > 0 {
		t.Errorf("filesystems of node %s that were shut down: %v, want none", n.name, n.kernel.shutdowns)
	}
}

func testKubeletStale(t *testing.T, c *cluster) {
	n, v, k, _ := c.withKubelet(t)
	n.attach(v, "uid-1")
	k.stage(v)
	n.line(v, "a line", usedByKubelet("uid-1"))
	n.attach(v, "uid-2")
	i := n.want(v, "data")
	n.condition(i, volumesv1alpha1.ConditionStaged, volumesv1alpha1.ReasonSharedByKubelet)
	n.leftAlone(v, k)
	if calls := n.driver.made(); len(calls) > 0 {
		t.Errorf("calls on node %s: %v, want none", n.name, calls)
	}
	k.unstage(v)
	n.ready(i)
	n.line(v, "the agent's line", func(l *volumesv1alpha1.NodeVolume) bool { return l.AttachmentUID == "uid-2" })
}

// unlistedIn is an entry that was forced away and is gone. The agent is asked for another observation.
func unlistedIn(boot string) func(*volumesv1alpha1.NodeAttachment) {
	return func(e *volumesv1alpha1.NodeAttachment) {
		forceAway(e)
		e.DetachedTime, e.Protocol.UnlistedBootID, e.Protocol.RebootGeneration = &e.Evidence.Time, boot, 1
	}
}

// rebooted has the kubelet's volume on uid-1, lets the node lose power, and starts the agent of the next boot.
func (n *node) rebooted(v testVolume, k fakeKubelet) {
	n.t.Helper()
	a := n.start()
	n.attach(v, "uid-1")
	k.stage(v)
	k.publish(v, "pod-1")
	n.line(v, "a line", usedByKubelet("uid-1"))
	a.kill()
	n.kernel.reboot()
	n.setBoot("boot-2")
}

func waitingKubelet(l *volumesv1alpha1.NodeVolume) bool { return usedByKubelet("")(l) && l.Waiting }

func testKubeletWaits(t *testing.T, c *cluster) {
	n := c.node(t)
	v, k := testVolume{handle: "vol"}, fakeKubelet{n}
	n.rebooted(v, k)
	a := n.start()
	n.looked()
	n.line(v, "the old attachment's line", usedByKubelet("uid-1"))
	n.changeEntry(v, unlistedIn("boot-1"))
	n.line(v, "a kubelet that waits", waitingKubelet)
	a.kill()
	n.start()
	n.looked()
	n.line(v, "the same line after a restart", waitingKubelet)
	n.changeState(func(s *volumesv1alpha1.NodeVolumeState) { s.Spec.Attachments = nil })
	n.looked()
	n.line(v, "it waits as long as nothing is attached", waitingKubelet)
	n.attach(v, "uid-2")
	n.line(v, "the next attachment's line", usedByKubelet("uid-2"))
	k.stage(v)
	n.looked()
	n.line(v, "the same line with the mount", usedByKubelet("uid-2"))
	if n.kernel.shutDown() > 0 {
		t.Errorf("filesystems of node %s that were shut down: %v, want none", n.name, n.kernel.shutdowns)
	}
}

func testKubeletTouches(t *testing.T, c *cluster) {
	n := c.node(t)
	v, k := testVolume{handle: "vol"}, fakeKubelet{n}
	n.rebooted(v, k)
	k.write(filepath.Join(k.stageDir(v), "vol_data.json"), kubeletRecord(v)) // before a call that still runs
	n.start()
	n.changeEntry(v, unlistedIn("boot-1"))
	n.looked()
	n.line(v, "the old attachment's line", func(l *volumesv1alpha1.NodeVolume) bool {
		return usedByKubelet("uid-1")(l) && !l.Waiting
	})
}

func testKubeletSameBoot(t *testing.T, c *cluster) {
	n := c.node(t)
	v, k := testVolume{handle: "vol"}, fakeKubelet{n}
	n.rebooted(v, k)
	n.start()
	n.changeEntry(v, unlistedIn("boot-2"))
	n.looked()
	n.line(v, "the old attachment's line", func(l *volumesv1alpha1.NodeVolume) bool {
		return usedByKubelet("uid-1")(l) && !l.Waiting
	})
}
