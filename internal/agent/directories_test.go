/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/test/csiloop/harness/harnesstest"
)

func TestPodsHaveDirectoriesOfIntents(t *testing.T) {
	runAll(t, map[string]func(*testing.T, *cluster){
		"volumes come, go and are relabelled while the pod runs":                        testDirectoryFollows,
		"a volume that a process uses stays until it lets go":                           testDirectoryHeld,
		"a pod that reads only gets its volumes read-only, and a new one as well":       testDirectoryReadOnly,
		"what happened while no agent ran is made up for":                               testDirectoryRestart,
		"the record of a directory that is lost is found in the mount table":            testDirectoryRecordLost,
		"a volume that was forced away goes, and comes again on its next attachment":    testDirectoryForcedAway,
		"a pod that cannot have a directory is refused with the reason":                 testDirectoryRefused,
		"the end of the pod waits for what is mounted in its directory by others":       testDirectoryForeignMount,
		"a volume of which the kernel may not report all uses stays until the pod ends": testDirectoryUntilEnd,
		"a container that is added later keeps the volumes":                             testDirectoryDebugged,
		"a volume without a device of its own stays until the pod ends":                 testDirectoryDeviceless,
		"a mount that a stranger has removed from a directory comes back":               testDirectoryShownAgain,
		"a directory whose mount goes on after its call is the pod's then":              testDirectoryLate,
		"a volume that comes back under another device number is shown again":           testDirectoryRenumbered,
		"a volume that a directory shows is one of a pod, also for its figures":         testDirectoryFigures,
		"the record of a part of a volume has the whole volume":                         testDirectoryPart,
		"a volume that hangs keeps neither pod nor other volumes":                       testDirectoryHangs,
		"a directory has the label of container files on a node with SELinux":           testDirectorySELinux,
		"one event names all containers that receive no mounts":                         testDirectoryDeaf,
		"an event names the runtime class of a sandbox":                                 testDirectorySandboxed,
		"a volume that another pod has alone is named in an event":                      testDirectoryOtherPod,
		"an intent of a pod, one for less, or of another label is not in a directory":   testDirectorySelects,
	})
}

// directory is a pod, in the API too, whose inline volume data shows the intents that the selector matches.
func (n *node) directory(name, selector string, change func(*corev1.Pod)) testPod {
	n.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: n.name + "-" + name},
		Spec: corev1.PodSpec{NodeName: n.name, Containers: []corev1.Container{{Name: "main", Image: "none",
			VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data",
				MountPropagation: ptr.To(corev1.MountPropagationHostToContainer)}}}},
			Volumes: []corev1.Volume{{Name: "data"}}},
	}
	if change != nil {
		change(pod)
	}
	n.must(n.client.Create(n.t.Context(), pod))
	p := testPod{node: n, name: pod.Name, uid: pod.UID,
		attributes: map[string]string{volumesv1alpha1.AttributeIntents: selector}}
	p.made()
	return p
}

func labelled(value string) func(*volumesv1alpha1.VolumeAttachmentIntent) {
	return func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Labels = map[string]string{"app": value} }
}

// opened publishes the directory of the pod.
func (p testPod) opened(r *running) {
	p.t.Helper()
	if err := p.answer(p.publish(r)); err != nil {
		p.t.Fatalf("publishing to pod %s: %v, want no error", p.name, err)
	}
	if e, ok := p.kernel.at(p.target()); !ok || !e.IsDirectory() {
		p.t.Errorf("at the target path of pod %s is %+v, want a directory", p.name, e)
	}
}

func (p testPod) place(i *volumesv1alpha1.VolumeAttachmentIntent) string {
	return filepath.Join(p.target(), i.Name)
}

