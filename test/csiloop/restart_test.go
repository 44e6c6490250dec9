/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csiloop_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
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

// A mkfs that hangs represents every moment of formatting at which a node plugin may be killed.
func TestAVolumeWhoseFormattingWasKilledIsFormattedAgain(t *testing.T) {
	w := newWorld(t, harness.Options{})
	bin := filepath.Join(w.dir, "bin")
	w.must(os.Mkdir(bin, 0o755))
	pidFile := filepath.Join(w.dir, "mkfs.pid")
	script := "#!/bin/sh\nfor last; do :; done\nprintf garbage > $last\necho $$ > " + pidFile + ".new\n" +
		"mv " + pidFile + ".new " + pidFile + "\nexec sleep 600\n"
	w.must(os.WriteFile(filepath.Join(bin, "mkfs.ext4"), []byte(script), 0o755))
	node := &pseudoNode{w: w, id: "node-a", options: harness.Options{
		Mode: driver.ModeNode, NodeID: "node-a", Env: append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH")),
	}}
	node.start()
	v := w.create("v", 64*mib, filesystem("ext4"))
	w.must(v.attach(node))
	staged := make(chan error, 1)
	go func() { staged <- v.stage(node) }()
	var pid string
	w.must(wait.PollUntilContextTimeout(w.ctx, 10*time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) {
			data, err := os.ReadFile(pidFile)
			pid = string(data)
			return err == nil, nil
		}))

	node.kill()
	w.want(codes.Unavailable, <-staged)
	w.must(wait.PollUntilContextTimeout(w.ctx, 10*time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) {
			return exec.CommandContext(w.ctx, "kill", "-0", pid[:len(pid)-1]).Run() != nil, nil
		}))
	node.options.Env = nil
	node.start()
	w.must(v.stage(node))
	w.must(v.publish(node, "a", false))
	v.down(node)
}
