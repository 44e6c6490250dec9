/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csiloop_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hawser-io/hawser/test/csiloop"
	"github.com/hawser-io/hawser/test/csiloop/driver"
	"github.com/hawser-io/hawser/test/csiloop/harness"
	"github.com/hawser-io/hawser/test/csiloop/harness/harnesstest"
	"github.com/hawser-io/hawser/test/csiloop/loopdev"
)

func TestAKilledNodePluginFindsItsMountsAgain(t *testing.T) {
	for name, capability := range map[string]*csi.VolumeCapability{
		"filesystem": filesystem("ext4"), "block": block(writer),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, harness.Options{}, "node-a")
			node := w.nodes[0]
			v := w.create("v", 64*mib, capability)
			v.up(node)
			before, err := loopdev.Find(v.link(node))
			w.must(err)

			node.kill()
			node.start()

			// Repeating all calls changes nothing.
			w.must(v.stage(node))
			w.must(v.publish(node, "a", false))
			after, err := loopdev.Find(v.link(node))
			w.must(err)
			if len(after) != 1 || after[0] != before[0] {
				t.Errorf("devices of volume %s on node %s after a restart: %v, want as before: %v", v.id, node.id, after, before)
			}
			v.down(node)
		})
	}
}

func TestAKilledControllerKeepsItsVolumesAndPublications(t *testing.T) {
	w := newWorld(t, harness.Options{}, "node-a", "node-b")
	v := w.create("v", 64*mib, filesystem("ext4"))
	w.must(v.attach(w.nodes[0]))
	w.must(w.process.Kill())
	w.process = harnesstest.Start(t, w.dir, harness.Options{Mode: driver.ModeController})
	w.controller = csi.NewControllerClient(w.dial(w.process))
	w.want(codes.FailedPrecondition, v.attach(w.nodes[1]))
	w.must(v.detach(w.nodes[0]))
	w.must(v.attach(w.nodes[1]))
}

func TestASecondPluginForANodeIsRefused(t *testing.T) {
	w := newWorld(t, harness.Options{}, "node-a")
	ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
	defer cancel()
	options := w.nodes[0].options
	options.BackingDir, options.KubeletDir, options.Log = w.backing, filepath.Join(w.dir, "other"), discard{}
	if process, err := harness.Start(ctx, options); err == nil {
		t.Errorf("starting a second plugin for node %s: no error, want one", w.nodes[0].id)
		w.must(process.Kill())
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func TestACleanExitRemovesTheSocketsAndAKillDoesNot(t *testing.T) {
	w := newWorld(t, harness.Options{}, "node-a")
	node, kubelet := w.nodes[0], filepath.Join(w.dir, "node-a")
	node.kill()
	sockets := []string{csiloop.NodeSocket(kubelet), csiloop.RegistrationSocket(kubelet)}
	for _, socket := range sockets {
		if _, err := os.Stat(socket); err != nil {
			t.Errorf("socket %s after a kill: error %v, want it there", socket, err)
		}
	}
	node.start()
	w.must(node.process.Stop())
	for _, socket := range sockets {
		if _, err := os.Stat(socket); !os.IsNotExist(err) {
			t.Errorf("socket %s after a clean exit: error %v, want not found", socket, err)
		}
	}
}

// hung is a node on which a program does something and then never ends.
type hung struct {
	*pseudoNode
	pidFile string
}

// newHung starts a node plugin that finds a script of this name and text before the real program.
func (w *world) newHung(program, does string) *hung {
	w.t.Helper()
	bin := filepath.Join(w.dir, "bin")
	w.must(os.Mkdir(bin, 0o755))
	pidFile := filepath.Join(w.dir, "pid")
	script := fmt.Sprintf("#!/bin/sh\n%s\necho $$ >%[2]s.new\nmv %[2]s.new %[2]s\nexec sleep 600\n", does, pidFile)
	w.must(os.WriteFile(filepath.Join(bin, program), []byte(script), 0o755))
	node := &pseudoNode{w: w, id: "node-a", options: harness.Options{
		Mode: driver.ModeNode, NodeID: "node-a", Env: append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH")),
	}}
	node.start()
	return &hung{pseudoNode: node, pidFile: pidFile}
}

// stages starts the stage of a volume and waits until the program hangs.
func (h *hung) stages(ctx context.Context, v *volume) (ended chan error) {
	h.w.t.Helper()
	ended = make(chan error, 1)
	go func() { ended <- v.stageContext(ctx, h.pseudoNode) }()
	h.w.must(wait.PollUntilContextTimeout(h.w.ctx, 10*time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) {
			_, err := os.Stat(h.pidFile)
			return err == nil, nil
		}))
	return ended
}

// restart kills the plugin, waits until the program has died with it, and starts the plugin with the real program.
func (h *hung) restart() {
	h.w.t.Helper()
	pid, err := os.ReadFile(h.pidFile)
	h.w.must(err)
	h.kill()
	h.w.must(wait.PollUntilContextTimeout(h.w.ctx, 10*time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) {
			return exec.CommandContext(h.w.ctx, "kill", "-0", strings.TrimSpace(string(pid))).Run() != nil, nil
		}))
	h.options.Env = nil
	h.start()
}

// A mkfs that hangs represents every moment of formatting at which a node plugin may be killed.
func TestAVolumeWhoseFormattingWasKilledIsFormattedAgain(t *testing.T) {
	w := newWorld(t, harness.Options{})
	node := w.newHung("mkfs.ext4", "for last; do :; done\nprintf garbage >$last")
	v := w.create("v", 64*mib, filesystem("ext4"))
	w.must(v.attach(node.pseudoNode))
	staged := node.stages(w.ctx, v)
	node.restart()
	w.want(codes.Unavailable, <-staged)
	w.must(v.stage(node.pseudoNode))
	w.must(v.publish(node.pseudoNode, "a", false))
	v.down(node.pseudoNode)
}

// The volume is mounted and the call does not end well. What a later call mounts is never formatted again.
func TestAVolumeWhoseFirstMountOutlivedItsCallKeepsItsData(t *testing.T) {
	real, err := exec.LookPath("mount")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		end  func(node *hung, giveUp func())
		code codes.Code
	}{
		"the caller gives up":  {end: func(_ *hung, giveUp func()) { giveUp() }, code: codes.Canceled},
		"the plugin is killed": {end: func(node *hung, _ func()) { node.restart() }, code: codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, harness.Options{})
			hung := w.newHung("mount", real+` "$@"`)
			node := hung.pseudoNode
			v := w.create("v", 64*mib, filesystem("ext4"))
			w.must(v.attach(node))
			ctx, giveUp := context.WithCancel(w.ctx)
			defer giveUp()
			staged := hung.stages(ctx, v)
			c.end(hung, giveUp)
			w.want(c.code, <-staged)

			w.must(wait.PollUntilContextTimeout(w.ctx, 10*time.Millisecond, time.Minute, true,
				func(context.Context) (bool, error) {
					err := v.stage(node)
					if status.Code(err) == codes.Aborted { // the call that was given up has not ended
						return false, nil
					}
					return true, err
				}))
			w.must(v.publish(node, "a", false))
			w.write(filepath.Join(v.target(node, "a"), "proof"), "data")
			v.down(node)
			hung.restart()
			v.up(node)
			if got := w.read(filepath.Join(v.target(node, "a"), "proof"), len("data")); got != "data" {
				t.Errorf("the data of volume %s at its second stage: %q, want %q", v.id, got, "data")
			}
			v.down(node)
		})
	}
}
