/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/system"
)

// fullVariable asks for the tests that take long.
const fullVariable = "HAWSER_TEST_MACHINES_FULL"

func needFull(t *testing.T, what string) {
	t.Helper()
	if os.Getenv(fullVariable) == "" {
		t.Skipf("LEFT OUT of a short run: %s, FULL=1 has it", what)
	}
}

// followed is the agent that writes its steps down and can be stopped at each of them.
const followed = "agent-followed"

// buildFollowed builds the agent with testdata/steps.
func buildFollowed(t *testing.T) {
	t.Helper()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := overlay(t.TempDir(), map[string]string{"cmd/agent/stop.go": "test/machine/testdata/steps/stop.go"},
		change{"cmd/agent/main.go", "\to := f.Options\n", "\to.Step = stopAt\n"})
	ok(err)
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", overlay,
		"-o", filepath.Join(lab.dir, "bin", followed), "./cmd/agent")
	build.Dir, build.Env = apiserver.Root(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the agent that is followed: error %v, want success: %s", err, out)
	}
}

// life is a volume that is wanted, grown and released, and how far it got.
type life struct {
	*volume
	filled, grown, unwanted bool
}

// live brings the volume through its life, until ctx ends.
func (l *life) live(ctx context.Context) error {
	l.want()
	if _, err := lab.sys.AwaitIntent(ctx, namespace, l.name, system.Ready); err != nil {
		return err
	}
	l.fill()
	l.filled = true
	l.grow("192Mi")
	l.grown = true
	if _, err := lab.sys.AwaitIntent(ctx, namespace, l.name, hasGrown); err != nil {
		return err
	}
	l.unwant()
	l.unwanted = true
	_, err := lab.sys.AwaitIntent(ctx, namespace, l.name, isGone)
	return err
}

func hasGrown(i *volumesv1alpha1.VolumeAttachmentIntent) bool { return hasBytes(192 << 20)(i) }

func hasBytes(bytes int64) func(*volumesv1alpha1.VolumeAttachmentIntent) bool {
	return func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return i != nil && i.Status.Capacity != nil && i.Status.Capacity.Value() >= bytes
	}
}

func isGone(i *volumesv1alpha1.VolumeAttachmentIntent) bool { return i == nil }

// end checks that the volume came to what is wanted of it, with what was written, and releases it.
func (l *life) end() {
	l.t.Helper()
	if l.unwanted {
		l.released()
		l.want()
	}
	path := l.mounted()
	if l.grown {
		l.await(hasGrown)
	}
	if l.filled {
		if got := l.must("cat %s/file", path); got != "kept" {
			l.t.Errorf("the volume has %q, want what was written before", got)
		}
	}
	l.must("echo new >%s/new && sync -f %[1]s/new", path)
	l.release()
}

// follow has the agent write down its steps from now on, and stop at one of them.
func (n *node) follow(step string) {
	n.t.Helper()
	n.must("printf %%s '%s' >/run/agent-stop && : >/run/agent-steps", step)
}

// untilStopped ends when the agent is stopped at its step.
func (n *node) untilStopped() context.Context {
	ctx, cancel := context.WithCancel(n.limited())
	go func() {
		defer cancel()
		_, _ = n.RunFor(ctx, patience, "until [ -e /run/agent-stopped ]; do sleep 0.1; done")
	}()
	return ctx
}

// tries is how many lives may pass until one has a step.
const tries = 5

// stoppedLife is one with the agent stopped at the step, nil if no life had the step.
func (n *node) stoppedLife(step string) *life {
	n.t.Helper()
	for range tries {
		l := &life{volume: n.newClaim(diskExt4, "64Mi")}
		n.follow(step)
		err := l.live(n.untilStopped())
		if errors.Is(err, context.Canceled) {
			return l
		}
		n.ok(err)
		// The last step comes when the intent is gone already.
		if answer, err := n.Try(n.limited(), 5*time.Second, "until [ -e /run/agent-stopped ]; do sleep 0.1; done"); err ==
			nil && !answer.TimedOut {
			return l
		}
	}
	if !strings.Contains(step, "intent status") {
		n.t.Fatalf("%d lives had no step %q, want that the agent stops at it", tries, step)
	}
	return nil
}

// Ten minutes: each step costs a boot. What was seen is in docs/internals/machines.md.
func TestAVolumeIsWholeAfterAPowerCutAtAnyStepOfTheAgent(t *testing.T) {
	needFull(t, "power cuts at each step of the agent")
	buildFollowed(t)
	n := newNodeOf(t, followed)
	whole := &life{volume: n.newClaim(diskExt4, "64Mi")}
	n.follow("none")
	n.ok(whole.live(n.limited()))
	all := strings.Split(n.must("cat /run/agent-steps; rm /run/agent-steps"), "\n")
	t.Logf("%d steps: %s", len(all), strings.Join(all, ", "))
	for _, step := range all {
		t.Run(step, func(t *testing.T) {
			n.t = t
			l := n.stoppedLife(step)
			if l == nil {
				t.Logf("%d lives had no step %q: how many reports the agent makes depends on time", tries, step)
				return
			}
			n.ok(n.CutPower())
			n.ok(n.PowerOn(t.Context()))
			n.startPrograms()
			l.end()
		})
	}
}
