/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"testing"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/mount"
)

// held has the agent's calls into the kernel be held where the test asks for it.
func (b *bench) held() *heldMounts {
	m := newHeldMounts(benchMounts{b.kernel, b})
	b.agent.Mounts = boundedMounts{Mounts: m, timeout: patience}
	return m
}

// givesUp has the agent do one thing, and stops waiting for it once its call is held. The call goes on.
func (b *bench) givesUp(h *hold, next act) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	defer cancel()
	f, done := b.facts(), make(chan error, 1)
	go func() { done <- b.agent.carryOut(ctx, b.volume, f, next) }()
	select {
	case <-h.entered:
	case err := <-done:
		b.t.Fatalf("%s ended before its call was held: %v", next.verb, err)
	}
	cancel()
	if err := <-done; !mount.IsPending(err) {
		b.t.Errorf("%s, whose call still runs: %v", next.verb, err)
	}
}

// pending checks that the act is refused because an earlier call still runs.
func (b *bench) pending(verb verb) {
	b.t.Helper()
	if err := b.act(verb); !mount.IsPending(err) {
		b.t.Errorf("%s beside a call that still runs: %v", verb, err)
	}
}

// staysInUse checks that the volume cannot be let go of.
func (b *bench) staysInUse() {
	b.t.Helper()
	b.refused(b.act(doClear), volumesv1alpha1.ReasonUnstageFailed)
	if line := b.api(); line == nil || !line.InUse || b.volume.record == nil {
		b.t.Errorf("reported: %+v", line)
	}
}

func TestAStageIsNotUndoneBeforeALateBindOfItHasEnded(t *testing.T) {
	b := newBench(t, filesystem)
	path, kernel := b.agent.paths.reference(b.of.name()), b.held()
	b.want("intent")
	b.done(doTake, doStage)
	bind := kernel.hold("bind", path)
	b.givesUp(bind, act{verb: doRefer})
	deletedIntents(b)
	b.pending(doUnstage)
	b.staysInUse()
	bind.release()
	<-bind.ended
	if _, ok := b.kernel.at(path); !ok {
		t.Fatal("the bind had no effect")
	}
	b.done(doUnstage, doClear)
	if _, ok := b.kernel.at(path); ok || b.api() != nil {
		t.Errorf("mounted %v, reported %+v", b.kernel.mounted(), b.api())
	}
}

func TestAVolumeIsInUseWhileAnEarlierCallMayBindIt(t *testing.T) {
	b := newBench(t, filesystem)
	path, kernel := b.agent.paths.reference(b.of.name()), b.held()
	b.unused()
	b.done(doUnstage)
	b.must(b.kernel.EnsureDir(t.Context(), path, ownDirMode))
	bind, done := kernel.hold("bind", path), make(chan error, 1)
	go func() { done <- kernel.Bind(t.Context(), b.volume.record.Stage.Path, path, false, nil) }()
	<-bind.entered
	b.staysInUse() // although nothing is mounted
	bind.release()
	b.must(<-done)
	b.staysInUse()
	b.done(doUnrefer, doClear)
}

func TestALateUnmountIsNotCountedAsDone(t *testing.T) {
	b := newBench(t, filesystem)
	path, kernel := b.agent.paths.reference(b.of.name()), b.held()
	b.unused()
	unmount := kernel.hold("unmount", path)
	b.givesUp(unmount, act{verb: doUnstage})
	b.staysInUse()
	b.pending(doUnstage)
	b.staysInUse()
	unmount.release()
	<-unmount.ended
	b.done(doUnstage, doClear)
	if b.api() != nil {
		t.Errorf("reported %+v", b.api())
	}
}

// TestAPublicationWhoseBindIsLateIsNotForgotten: the pod's directory would become mounted after its intent is released.
func TestAPublicationWhoseBindIsLateIsNotForgotten(t *testing.T) {
	b := newBench(t, filesystem)
	kernel := b.held()
	intent := b.want("intent", subPath)
	b.driver.inner = intent.Spec.Mount.SubPath
	b.stage()
	path := b.agent.paths.published(intent.Namespace, intent.Name)
	bind := kernel.hold("bind", path)
	b.givesUp(bind, act{verb: doPublish, intent: intent.UID})
	deletedIntents(b)
	b.pending(doUnpublish)
	if len(b.volume.record.Uses) != 1 {
		t.Errorf("uses %+v while the bind still runs", b.volume.record.Uses)
	}
	bind.release()
	<-bind.ended
	b.done(doUnpublish)
	if _, ok := b.kernel.at(path); ok || len(b.volume.record.Uses) != 0 {
		t.Errorf("mounted %v, uses %+v", b.kernel.mounted(), b.volume.record.Uses)
	}
}

func testSlowBind(t *testing.T, c *cluster) {
	n := c.node(t)
	n.timeout = 2 * patience // the agent waits for the bind throughout
	kernel := newHeldMounts(n.kernel)
	n.drive = func(o *Options) { o.Mounts = kernel }
	a := n.start()
	slow, fine := testVolume{handle: "slow"}, testVolume{handle: "fine"}
	bind := kernel.hold("bind", a.paths.reference(slow.name()))
	n.attach(slow, "uid-1")
	i := n.want(slow, "slow")
	<-bind.entered
	n.attach(fine, "uid-2")
	n.ready(n.want(fine, "fine"))
	bind.release()
	n.ready(i)
}