// holds waits until the directory shows these volumes at the places of their intents, and nothing else.
func (p testPod) holds(want map[*volumesv1alpha1.VolumeAttachmentIntent]testVolume) {
	p.t.Helper()
	p.eventually("what the directory of pod "+p.name+" is to show", func() bool {
		entries, err := os.ReadDir(p.target())
		p.must(err)
		if len(entries) != len(want) {
			return false
		}
		for i, v := range want {
			if e, ok := p.kernel.at(p.place(i)); !ok || e.Minor != minorOf(v.handle) {
				return false
			}
		}
		return true
	})
}

// shown is a pod whose directory shows the volume of one intent.
func (c *cluster) shown(t *testing.T) (testPod, testVolume, *volumesv1alpha1.VolumeAttachmentIntent, *running) {
	t.Helper()
	n, v, a := c.attached(t)
	i := n.want(v, "data", labelled("db"))
	n.ready(i)
	p := n.directory("web", "app=db", nil)
	p.opened(a)
	p.holds(shows{i: v})
	return p, v, i, a
}

type shows map[*volumesv1alpha1.VolumeAttachmentIntent]testVolume

func testDirectoryFollows(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	other := testVolume{handle: "other"}
	n.attach(other, "uid-other")
	db := n.want(v, "data", labelled("db"))
	n.ready(db)
	p := n.directory("web", "app=db", nil)
	p.opened(a)
	directories := func(want int32) func(*volumesv1alpha1.NodeVolumeState) bool {
		return func(s *volumesv1alpha1.NodeVolumeState) bool { return s.Status.Summary.Directories == want }
	}
	n.state("the directory is counted", directories(1))
	p.holds(shows{db: v})
	web := n.want(other, "second", labelled("web"))
	n.ready(web)
	p.holds(shows{db: v})
	n.update(web, labelled("db"))
	p.holds(shows{db: v, web: other})
	p.opened(a) // as a kubelet does after its own restart
	n.update(db, labelled("web"))
	p.holds(shows{web: other})
	n.ready(db)
	n.update(db, labelled("db"))
	p.holds(shows{db: v, web: other})
	n.release(db)
	n.gone(v)
	p.holds(shows{web: other})
	p.endedBeside(a)
	p.nothing()
	n.state("no directory is left", directories(0))
	n.ready(web)
	n.release(web)
	n.gone(other)
	n.nothingLeft()
}

func testDirectoryHeld(t *testing.T, c *cluster) {
	p, v, i, a := c.shown(t)
	p.kernel.hold(p.place(i), true)
	p.update(i, labelled("web"))
	p.eventually("an event that names the process", func() bool {
		for {
			select {
			case note := <-a.events.Events:
				if strings.Contains(note, "VolumeHeld") && strings.Contains(note, "process 1 (db)") {
					return true
				}
			default:
				return false
			}
		}
	})
	p.holds(shows{i: v})
	p.release(i)
	p.intent(i, "waiting for the process", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		c := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionPublished)
		return c != nil && c.Reason == volumesv1alpha1.ReasonUsedByPods &&
			strings.Contains(c.Message, "pod default/"+p.name) && strings.Contains(c.Message, "process 1 (db)")
	})
	p.notCalled("unpublish vol")
	p.kernel.hold(p.place(i), false)
	p.gone(v)
	p.holds(nil)
	p.ended(a)
	p.nothingLeft()
}

// staysUntilEnd releases the intent, and checks that its volume stays in the directory until the pod ends. The
// condition names the pod, since when it is there, who ends the wait, and why.
func (p testPod) staysUntilEnd(v testVolume, i *volumesv1alpha1.VolumeAttachmentIntent, a *running, because string) {
	p.t.Helper()
	p.update(i, labelled("web"))
	p.noted(a, "VolumeHeld", "waiting until pod default/"+p.name, because)
	p.release(i)
	p.intent(i, "waiting for the end of the pod", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		c := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionPublished)
		return c != nil && c.Reason == volumesv1alpha1.ReasonUsedByPods &&
			strings.Contains(c.Message, "pod default/"+p.name) && strings.Contains(c.Message, because) &&
			strings.Contains(c.Message, "deleting it") && i.Status.LastError != nil && i.Status.LastError.NextAttemptTime == nil
	})
	p.notCalled("unpublish vol")
	p.holds(shows{i: v})
	p.endedBeside(a)
	p.gone(v)
	p.calledTimes("unpublish vol", 1)
	p.nothingLeft()
}

