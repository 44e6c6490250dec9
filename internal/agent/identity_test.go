/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/driver"
)

func TestWhatIsMountedIsTheVolume(t *testing.T) {
	runAll(t, map[string]func(*testing.T, *cluster){
		"after a reboot a first stage of unknown end is the volume's own":            testUncertainAfterReboot("stage"),
		"after a reboot a first publication of unknown end is the volume's own":      testUncertainAfterReboot("publish"),
		"after a reboot the volume is released though its first stage had no end":    testReleasedAfterReboot,
		"a stage that is put back under another device number is the volume's own":   testUncertainAgain("stage"),
		"a publication that is put back under another device number is the volume's": testUncertainAgain("publish"),
		"a stage that is removed just before the publication is put back":            testStageRemoved("before publish"),
		"a first stage that is removed at once is put back":                          testStageRemoved("after stage"),
		"what a dead agent published of the node's disk is taken away":               testDeadBeforeVerified,
		"another volume in the stage's place is not published":                       testStageReplaced,
		"a stage that was mounted and is not after a success is uncertain":           testStageGone,
		"the agent's own mount of the stage follows the stage":                       testReferenceFollows,
		"a sub path of the node's disk is not published":                             testSubPathOfTheDisk,
		"a driver that stages nothing is published":                                  testStageless,
		"a directory of the node's disk is a volume where it is neither's own":       testDirectory("/srv/volumes/vol", true),
		"a directory of the kubelet is no volume":                                    testDirectory("kubelet", false),
		"a directory of the agent is no volume":                                      testDirectory("root", false),
		"a block volume that is published as a file is refused":                      testNoDevice,
		"a block volume that is published as another device is refused":              testOtherDevice,
		"a stage that the kubelet took just before it was undone is put back":        testKubeletBetween,
	})
}

func unknownEnd() error {
	return &driver.Error{Outcome: driver.Uncertain, Code: "DeadlineExceeded", Message: "no answer"}
}

// testUncertainAfterReboot: the driver mounts the volume in the new boot, under another device number, and gives no
// answer.
func testUncertainAfterReboot(method string) func(*testing.T, *cluster) {
	return func(t *testing.T, c *cluster) {
		n := c.node(t)
		n.timeout, n.driver.after = 500*time.Millisecond, true
		v := testVolume{handle: "vol"}
		a := n.start()
		n.attach(v, "uid-1")
		i := n.want(v, "data")
		path := n.ready(i).Status.Path
		n.settled(v) // by then the disk knows what is mounted
		a.kill()
		old, _ := n.kernel.at(path)
		n.kernel.reboot()
		n.setBoot("boot-2")
		n.driver.fail(method, unknownEnd())
		n.start()
		n.calledTimes(method+" vol", 3) // asked once more after the answer that did not come
		n.ready(i)
		if e, ok := n.kernel.at(path); !ok || e.SameSource(old) {
			t.Errorf("at the path is %+v, want another source than before the reboot: %+v", e, old)
		}
		n.release(i)
		n.gone(v)
		n.nothingLeft()
	}
}

func testReleasedAfterReboot(t *testing.T, c *cluster) {
	n := c.node(t)
	n.timeout, n.driver.after = 500*time.Millisecond, true
	v := testVolume{handle: "vol"}
	a := n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	n.ready(i)
	a.kill()
	n.kernel.reboot()
	n.setBoot("boot-2")
	n.driver.fail("stage", unknownEnd())
	n.start()
	n.condition(i, volumesv1alpha1.ConditionStaged, volumesv1alpha1.ReasonOutcomeUncertain)
	n.release(i)
	n.gone(v)
	n.nothingLeft()
}

// testUncertainAgain: a mount is removed, and the driver puts it back under another device number and gives no answer.
func testUncertainAgain(method string) func(*testing.T, *cluster) {
	return func(t *testing.T, c *cluster) {
		n := c.node(t)
		n.timeout, n.driver.after = 500*time.Millisecond, true
		v := testVolume{handle: "vol"}
		n.start()
		n.attach(v, "uid-1")
		i := n.want(v, "data")
		path := n.ready(i).Status.Path
		n.kernel.renumber()
		n.driver.fail(method, unknownEnd())
		n.kernel.umount(path)
		n.kernel.umount(n.driver.staged("vol").StagingPath)
		n.calledTimes(method+" vol", 3)
		n.ready(i)
		n.release(i)
		n.gone(v)
		n.nothingLeft()
	}
}

// at has the agents of the node do something when they come to the step.
func (n *node) at(step string, do func()) {
	earlier := n.drive
	n.drive = func(o *Options) {
		if earlier != nil {
			earlier(o)
		}
		next := o.Step
		o.Step = func(name string) {
			if name == step {
				do()
			}
			next(name)
		}
	}
}

