/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/mount"
)

func TestVolumesHaveTheLabelOfTheirUsers(t *testing.T) {
	runAll(t, map[string]func(*testing.T, *cluster){
		"a driver gets the option of the kubelet":                          testLabelled,
		"nothing is labelled without SELinux":                              testNoSELinux,
		"an intent with another label waits until the first has gone":      testLabelConflict,
		"what the kubelet has mounted is shared with one label":            testKubeletsLabel,
		"what the kubelet mounts meanwhile is not taken over":              testKubeletsLabelMeanwhile,
		"a driver that does not mount with labels publishes nothing":       testUnlabelled,
		"a label that ends the mount option is refused by the agent too":   testLabelInjected,
		"a label that the volume cannot have is refused":                   testLabelRefused,
		"an intent that changes its label has the volume with the new one": testRelabelled,
	})
}

const fileLabel = "system_u:object_r:container_file_t:s0"

var seLinuxFS = mount.Entry{Path: "/sys/fs/selinux", Root: "/", Minor: 91, FSType: "selinuxfs"}

// withSELinux has the node's kernel and files of SELinux.
func (n *node) withSELinux() {
	n.kernel.mount(seLinuxFS)
	n.drive = func(o *Options) {
		o.NodeFiles = fstest.MapFS{"usr/share/containers/selinux/contexts": {Data: []byte(`file = "` + fileLabel + `"`)}}
	}
}

// labelling is a driver that mounts with labels.
func labelling(e *volumesv1alpha1.NodeAttachment) { e.SELinuxMount = true }

func level(l string) func(*volumesv1alpha1.VolumeAttachmentIntent) {
	return func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.Spec.Mount = &volumesv1alpha1.MountSpec{SELinuxOptions: &corev1.SELinuxOptions{Level: l}}
	}
}

// labelled is a node with SELinux and a running agent, with a volume of a driver that labels.
func (c *cluster) labelled(t *testing.T) (*node, testVolume) {
	t.Helper()
	n, v := c.node(t), testVolume{handle: "vol", change: labelling}
	n.withSELinux()
	n.start()
	n.attach(v, "uid-1")
	return n, v
}

func (n *node) stageOptions() []string {
	n.driver.mu.Lock()
	defer n.driver.mu.Unlock()
	return n.driver.stages["vol"].MountOptions
}

func testLabelled(t *testing.T, c *cluster) {
	n, v := c.labelled(t)
	path := n.ready(n.want(v, "data", level("s0:c1,c2"))).Status.Path
	// The last one is what the kubelet appends for a pod with this level.
	want := []string{"noatime", `context="system_u:object_r:container_file_t:s0:c1,c2"`}
	n.driver.mu.Lock()
	published := n.driver.publishs[path].MountOptions
	n.driver.mu.Unlock()
	if staged := n.stageOptions(); !slices.Equal(staged, want) || !slices.Equal(published, want) {
		t.Errorf("options: stage %q, publish %q; want %q", staged, published, want)
	}
	n.ready(n.want(v, "same", level("s0:c2,c1")))
}

func testNoSELinux(t *testing.T, c *cluster) {
	n, v, _ := c.attached(t)
	n.ready(n.want(v, "data", level("s0:c1,c2")))
	if got := n.stageOptions(); !slices.Equal(got, []string{"noatime"}) {
		t.Errorf("options of a stage without SELinux: %q, want none for a label", got)
	}
}

func testLabelConflict(t *testing.T, c *cluster) {
	n, v := c.labelled(t)
	first := n.want(v, "first", level("s0:c1,c2"))
	n.ready(first)
	second, none := n.want(v, "second", level("s0:c3,c4")), n.want(v, "none")
	for i, wanted := range map[*volumesv1alpha1.VolumeAttachmentIntent]string{
		second: "s0:c3,c4", none: "no SELinux label",
	} {
		got := n.condition(i, volumesv1alpha1.ConditionPublished, volumesv1alpha1.ReasonSELinuxConflict)
		n.names(got, first.Name, fileLabel+":c1,c2", i.Name, wanted)
		if meta.FindStatusCondition(got.Status.Conditions, volumesv1alpha1.ConditionStalled) != nil {
			t.Errorf("intent %s: conditions %+v, want it to wait", got.Name, got.Status.Conditions)
		}
	}
	n.release(none)
	n.release(first)
	path := n.ready(second).Status.Path
	if e, _ := n.kernel.at(path); !slices.Contains(e.SuperOptions, `context="`+fileLabel+`:c3,c4"`) {
		t.Errorf("mount at %s after the first label has gone: %+v, want the second label", path, e)
	}
}

// names checks that the message of Ready has all texts.
func (n *node) names(i *volumesv1alpha1.VolumeAttachmentIntent, texts ...string) {
	n.t.Helper()
	message := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionReady).Message
	for _, text := range texts {
		if !strings.Contains(message, text) {
			n.t.Errorf("message of intent %s: %q, want %q in it", i.Name, message, text)
		}
	}
}

