/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/agent/report"
	"github.com/hawser-io/hawser/internal/handshake"
)

func TestFilesAreGivenToAGroup(t *testing.T) {
	runAll(t, map[string]func(*testing.T, *cluster){
		"how many is reported, and the end of the intent ends it":     testWalkOfADeletedIntent,
		"a volume that was taken away does not wait for it":           testWalkOfATakenVolume,
		"another intent does not wait for it, and it continues":       testWalkBesideAnother,
		"the next process continues without another call":             testWalkOfADeadAgent,
		"a failure is the publication's, and is counted on by others": testWalkThatFails,
	})
}

// publicationOf is where the driver publishes for the intent.
func publicationOf(n *node, i *volumesv1alpha1.VolumeAttachmentIntent) string {
	if i.Spec.Mount != nil && i.Spec.Mount.SubPath != "" {
		return filepath.Join(n.root, "publish", string(i.UID))
	}
	return filepath.Join(n.root, "published", i.Namespace, i.Name)
}

// walk is a change of ownership that goes on until the test lets it end.
type walk struct {
	// begun has a value for each root that a change begins with.
	begun chan string
	// finish is closed to let changes end.
	finish chan struct{}
	files  int
	// going counts those that go on.
	going atomic.Int32
}

func (n *node) walks(files int) *walk {
	w := &walk{begun: make(chan string, 100), finish: make(chan struct{}), files: files}
	n.kernel.owning = func(ctx context.Context, root string, progress func(int)) error {
		w.going.Add(1)
		defer w.going.Add(-1)
		w.begun <- root
		progress(w.files)
		select {
		case <-w.finish:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return w
}

// begins waits until files begin to be given to a group, and returns their root.
func (w *walk) begins(t *testing.T) string {
	t.Helper()
	select {
	case root := <-w.begun:
		return root
	case <-t.Context().Done():
		t.Fatal("no file was given to a group before the test ended, want one")
		return ""
	}
}

// owning returns a node with an agent that gives the files of an intent to a group.
func (c *cluster) owning(t *testing.T) (*node, *walk, testVolume, *volumesv1alpha1.VolumeAttachmentIntent, *running) {
	t.Helper()
	n, v := c.node(t), testVolume{handle: "vol"}
	w := n.walks(2048)
	a := n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data", grouped)
	if root := w.begins(t); root != publicationOf(n, i) {
		t.Errorf("intent %s: files at %s are given to a group, want those at %s", i.Name, root, publicationOf(n, i))
	}
	return n, w, v, i, a
}

func testWalkOfADeletedIntent(t *testing.T, c *cluster) {
	n, w, v, i, _ := c.owning(t)
	n.driver.before = func(method, _ string) error {
		if going := w.going.Load(); going > 0 {
			t.Errorf("driver's %s was called while files of intent %s are given to a group, want no call", method, i.Name)
		}
		return nil
	}
	got := n.intent(i, "progress", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		p := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionPublished)
		return p != nil && strings.Contains(p.Message, "2048 files")
	})
	p := meta.FindStatusCondition(got.Status.Conditions, volumesv1alpha1.ConditionPublished)
	for _, part := range []string{i.Namespace + "/" + i.Name, "fsGroup 7", "since "} {
		if !strings.Contains(p.Message, part) {
			t.Errorf("Published of intent %s: message %q, want it to contain %q", i.Name, p.Message, part)
		}
	}
	if p.Reason != volumesv1alpha1.ReasonPublishing || got.Status.Path != "" ||
		meta.IsStatusConditionTrue(got.Status.Conditions, volumesv1alpha1.ConditionReady) {
		t.Errorf("intent %s before its files have their group: status %+v, want it not Ready, without a path, and %s",
			i.Name, got.Status, volumesv1alpha1.ReasonPublishing)
	}
	n.release(i)
	n.gone(v)
	n.nothingLeft()
}

func testWalkOfATakenVolume(t *testing.T, c *cluster) {
	n, _, v, i, _ := c.owning(t)
	n.changeEntry(v, func(e *volumesv1alpha1.NodeAttachment) {
		e.State = volumesv1alpha1.AttachmentDetaching
		e.Evidence = &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceOutOfServiceTaint, Time: metav1.Now()}
	})
	n.gone(v)
	if n.kernel.shutDown() == 0 {
		t.Errorf("volume %s of intent %s was forced away: no filesystem was shut down, want one", v.name(), i.Name)
	}
}

