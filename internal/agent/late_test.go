/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/mount"
)

// held has the agent's calls into the kernel be held where the test asks for it.
func (b *bench) held() *heldMounts {
	m := newHeldMounts(benchMounts{b.kernel, b})
	bounded := boundedMounts{Mounts: m, timeout: patience}
	b.agent.Mounts, b.agent.steps.Mounts = bounded, bounded
	return m
}

// isPending reports whether a call goes on whose end is not known.
func isPending(err error) bool {
	var pending *mount.PendingError
	return errors.As(err, &pending)
}

// givesUp has the agent do one thing, and stops waiting for it once its call is held. The call goes on.
func (b *bench) givesUp(h *hold, next plan.Step) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	defer cancel()
	f, done := b.facts(), make(chan error, 1)
	go func() { done <- b.agent.steps.Run(ctx, b.volume, f, next) }()
	select {
	case <-h.entered:
	case err := <-done:
		b.t.Fatalf("%s ended before its call was held, with %v, want it to wait", next.Kind, err)
	}
	cancel()
	if err := <-done; !isPending(err) {
		b.t.Errorf("%s, whose call still runs: error %v, want a *mount.PendingError", next.Kind, err)
	}
}

// pending checks that the act is refused because an earlier call still runs.
func (b *bench) pending(verb plan.Kind) {
	b.t.Helper()
	if err := b.act(verb); !isPending(err) {
		b.t.Errorf("%s beside a call that still runs: error %v, want a *mount.PendingError", verb, err)
	}
}

// staysInUse checks that the volume cannot be let go of.
func (b *bench) staysInUse() {
	b.t.Helper()
	b.refused(b.act(plan.ClearInUse), volumesv1alpha1.ReasonUnstageFailed)
	if line := b.api(); line == nil || !line.InUse || b.volume.Record == nil {
		b.t.Errorf("volume %s: reported is %+v, want it in use", b.volume.Name, line)
	}
}

func TestAStageIsNotUndoneBeforeALateBindOfItHasEnded(t *testing.T) {
	b := newBench(t, filesystem)
	path, kernel := b.agent.paths.Reference(b.of.name()), b.held()
	b.want("intent")
	b.done(plan.MarkInUse, plan.Stage)
	bind := kernel.hold("bind", path)
	b.givesUp(bind, plan.Step{Kind: plan.Reference})
	deletedIntents(b)
	b.pending(plan.Unstage)
	b.staysInUse()
	bind.release()
	<-bind.ended
	if _, ok := b.kernel.at(path); !ok {
		t.Fatalf("nothing is mounted at %s after the bind, want the stage", path)
	}
	b.done(plan.Unstage, plan.ClearInUse)
	if _, ok := b.kernel.at(path); ok || b.api() != nil {
		t.Errorf("volume vol: mounted %v, reported %+v, want nothing at its reference and no line", b.kernel.mounted(),
			b.api())
	}
}

func TestAVolumeIsInUseWhileAnEarlierCallMayBindIt(t *testing.T) {
	b := newBench(t, filesystem)
	path, kernel := b.agent.paths.Reference(b.of.name()), b.held()
	b.unused()
	b.done(plan.Unstage)
	b.must(b.kernel.EnsureDir(t.Context(), path, operation.OwnDirMode))
	bind, done := kernel.hold("bind", path), make(chan error, 1)
	go func() { done <- kernel.Bind(t.Context(), b.volume.Record.Stage.Path, path, false, nil) }()
	<-bind.entered
	b.staysInUse() // although nothing is mounted
	bind.release()
	b.must(<-done)
	b.staysInUse()
	b.done(plan.Dereference, plan.ClearInUse)
}

func TestALateUnmountIsNotCountedAsDone(t *testing.T) {
	b := newBench(t, filesystem)
	path, kernel := b.agent.paths.Reference(b.of.name()), b.held()
	b.unused()
	unmount := kernel.hold("unmount", path)
	b.givesUp(unmount, plan.Step{Kind: plan.Unstage})
	b.staysInUse()
	b.pending(plan.Unstage)
	b.staysInUse()
	unmount.release()
	<-unmount.ended
	b.done(plan.Unstage, plan.ClearInUse)
	if b.api() != nil {
		t.Errorf("volume vol: reported %+v, want no line", b.api())
	}
}

