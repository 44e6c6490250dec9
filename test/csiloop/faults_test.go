/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csiloop_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hawser-io/hawser/test/csiloop/faults"
	"github.com/hawser-io/hawser/test/csiloop/harness"
	"github.com/hawser-io/hawser/test/csiloop/ledger"
	"github.com/hawser-io/hawser/test/csiloop/loopdev"
)

// staged reports whether the node has a device for the volume.
func (v *volume) staged(n *pseudoNode) bool {
	v.w.t.Helper()
	devices, err := loopdev.Find(v.link(n))
	v.w.must(err)
	return len(devices) > 0
}

func (w *world) fault(fault faults.Fault) string {
	w.t.Helper()
	id, err := faults.Add(w.backing, fault)
	w.must(err)
	return id
}

// blockWorld returns a world with a volume that is ready to be staged.
func blockWorld(t *testing.T) (*world, *pseudoNode, *volume) {
	t.Helper()
	w := newWorld(t, harness.Options{}, "node-a")
	v := w.create("v", mib, block(writer))
	w.must(v.attach(w.nodes[0]))
	return w, w.nodes[0], v
}

func TestAnErrorHasNoEffectBeforeTheWorkAndTheWholeEffectAfterIt(t *testing.T) {
	w, node, v := blockWorld(t)
	w.fault(faults.Fault{Method: "NodeStageVolume", Action: faults.Error, Code: codes.Unavailable,
		Message: "no luck", Count: 1})
	if message := w.want(codes.Unavailable, v.stage(node)); message != "no luck" {
		t.Errorf("message of the stage of volume %s: %q, want that of the fault: no luck", v.id, message)
	}
	if v.staged(node) {
		t.Errorf("volume %s is staged by a call that failed before its effect, want it not staged", v.id)
	}
	w.fault(faults.Fault{Method: "NodeStageVolume", Action: faults.Error, Code: codes.Internal,
		When: faults.After, Count: 1})
	w.want(codes.Internal, v.stage(node))
	if !v.staged(node) {
		t.Errorf("volume %s is not staged by a call that failed after its effect, want it staged", v.id)
	}
	w.must(v.stage(node)) // both have struck once
	w.must(v.unstage(node))
}

func TestEveryCallCanFailWithEveryCode(t *testing.T) {
	w, node, v := blockWorld(t)
	calls := map[string]func() error{
		"ControllerPublishVolume":   func() error { return v.attach(node) },
		"ControllerUnpublishVolume": func() error { return v.detach(node) },
		"NodeStageVolume":           func() error { return v.stage(node) },
		"NodePublishVolume":         func() error { return v.publish(node, "a", false) },
		"NodeUnpublishVolume":       func() error { return v.unpublish(node, "a") },
		"NodeUnstageVolume":         func() error { return v.unstage(node) },
	}
	for method, call := range calls {
		for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
			id := w.fault(faults.Fault{Method: method, Action: faults.Error, Code: code})
			w.want(code, call())
			w.must(faults.Remove(w.backing, id))
		}
	}
}

func TestAFaultStrikesOnlySelectedCalls(t *testing.T) {
	w, node, v := blockWorld(t)
	other := w.create("other", mib, block(writer))
	w.must(other.attach(node))
	w.fault(faults.Fault{Volume: "other", Action: faults.Error, Code: codes.Internal})
	w.fault(faults.Fault{Node: "node-b", Action: faults.Error, Code: codes.Internal})
	w.fault(faults.Fault{Method: "NodeUnstageVolume", Count: 2, Action: faults.Error, Code: codes.Internal})
	w.must(v.stage(node))
	w.want(codes.Internal, other.stage(node))
	w.want(codes.Internal, v.unstage(node))
	w.want(codes.Internal, v.unstage(node))
	w.must(v.unstage(node))
}

func TestADelayedCallWaits(t *testing.T) {
	w, node, v := blockWorld(t)
	const delay = 300 * time.Millisecond
	w.fault(faults.Fault{Method: "NodeStageVolume", Action: faults.Wait, Delay: delay, Count: 1})
	start := time.Now()
	w.must(v.stage(node))
	if took := time.Since(start); took < delay {
		t.Errorf("stage of volume %s took %s, want at least %s", v.id, took, delay)
	}
	w.must(v.unstage(node))
}