// shows fails unless the volume is mounted at path.
func (n *node) shows(v testVolume, path string) {
	n.t.Helper()
	if e, ok := n.kernel.at(path); !ok || !e.SameSource(n.kernel.filesystemOf(v.handle, "ext4", path)) {
		n.t.Errorf("at %s is %+v after the calls %v, want volume %s", path, e, n.driver.made(), v.handle)
	}
}

func (n *node) end(v testVolume, intents ...*volumesv1alpha1.VolumeAttachmentIntent) {
	n.t.Helper()
	for _, i := range intents {
		n.release(i)
	}
	n.gone(v)
	n.nothingLeft()
}

func (n *node) stagingPath(v testVolume) string {
	return record.Paths{Root: n.root, Kubelet: n.kubelet}.Staging(v.source())
}

// testStageRemoved: the mount goes after the agent has gathered and before it calls the driver.
func testStageRemoved(step string) func(*testing.T, *cluster) {
	return func(t *testing.T, c *cluster) {
		n := c.node(t)
		v := testVolume{handle: "vol"}
		n.at(step, sync.OnceFunc(func() { n.kernel.umount(n.stagingPath(v)) }))
		n.start()
		n.attach(v, "uid-1")
		i := n.want(v, "data")
		n.shows(v, n.ready(i).Status.Path)
		n.shows(v, n.stagingPath(v))
		n.end(v, i)
	}
}

func testDeadBeforeVerified(t *testing.T, c *cluster) {
	n := c.node(t)
	v := testVolume{handle: "vol"}
	n.at("before publish", sync.OnceFunc(func() { n.kernel.umount(n.stagingPath(v)) }))
	n.dieAt = "after publish"
	a := n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	<-a.dead
	if e, ok := n.kernel.at(filepath.Join(n.root, "published", "default", i.Name)); !ok || e.Major != ownDisk.Major {
		t.Errorf("intent %s: at its path is %+v, want what the driver left of the node's own disk", i.Name, e)
	}
	n.dieAt = ""
	n.start()
	n.shows(v, n.ready(i).Status.Path)
	n.end(v, i)
}

func testStageReplaced(t *testing.T, c *cluster) {
	n := c.node(t)
	v, other := testVolume{handle: "vol"}, testVolume{handle: "other"}
	n.at("before publish", sync.OnceFunc(func() {
		n.kernel.umount(n.stagingPath(v))
		n.kernel.mount(n.kernel.filesystemOf(other.handle, "ext4", n.stagingPath(v)))
	}))
	n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	got := n.condition(i, volumesv1alpha1.ConditionStaged, volumesv1alpha1.ReasonMountLost)
	if meta.IsStatusConditionTrue(got.Status.Conditions, volumesv1alpha1.ConditionReady) || got.Status.Path != "" {
		t.Errorf("intent %s: status %+v, want it not Ready and without a path", got.Name, got.Status)
	}
	if e, ok := n.kernel.at(filepath.Join(n.root, "published", "default", i.Name)); ok {
		t.Errorf("intent %s: at its path is %+v, want nothing", i.Name, e)
	}
	n.kernel.umount(n.stagingPath(v))
	n.shows(v, n.ready(i).Status.Path)
	n.end(v, i)
}

func testStageGone(t *testing.T, c *cluster) {
	n := c.node(t)
	v := testVolume{handle: "vol"}
	again := sync.OnceFunc(func() { n.kernel.umount(n.stagingPath(v)) })
	n.at("after stage", func() {
		if times, _ := n.driver.count("stage vol"); times == 2 {
			again()
		}
	})
	a := n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	n.ready(i)
	n.kernel.umount(n.stagingPath(v))
	n.calledTimes("stage vol", 3)
	n.ready(i)
	if e := a.recorded(); !slices.ContainsFunc(e, func(s string) bool {
		return strings.Contains(s, "is mounted at "+n.stagingPath(v)+" any more")
	}) {
		t.Errorf("events of node %s: %v, want one about %s", n.name, e, n.stagingPath(v))
	}
	n.shows(v, n.stagingPath(v))
	n.end(v, i)
}

func testReferenceFollows(t *testing.T, c *cluster) {
	n, v, _ := c.attached(t)
	i := n.want(v, "data")
	path := n.ready(i).Status.Path
	n.kernel.renumber()
	n.kernel.umount(path)
	n.kernel.umount(n.stagingPath(v))
	n.eventually("a mount of the stage", func() bool {
		e, ok := n.kernel.at(record.Paths{Root: n.root}.Reference(v.name()))
		return ok && e.SameSource(n.kernel.filesystemOf(v.handle, "ext4", ""))
	})
	n.ready(i)
	n.end(v, i)
}