func testDirectoryUntilEnd(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	i := n.want(v, "data", labelled("db"))
	n.ready(i)
	p := n.directory("web", "app=db", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "none",
			VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}}
	})
	p.opened(a)
	p.holds(shows{i: v})
	p.staysUntilEnd(v, i, a, "container first mounts volume data without mountPropagation")
}

func testDirectoryDebugged(t *testing.T, c *cluster) {
	p, v, i, a := c.shown(t)
	pod := &corev1.Pod{}
	p.must(p.client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: p.name}, pod))
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debug", Image: "none", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)}}}}
	p.must(p.client.SubResource("ephemeralcontainers").Update(t.Context(), pod))
	p.staysUntilEnd(v, i, a, "container debug may mount")
}

func testDirectoryDeviceless(t *testing.T, c *cluster) {
	n := c.node(t)
	n.kernel.noDevices = true
	a, v := n.start(), testVolume{handle: "vol"}
	n.attach(v, "uid-1")
	i := n.want(v, "data", labelled("db"))
	n.ready(i)
	p := n.directory("web", "app=db", nil)
	p.opened(a)
	p.holds(shows{i: v})
	p.staysUntilEnd(v, i, a, "no block device of its own")
}

func testDirectoryShownAgain(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	i := n.want(v, "data", labelled("db"))
	n.ready(i)
	p := n.directory("web", "app=db", func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts[0].MountPropagation = nil })
	p.opened(a)
	p.holds(shows{i: v})
	p.must(p.kernel.Unmount(t.Context(), p.place(i)))
	p.opened(a)
	p.holds(shows{i: v})
	p.ended(a)
}

func testDirectoryRenumbered(t *testing.T, c *cluster) {
	n := c.node(t)
	n.kernel.noDevices = true
	a, v := n.start(), testVolume{handle: "vol"}
	n.attach(v, "uid-1")
	i := n.want(v, "data", labelled("db"))
	n.ready(i)
	p := n.directory("web", "app=db", nil)
	p.opened(a)
	p.holds(shows{i: v})
	a.stop()
	n.kernel.renumber()
	for _, path := range slices.Backward(n.kernel.mounted()) {
		if path != p.target() {
			n.kernel.umount(path)
		}
	}
	a = n.start()
	minor := n.kernel.filesystemOf(v.handle, "", "").Minor
	n.eventually("the volume in the directory with its later number", func() bool {
		e, ok := n.kernel.at(p.place(i))
		return ok && e.Minor == minor
	})
	n.release(i)
	p.endedBeside(a)
	n.gone(v)
	n.nothingLeft()
}

func testDirectoryReadOnly(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	i := n.want(v, "data", labelled("db"))
	n.ready(i)
	p := n.directory("web", "app=db", nil)
	p.readOnly = true
	p.opened(a)
	p.holds(shows{i: v})
	n.update(i, labelled("web"))
	p.holds(nil)
	n.update(i, labelled("db"))
	p.holds(shows{i: v})
	if e, _ := n.kernel.at(p.place(i)); !e.ReadOnly() {
		t.Errorf("mount of intent %s in the directory of pod %s: %+v, want it read-only", i.Name, p.name, e)
	}
	p.ended(a)
}