func TestAHangingCallBlocksItsVolumeUntilTheFaultIsRemoved(t *testing.T) {
	w, node, v := blockWorld(t)
	id := w.fault(faults.Fault{Method: "NodeStageVolume", Action: faults.Hang})
	done := make(chan error, 1)
	go func() { done <- v.stage(node) }()
	w.must(faults.WaitHits(w.ctx, w.backing, id, 1))
	if message := w.want(codes.Aborted, v.unstage(node)); !strings.Contains(message, "NodeStageVolume") {
		t.Errorf("message of the unstage of volume %s: %q, want the running NodeStageVolume named", v.id, message)
	}
	if v.staged(node) {
		t.Errorf("volume %s is staged by a call that hangs, want it not staged", v.id)
	}
	w.must(faults.Remove(w.backing, id))
	w.must(<-done)
	if !v.staged(node) {
		t.Errorf("volume %s is not staged after its call hung, want it staged", v.id)
	}
	w.must(v.unstage(node))
}

func TestAHangingCallWhoseCallerGaveUpHasNoEffect(t *testing.T) {
	w, node, v := blockWorld(t)
	id := w.fault(faults.Fault{Method: "NodeStageVolume", Action: faults.Hang})
	giveUp(w, node, v, id)
	_, err := ledger.Wait(w.ctx, w.backing, ended("NodeStageVolume"))
	w.must(err)
	w.must(faults.Remove(w.backing, id))
	if v.staged(node) {
		t.Errorf("volume %s is staged by an abandoned call, want it not staged", v.id)
	}
}

func TestACallThatIgnoresItsCallersEndEndsLater(t *testing.T) {
	w, node, v := blockWorld(t)
	id := w.fault(faults.Fault{Method: "NodeStageVolume", Action: faults.Hang, IgnoreCancel: true})
	giveUp(w, node, v, id)
	w.want(codes.Aborted, v.stage(node))
	if v.staged(node) {
		t.Errorf("volume %s is staged by a call that hangs, want it not staged yet", v.id)
	}
	w.must(faults.Remove(w.backing, id))
	_, err := ledger.Wait(w.ctx, w.backing, func(entries []ledger.Entry) bool {
		calls := ledger.Calls(entries)
		for _, call := range calls {
			if call.Method == "NodeStageVolume" && call.Done == "OK" && call.Answer != "" {
				return true
			}
		}
		return false
	})
	w.must(err)
	if !v.staged(node) {
		t.Errorf("volume %s is not staged by a call that continued, want it staged", v.id)
	}
	w.must(v.unstage(node))
}

// giveUp ends a caller while its call hangs in the fault.
func giveUp(w *world, node *pseudoNode, v *volume, id string) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan error, 1)
	go func() { done <- v.stageContext(ctx, node) }()
	w.must(faults.WaitHits(w.ctx, w.backing, id, 1))
	cancel()
	w.want(codes.Canceled, <-done)
}

func ended(method string) func([]ledger.Entry) bool {
	return func(entries []ledger.Entry) bool {
		for _, entry := range entries {
			if entry.Method == method && entry.Phase == ledger.End {
				return true
			}
		}
		return false
	}
}

func TestADriverThatDiesHasTheEffectOrNot(t *testing.T) {
	for when, effect := range map[faults.Moment]bool{faults.Before: false, faults.After: true} {
		t.Run(string(when)+" the effect", func(t *testing.T) {
			w, node, v := blockWorld(t)
			w.fault(faults.Fault{Method: "NodeStageVolume", When: when, Action: faults.Die, Count: 1})
			err := v.stage(node)
			if code := status.Code(err); code != codes.Unavailable {
				t.Fatalf("stage of volume %s while the driver dies: error %v, want %s", v.id, err, codes.Unavailable)
			}
			w.must(node.process.Wait(w.ctx))
			if v.staged(node) != effect {
				t.Errorf("volume %s after the driver died %s the effect: staged %t, want %t", v.id, when, !effect, effect)
			}
			entries, err := ledger.Read(w.backing)
			w.must(err)
			last := entries[len(entries)-1]
			if want := map[bool]ledger.Phase{false: ledger.Start, true: ledger.Effect}[effect]; last.Phase != want {
				t.Errorf("last entry of the ledger: %+v, want phase %s", last, want)
			}
			node.start()
			w.must(v.stage(node))
			w.must(v.unstage(node))
		})
	}
}