func testSubPathOfTheDisk(t *testing.T, c *cluster) {
	n := c.node(t)
	n.driver.inner = "inner"
	v := testVolume{handle: "vol"}
	n.at("before publish", sync.OnceFunc(func() { n.kernel.umount(n.stagingPath(v)) }))
	n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data", func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.Spec.Mount = &volumesv1alpha1.MountSpec{SubPath: "inner", FSGroup: ptr.To[int64](2000)}
	})
	path := n.ready(i).Status.Path
	if e, ok := n.kernel.at(path); !ok || e.Major == ownDisk.Major || e.Root != "/inner" {
		t.Errorf("intent %s: at its path is %+v, want /inner of the volume", i.Name, e)
	}
	n.end(v, i)
}

func testStageless(t *testing.T, c *cluster) {
	n := c.node(t)
	n.driver.stageless = true
	v := testVolume{handle: "vol"}
	n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	path := n.ready(i).Status.Path
	n.shows(v, path)
	n.kernel.umount(path)
	n.calledTimes("publish vol", 2)
	n.ready(i)
	n.end(v, i)
}

// testDirectory: a driver that stages nothing publishes a directory of the node's disk.
func testDirectory(dir string, volume bool) func(*testing.T, *cluster) {
	return func(t *testing.T, c *cluster) {
		n := c.node(t)
		within := map[string]string{"kubelet": filepath.Join(n.kubelet, "plugins", "driver", "vol"),
			"root": filepath.Join(n.root, "vol")}
		n.driver.stageless, n.driver.directory = true, cmp.Or(within[dir], dir)
		v := testVolume{handle: "vol"}
		n.start()
		n.attach(v, "uid-1")
		i := n.want(v, "data")
		if volume {
			n.ready(i)
			n.end(v, i)
			return
		}
		got := n.condition(i, volumesv1alpha1.ConditionPublished, volumesv1alpha1.ReasonPublishFailed)
		if m := got.Status.LastError.Message; !strings.Contains(m, n.driver.directory) ||
			!strings.Contains(m, "node's own disk") {
			t.Errorf("intent %s: message %q, want it to name %s of the node's own disk", got.Name, m, n.driver.directory)
		}
		n.eventually("taken away", func() bool {
			_, published := n.kernel.at(filepath.Join(n.root, "published", "default", i.Name))
			return !published
		})
		n.end(v, i)
	}
}

func testNoDevice(t *testing.T, c *cluster) {
	n := c.node(t)
	n.driver.directory = "/srv/file"
	v := testVolume{handle: "raw", mode: corev1.PersistentVolumeBlock}
	n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	got := n.condition(i, volumesv1alpha1.ConditionPublished, volumesv1alpha1.ReasonPublishFailed)
	if m := got.Status.LastError.Message; !strings.Contains(m, "no device node") {
		t.Errorf("intent %s: message %q, want it to say that it is no device node", got.Name, m)
	}
	n.end(v, i)
}

func testOtherDevice(t *testing.T, c *cluster) {
	n := c.node(t)
	v := testVolume{handle: "raw", mode: corev1.PersistentVolumeBlock}
	staged := n.kernel.filesystemOf("other", "devtmpfs", n.stagingPath(v))
	staged.Root = "/loop"
	n.at("before stage", sync.OnceFunc(func() { n.kernel.mount(staged) }))
	n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	got := n.condition(i, volumesv1alpha1.ConditionPublished, volumesv1alpha1.ReasonPublishFailed)
	if m := got.Status.LastError.Message; !strings.Contains(m, device("raw")) || !strings.Contains(m, device("other")) {
		t.Errorf("intent %s: message %q, want it to name both devices", got.Name, m)
	}
	n.end(v, i)
}

// testKubeletBetween: the kubelet takes the volume for staged after the agent has gathered and before it undoes the
// stage.
func testKubeletBetween(t *testing.T, c *cluster) {
	n := c.node(t)
	v, k := testVolume{handle: "vol"}, fakeKubelet{n}
	record := filepath.Join(k.stageDir(v), "vol_data.json")
	n.at("before unstage", sync.OnceFunc(func() { k.write(record, kubeletRecord(v)) }))
	n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	n.ready(i)
	n.release(i)
	n.calledTimes("stage vol", 2)
	n.line(v, "the kubelet's use", usedByKubelet("uid-1"))
	n.shows(v, n.stagingPath(v))
	k.unstage(v)
	n.gone(v)
	n.nothingLeft()
}