func testWalkBesideAnother(t *testing.T, c *cluster) {
	n, w, v, i, _ := c.owning(t)
	n.ready(n.want(v, "other"))
	if root := w.begins(t); root != publicationOf(n, i) {
		t.Errorf("intent %s: after the interruption files at %s are given to a group, want those at %s", i.Name, root,
			publicationOf(n, i))
	}
	close(w.finish)
	n.ready(i)
	if g := n.kernel.groupOf(publicationOf(n, i)); g != 7 {
		t.Errorf("intent %s is Ready and its files have group %d, want 7", i.Name, g)
	}
}

func testWalkOfADeadAgent(t *testing.T, c *cluster) {
	n, w, v, i, a := c.owning(t)
	a.kill()
	r, err := record.ReadRecord(a.store.Path(v.name()))
	n.must(err)
	if u := r.UseOf(i.UID); u == nil || u.Phase != record.PhaseUnowned {
		t.Errorf("intent %s after its agent was killed: the disk has %+v, want phase %q", i.Name, u, record.PhaseUnowned)
	}
	n.start()
	w.begins(t)
	close(w.finish)
	n.ready(i)
	if g := n.kernel.groupOf(publicationOf(n, i)); g != 7 {
		t.Errorf("intent %s is Ready and its files have group %d, want 7", i.Name, g)
	}
	if count, _ := n.driver.count("publish vol"); count != 1 {
		t.Errorf("volume %s was published %d times, want 1: %v", v.name(), count, n.driver.made())
	}
}

func testWalkThatFails(t *testing.T, c *cluster) {
	n, v := c.node(t), testVolume{handle: "vol"}
	var repaired atomic.Bool
	n.kernel.owning = func(context.Context, string, func(int)) error {
		if repaired.Load() {
			return nil
		}
		return errInjected
	}
	n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data", grouped)
	got := n.condition(i, volumesv1alpha1.ConditionPublished, volumesv1alpha1.ReasonPublishFailed)
	if e := got.Status.LastError; e == nil || e.Operation != "publish" ||
		!strings.Contains(e.Message, errInjected.Error()) {
		t.Errorf("intent %s whose files cannot be given to a group: lastError %+v, want operation publish and %q", i.Name,
			e, errInjected)
	}
	repaired.Store(true)
	if got := n.ready(i); got.Status.LastError != nil {
		t.Errorf("intent %s, which is Ready: lastError %+v, want none", i.Name, got.Status.LastError)
	}
	if count, _ := n.driver.count("publish vol"); count != 1 {
		t.Errorf("volume %s was published %d times, want 1: %v", v.name(), count, n.driver.made())
	}
}

// TestAGroupIsSetOnlyForWhatIsStillThere: between the driver's call and the step anything may happen to the mount.
func TestAGroupIsSetOnlyForWhatIsStillThere(t *testing.T) {
	for name, test := range map[string]struct {
		change func(b *bench, u record.Use)
		// want is the error, and phase the phase of the use afterwards.
		want  func(error) bool
		phase record.Phase
	}{
		"it was unmounted": {func(b *bench, u record.Use) { b.kernel.umount(u.Target) },
			func(err error) bool { return errors.Is(err, failure.ErrChanged) }, record.PhaseUncertain},
		"another volume covers it": {func(b *bench, u record.Use) {
			b.kernel.mount(b.kernel.filesystemOf("other", "ext4", u.Target))
		}, isProblem(volumesv1alpha1.ReasonPathOccupied), record.PhaseUncertain},
		"a directory of the node's disk is there instead": {func(b *bench, u record.Use) {
			b.kernel.umount(u.Target)
			b.kernel.mount(b.kernel.bindOf(b.agent.paths.Kubelet, u.Target))
		}, isProblem(volumesv1alpha1.ReasonPublishFailed), record.PhaseNone}, // it is taken away
		"the record cannot be written": {func(b *bench, _ record.Use) { b.failures["write volumes"] = errInjected },
			isProblem(volumesv1alpha1.ReasonRecordFailed), record.PhaseUnowned},
		"the mount table cannot be read": {func(b *bench, _ record.Use) { b.failures["Table"] = errInjected },
			func(err error) bool { return errors.Is(err, errInjected) }, record.PhaseUnowned},
		"it is not reported as in use": {unreported, func(err error) bool { return errors.Is(err, failure.ErrChanged) },
			record.PhaseUnowned},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, filesystem)
			b.want("intent", grouped)
			b.done(plan.MarkInUse, plan.Stage, plan.Publish)
			f := b.facts()
			test.change(b, *b.volume.Record.UseOf("intent"))
			err := b.agent.steps.Run(t.Context(), b.volume, f, plan.Step{Kind: plan.SetOwnership, Intent: "intent"})
			if u := b.volume.Record.UseOf("intent"); !test.want(err) || u.Phase != test.phase {
				t.Errorf("intent %s: error %v and phase %q, want phase %q", u.Intent.Name, err, u.Phase, test.phase)
			}
			if len(b.owned) > 0 {
				t.Errorf("the files of intent %s were given to %v, want none", "intent", b.owned)
			}
		})
	}
}