func testDirectoryRestart(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	other := testVolume{handle: "other"}
	n.attach(other, "uid-other")
	leaves, comes := n.want(v, "leaves", labelled("db")), n.want(other, "comes", labelled("web"))
	n.ready(leaves)
	n.ready(comes)
	p := n.directory("web", "app=db", nil)
	p.opened(a)
	p.holds(shows{leaves: v})
	a.kill()
	n.update(leaves, labelled("web"))
	n.update(comes, labelled("db"))
	a = n.start()
	p.holds(shows{comes: other})
	a.kill()
	n.release(comes)
	a = n.start()
	n.gone(other)
	p.holds(nil)
	p.ended(a)
}

func testDirectoryRecordLost(t *testing.T, c *cluster) {
	p, v, i, a := c.shown(t)
	a.stop()
	p.must(os.RemoveAll(filepath.Join(p.root, "pods")))
	a = p.start()
	p.holds(shows{i: v})
	p.opened(a) // as a kubelet does after its own restart; then the selector is known again
	p.update(i, labelled("web"))
	p.holds(nil)
	p.release(i)
	p.gone(v)
	p.ended(a)
	p.nothingLeft()
}

func testDirectoryForcedAway(t *testing.T, c *cluster) {
	p, v, i, a := c.shown(t)
	p.kernel.hold(p.place(i), true)
	p.attach(v, "uid-2")
	p.eventually("the filesystem shut down", func() bool { return p.kernel.shutDown() == 1 })
	p.notCalled("unstage vol")
	p.kernel.hold(p.place(i), false)
	p.calledTimes("stage vol", 2)
	p.holds(shows{i: v})
	p.ended(a)
}

func testDirectoryRefused(t *testing.T, c *cluster) {
	n, _, a := c.started(t)
	for name, change := range map[string]func(*corev1.Pod){
		"subpath":   func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts[0].SubPath = "part" },
		"hostusers": func(p *corev1.Pod) { p.Spec.HostUsers = ptr.To(false) },
		"fsgroup": func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr.To[int64](2000)}
		},
	} {
		p := n.directory(name, "app=db", change)
		p.refused(a, codes.FailedPrecondition, "is a directory of intents")
		p.nothing()
	}
	missing := n.directory("missing", "app=db", nil)
	missing.uid = "another"
	missing.made()
	missing.refused(a, codes.NotFound, "does not exist in the API")
	missing.nothing()
}

func testDirectoryHangs(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	other := testVolume{handle: "other"}
	n.attach(other, "uid-other")
	hangs, shown := n.want(v, "a", labelled("db")), n.want(other, "b", labelled("db"))
	n.ready(hangs)
	n.ready(shown)
	p := n.directory("web", "app=db", nil)
	release := n.kernel.hang(p.place(hangs))
	p.opened(a)
	p.eventually("the other volume in the directory", func() bool {
		e, ok := n.kernel.at(p.place(shown))
		return ok && e.Minor == minorOf(other.handle)
	})
	release()
	p.holds(shows{hangs: v, shown: other})
	p.ended(a)
}

func testDirectorySELinux(t *testing.T, c *cluster) {
	n := c.node(t)
	n.withSELinux()
	a := n.start()
	p := n.directory("web", "app=db", nil)
	p.opened(a)
	if e, _ := n.kernel.at(p.target()); !slices.Contains(e.SuperOptions, "context="+fileLabel) {
		t.Errorf("directory of a pod: %+v, want the label of container files without a category", e)
	}
	p.ended(a)
}

// noted waits for an event that contains all the texts.
func (p testPod) noted(a *running, texts ...string) {
	p.t.Helper()
	p.eventually(fmt.Sprintf("an event with %q", texts), func() bool {
		for {
			select {
			case note := <-a.events.Events:
				if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(note, text) }) {
					return true
				}
			default:
				return false
			}
		}
	})
}

func testDirectoryDeaf(t *testing.T, c *cluster) {
	n, _, a := c.started(t)
	p := n.directory("web", "app=db", func(p *corev1.Pod) {
		p.Spec.Containers[0].VolumeMounts[0].MountPropagation = nil
		second := p.Spec.Containers[0].DeepCopy()
		second.Name = "second"
		p.Spec.Containers = append(p.Spec.Containers, *second)
	})
	p.opened(a)
	p.noted(a, "MountPropagationMissing", "main, second")
	p.ended(a)
}