// TestAPublicationWhoseBindIsLateIsNotForgotten: the pod's directory would become mounted after its intent is released.
func TestAPublicationWhoseBindIsLateIsNotForgotten(t *testing.T) {
	b := newBench(t, filesystem)
	kernel := b.held()
	intent := b.want("intent", subPath)
	b.driver.inner = intent.Spec.Mount.SubPath
	b.stage()
	path := b.agent.paths.Published(intent.Namespace, intent.Name)
	bind := kernel.hold("bind", path)
	b.givesUp(bind, plan.Step{Kind: plan.Publish, Intent: intent.UID})
	deletedIntents(b)
	b.pending(plan.Unpublish)
	if len(b.volume.Record.Uses) != 1 {
		t.Errorf("volume vol: uses %+v while the bind still runs, want one", b.volume.Record.Uses)
	}
	bind.release()
	<-bind.ended
	b.done(plan.Unpublish)
	if _, ok := b.kernel.at(path); ok || len(b.volume.Record.Uses) != 0 {
		t.Errorf("volume vol: mounted %v, uses %+v, want no use and nothing at the published path", b.kernel.mounted(),
			b.volume.Record.Uses)
	}
}

func testSlowBind(t *testing.T, c *cluster) {
	n := c.node(t)
	n.timeout = 2 * patience // the agent waits for the bind throughout
	kernel := newHeldMounts(n.kernel)
	n.drive = func(o *Options) { o.Mounts = kernel }
	a := n.start()
	slow, fine := testVolume{handle: "slow"}, testVolume{handle: "fine"}
	bind := kernel.hold("bind", a.paths.Reference(slow.name()))
	n.attach(slow, "uid-1")
	i := n.want(slow, "slow")
	<-bind.entered
	n.attach(fine, "uid-2")
	n.ready(n.want(fine, "fine"))
	bind.release()
	n.ready(i)
}

// slowly starts an agent of the node whose calls into the kernel can be held.
func (n *node) slowly() (*heldMounts, *running) {
	n.t.Helper()
	kernel := newHeldMounts(n.kernel)
	n.drive = func(o *Options) { o.Mounts = kernel }
	return kernel, n.start()
}

// givesUp has the kubelet publish, and give up once the agent's call into the kernel is held, which then goes on. Until
// it has ended, the record stays, and the pod cannot end.
func (p testPod) givesUp(a *running, h *hold) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	answer := make(chan error, 1)
	go func() {
		_, err := a.plugin.NodePublishVolume(ctx, p.request())
		answer <- err
	}()
	select {
	case <-h.entered:
	case err := <-answer:
		p.t.Fatalf("publishing to pod %s ended before its call was held, with %v, want it to wait", p.name, err)
	}
	cancel()
	if err := p.answer(answer); status.Code(err) != codes.Aborted {
		p.t.Errorf("publishing to pod %s, whose call still runs: %v, want Aborted", p.name, err)
	}
	if err := p.answer(p.unpublish(a)); err == nil {
		p.t.Errorf("unpublishing pod %s beside a call that still runs: no error, want one", p.name)
	}
	if records := p.podRecords(); len(records) != 1 {
		p.t.Errorf("records of pods %v while the call still runs, want one", records)
	}
	h.release()
	<-h.ended
}

func testPodLateBind(t *testing.T, c *cluster) {
	n, v := c.node(t), testVolume{handle: "vol"}
	kernel, a := n.slowly()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	n.ready(i)
	p := n.pod("web", i)
	p.givesUp(a, kernel.hold("bind", p.target()))
	p.mounted(a, v)
	p.ended(a)
	n.release(i)
	n.gone(v)
	n.nothingLeft()
}

func testDirectoryLate(t *testing.T, c *cluster) {
	n := c.node(t)
	kernel, a := n.slowly()
	p := n.directory("web", "app=db", nil)
	p.givesUp(a, kernel.hold("directory", p.target()))
	p.opened(a)
	p.ended(a)
}