// unreported: no acknowledged report has the volume as in use.
func unreported(b *bench, _ record.Use) {
	b.agent.state.Amend(func(s *volumesv1alpha1.NodeVolumeState) { handshake.VolumeOf(s, b.volume.Name).InUse = false })
}

func isProblem(reason string) func(error) bool {
	return func(err error) bool {
		var p *failure.Problem
		return errors.As(err, &p) && p.Reason == reason
	}
}

func TestThePublicationOfAnIntentThatIsGoneGetsItsGroupAndNoEvent(t *testing.T) {
	b := newBench(t, filesystem)
	b.want("intent", grouped)
	b.done(plan.MarkInUse, plan.Stage, plan.Publish)
	b.known = []*volumesv1alpha1.VolumeAttachmentIntent{}
	b.done(plan.SetOwnership)
	if u := b.volume.Record.UseOf("intent"); u.Phase != record.PhaseDone {
		t.Errorf("intent %s, which is gone: phase %q, want %q", u.Intent.Name, u.Phase, record.PhaseDone)
	}
	select {
	case e := <-b.agent.Recorder.(*events.FakeRecorder).Events:
		t.Errorf("intent intent, which is gone: event %q, want none", e)
	default:
	}
}

func TestADriverThatSetsTheGroupByNowLeavesNothingToTheAgent(t *testing.T) {
	b := newBench(t, filesystem)
	b.want("intent", grouped)
	b.done(plan.MarkInUse, plan.Stage, plan.Publish)
	f := b.facts()
	f.DriverSetsGroup = true
	b.must(b.agent.steps.Run(t.Context(), b.volume, f, plan.Step{Kind: plan.SetOwnership, Intent: "intent"}))
	if u := b.volume.Record.UseOf("intent"); len(b.owned) > 0 || u.Phase != record.PhaseDone {
		t.Errorf("intent %s: given to %v and phase %q, want no group and %q", u.Intent.Name, b.owned, u.Phase,
			record.PhaseDone)
	}
}

// TestAPublicationWithoutItsGroupIsNotReady: neither the intent's status nor the node's state calls it published.
func TestAPublicationWithoutItsGroupIsNotReady(t *testing.T) {
	b := newBench(t, filesystem)
	i := b.want("intent", grouped)
	b.done(plan.MarkInUse, plan.Stage, plan.Publish)
	for _, phase := range []record.Phase{record.PhaseUnowned, record.PhaseDone} {
		f, published := b.facts(), phase == record.PhaseDone
		intent := report.NewIntentReport(b.volume.Snapshot(), f, i).Published.OK
		node := report.NewVolumeReport(b.volume.Snapshot(), f).Published
		if u := b.volume.Record.UseOf("intent"); u.Phase != phase || intent != published || node != published {
			t.Errorf("intent %s in phase %q: the intent is published: %t, on the node: %t; want phase %q and %t twice",
				i.Name, u.Phase, intent, node, phase, published)
		}
		if !published {
			b.done(plan.SetOwnership)
		}
	}
}