func testDirectorySandboxed(t *testing.T, c *cluster) {
	n, _, a := c.started(t)
	// The API server admits no pod whose class does not exist.
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "kata"}, Handler: "kata"}
	n.must(n.client.Create(t.Context(), class))
	p := n.directory("web", "app=db", func(p *corev1.Pod) { p.Spec.RuntimeClassName = ptr.To("kata") })
	p.opened(a)
	p.noted(a, "SandboxedRuntime", "runtime class kata", "may stay empty")
	p.ended(a)
}

func testDirectoryOtherPod(t *testing.T, c *cluster) {
	n, _, a := c.started(t)
	v := testVolume{handle: "single", change: func(e *volumesv1alpha1.NodeAttachment) {
		e.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	}}
	n.attach(v, "uid-1")
	i := n.want(v, "data", labelled("db"))
	n.ready(i)
	first, second := n.directory("first", "app=db", nil), n.directory("second", "app=db", nil)
	first.opened(a)
	first.holds(shows{i: v})
	second.opened(a)
	second.noted(a, "VolumeNotShown", "another pod")
	second.endedBeside(a)
	first.ended(a)
}

func testDirectoryForeignMount(t *testing.T, c *cluster) {
	p, _, i, a := c.shown(t)
	own := filepath.Join(p.place(i), "own")
	p.must(os.MkdirAll(own, 0o755))
	p.kernel.mount(p.kernel.filesystemOf("foreign", "tmpfs", own))
	p.must(os.RemoveAll(own)) // of the volume, which is not there in this kernel
	p.ended(a)
	if _, mounted := p.kernel.at(own); mounted {
		t.Errorf("%s is mounted after the end of pod %s, want that it is not", own, p.name)
	}
}

func testDirectoryFigures(t *testing.T, c *cluster) {
	p, v, _, a := c.shown(t)
	found := a.pods.OfVolume(v.name())
	if len(found) != 1 || found[0].Pod.Name != p.name || !found[0].HasPlace() {
		t.Errorf("pods of volume %s: %+v, want pod %s with its directory", v.handle, found, p.name)
	}
	p.ended(a)
}

func testDirectoryPart(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	n.driver.inner = "inner"
	i := n.want(v, "data", labelled("db"), subPath)
	n.ready(i)
	p := n.directory("web", "app=db", nil)
	p.opened(a)
	p.holds(shows{i: v})
	whole := record.SourceOf(n.kernel.filesystemOf(v.handle, "ext4", ""))
	if found := a.pods.OfVolume(v.name()); len(found) != 1 || found[0].Source != whole+"inner" || found[0].Whole != whole {
		t.Errorf("pods of volume %s: %+v, want one with the part inner of %s", v.handle, found, whole)
	}
	p.ended(a)
}

func testDirectorySelects(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	n.ready(n.want(v, "other", labelled("web")))
	staged := n.want(v, "staged", labelled("db"), func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.Spec.DesiredState = volumesv1alpha1.DesiredStaged
	})
	n.ready(staged)
	shown := n.want(v, "shown", labelled("db"))
	n.ready(shown)
	p := n.directory("web", "app in (db)", nil)
	p.opened(a)
	p.holds(shows{shown: v})
	p.ended(a)
}

func TestAnAgentKilledAtAnyStepOfADirectoryLosesNothingAndLeavesNothing(t *testing.T) {
	c := newCluster(t)
	killedAtEachStep(t, func(t *testing.T, killAt string) ([]string, bool) {
		n, v := c.node(t), testVolume{handle: "vol"}
		n.attach(v, "uid-1")
		mounted := func(path string) bool { _, ok := n.kernel.at(path); return ok }
		return n.directoryLife(v, mounted, killAt, func(i *volumesv1alpha1.VolumeAttachmentIntent) {
			n.release(i)
			n.gone(v)
			n.nothingLeft()
		})
	})
}