func testKubeletsLabel(t *testing.T, c *cluster) {
	n, v := c.labelled(t)
	kubelet := fakeKubelet{n}
	kubelet.write(filepath.Join(kubelet.stageDir(v), "vol_data.json"), kubeletRecord(v))
	staged := kubelet.entry(v, filepath.Join(kubelet.stageDir(v), "globalmount"))
	staged.SuperOptions = []string{"rw", `context="` + fileLabel + `:c1,c2"`}
	n.kernel.mount(staged)
	n.names(n.condition(n.want(v, "other", level("s0:c3,c4")), volumesv1alpha1.ConditionStaged,
		volumesv1alpha1.ReasonSELinuxConflict), "the kubelet", "s0:c1,c2", "other", "s0:c3,c4")
	n.ready(n.want(v, "same", level("s0:c1,c2")))
}

// testKubeletsLabelMeanwhile has the kubelet mount with another label after the agent found nothing there. The driver
// reports success for what is mounted already.
func testKubeletsLabelMeanwhile(t *testing.T, c *cluster) {
	n, v := c.labelled(t)
	kubelet := fakeKubelet{n}
	staged := kubelet.entry(v, n.stagingPath(v))
	staged.SuperOptions = []string{"rw", `context="` + fileLabel + `:c3,c4"`}
	var once sync.Once
	n.driver.setBefore(func(method, _ string) error {
		if method == "stage" {
			once.Do(func() {
				kubelet.write(filepath.Join(kubelet.stageDir(v), "vol_data.json"), kubeletRecord(v))
				n.kernel.mount(staged)
			})
		}
		return nil
	})
	i := n.want(v, "data", level("s0:c1,c2"))
	n.names(n.condition(i, volumesv1alpha1.ConditionStaged, volumesv1alpha1.ReasonSELinuxConflict), "s0:c3,c4",
		"s0:c1,c2")
	published := func(call string) bool { return strings.HasPrefix(call, "publish") }
	if calls := n.driver.made(); slices.ContainsFunc(calls, published) {
		t.Errorf("calls: %v, want nothing published", calls)
	}
	n.must(os.Remove(filepath.Join(kubelet.stageDir(v), "vol_data.json")))
	n.kernel.umount(staged.Path)
	n.ready(i)
}

func testUnlabelled(t *testing.T, c *cluster) {
	n, v := c.labelled(t)
	n.driver.mu.Lock()
	n.driver.unlabelled = true
	n.driver.mu.Unlock()
	i := n.want(v, "data", level("s0:c1,c2"))
	got := n.condition(i, volumesv1alpha1.ConditionStaged, volumesv1alpha1.ReasonStageFailed)
	n.names(got, "does not mount with the label")
}

func testLabelRefused(t *testing.T, c *cluster) {
	for reason, change := range map[string]func(*volumesv1alpha1.NodeAttachment){
		"has no seLinuxMount": func(e *volumesv1alpha1.NodeAttachment) { e.SELinuxMount = false },
		"have a label for all": func(e *volumesv1alpha1.NodeAttachment) {
			e.SELinuxMount, e.MountOptions = true, []string{`context="u:r:t:s0"`}
		},
	} {
		n, v := c.node(t), testVolume{handle: "vol", change: change}
		n.withSELinux()
		n.start()
		n.attach(v, "uid-1")
		got := n.condition(n.want(v, "data", level("s0:c1,c2")), volumesv1alpha1.ConditionStaged,
			volumesv1alpha1.ReasonSELinuxOptions)
		n.names(got, reason)
		n.ready(n.want(v, "none"))
	}
}

// testLabelInjected stores an intent under a CRD that does not restrict mount yet.
func testLabelInjected(t *testing.T, c *cluster) {
	n, v := c.labelled(t)
	restore := n.withoutMountRules()
	i := n.want(v, "data", level(`s0",suid,x="hidden`))
	restore()
	got := n.condition(i, volumesv1alpha1.ConditionStaged, volumesv1alpha1.ReasonSELinuxOptions)
	n.names(got, "seLinuxOptions need a level")
	if calls := n.driver.made(); len(calls) > 0 {
		t.Errorf("calls on node %s: %v, want none", n.name, calls)
	}
}

func testRelabelled(t *testing.T, c *cluster) {
	n, v := c.labelled(t)
	i := n.want(v, "data", level("s0:c1,c2"))
	n.ready(i)
	n.update(i, level("s0:c3,c4"))
	path := n.ready(i).Status.Path
	if e, _ := n.kernel.at(path); !slices.Contains(e.SuperOptions, `context="`+fileLabel+`:c3,c4"`) {
		t.Errorf("mount at %s after the change: %+v, want the new label", path, e)
	}
}