func TestAnAgentKilledAtAnyStepOfADirectoryWithRealMountsLeavesNothing(t *testing.T) {
	harnesstest.NeedRoot(t)
	harnesstest.NeedProgram(t, "mkfs.ext4")
	// A killed agent of this test is in the process of the next one, and has the publication open at this step. So the
	// kernel finds it in use. The test above covers the step.
	const opened = "after pod bind"
	c := newCluster(t)
	killedAtEachStep(t, func(t *testing.T, killAt string) (steps []string, killed bool) {
		n := c.realNode(t)
		v := n.volume(corev1.PersistentVolumeFilesystem, "ext4", 64)
		n.attach(v, "uid-1")
		mounted := func(path string) bool {
			table, err := n.mounter.Table()
			n.must(err)
			_, ok := table.At(path)
			return ok
		}
		steps, killed = n.directoryLife(v, mounted, killAt, func(i *volumesv1alpha1.VolumeAttachmentIntent) { n.end(v, i) })
		return slices.DeleteFunc(steps, func(step string) bool { return step == opened }), killed
	})
}

// killedAtEachStep lives once without a kill, which shows the steps, and once for each of them.
func killedAtEachStep(t *testing.T, live func(t *testing.T, killAt string) (steps []string, killed bool)) {
	t.Helper()
	steps, _ := live(t, "")
	if len(steps) < 8 {
		t.Fatalf("steps of a directory %v, want at least 8", steps)
	}
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			if _, killed := live(t, step); !killed {
				t.Errorf("agent was not killed at step %q, want that it is", step)
			}
		})
	}
}

// directoryLife shows a volume in the directory of a pod, takes it out by a label, shows it again, and ends the pod.
// The agent is killed at the step, and another one comes after. It returns the steps of the plugin.
func (n *node) directoryLife(v testVolume, mounted func(path string) bool, killAt string,
	end func(*volumesv1alpha1.VolumeAttachmentIntent)) (steps []string, killed bool) {
	n.t.Helper()
	var passing sync.Mutex
	drive := n.drive
	n.drive = func(o *Options) {
		if drive != nil {
			drive(o)
		}
		step := o.Step
		o.Step = func(name string) {
			if strings.Contains(name, "pod ") || strings.Contains(name, "directory") ||
				strings.Contains(name, "place") {
				passing.Lock()
				steps = append(steps, name)
				passing.Unlock()
			}
			step(name)
		}
	}
	n.dieAt = killAt
	a := n.start()
	revive := func() {
		if isClosed(a.dead) {
			killed, n.dieAt = true, ""
			a = n.start()
		}
	}
	i := n.want(v, "data", labelled("db"))
	n.ready(i)
	p := n.directory("web", "app=db", nil)
	call := func(call func(*running) <-chan error) {
		n.t.Helper()
		answer := call(a)
		select {
		case err := <-answer:
			n.must(err)
		case <-a.dead:
			revive()
			n.must(p.answer(call(a)))
		}
	}
	reaches := func(want shows) {
		n.t.Helper()
		n.eventually("the directory as it is to be", func() bool {
			revive()
			entries, err := os.ReadDir(p.target())
			return err == nil && mounted(p.place(i)) == (len(want) == 1) && len(entries) == len(want)
		})
	}
	call(p.publish)
	reaches(shows{i: v})
	n.update(i, labelled("web"))
	reaches(nil)
	n.update(i, labelled("db"))
	reaches(shows{i: v})
	call(p.unpublish)
	p.nothing()
	revive()
	end(i)
	passing.Lock()
	defer passing.Unlock()
	slices.Sort(steps)
	return slices.Compact(steps), killed
}

// isClosed reports whether the channel is closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
