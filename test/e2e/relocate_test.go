/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/cli"
	"github.com/hawser-io/hawser/internal/install"
	"github.com/hawser-io/hawser/test/csiloop/faults"
)

// plugin runs kubectl hawser to its end, or to that of the context.
func plugin(ctx context.Context, args ...string) (exit int, output string) {
	var out bytes.Buffer
	exit = cli.Run(ctx, append(args, "--kubeconfig", sys.Kubeconfig(), "-n", namespace, "--hawser-namespace",
		install.Namespace()),
		genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out})
	return exit, out.String()
}

// expectPlugin fails the test if kubectl hawser ends otherwise.
func expectPlugin(t *testing.T, want int, args ...string) {
	t.Helper()
	if exit, output := plugin(limited(t), args...); exit != want {
		t.Fatalf("kubectl hawser %s: exit code %d, want %d; it printed\n%s", strings.Join(args, " "), exit, want, output)
	}
}

// proof writes data that is found again wherever the volume is.
func (v *volume) proof(path string) {
	v.t.Helper()
	if err := os.WriteFile(filepath.Join(path, "proof"), []byte(v.name), 0o644); err != nil {
		v.t.Fatal(err)
	}
}

// moved waits for the volume's only intent, which is to be on the node and Ready with the data of proof.
func (v *volume) moved(node string) string {
	v.t.Helper()
	intents := &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := sys.Client.List(limited(v.t), intents, client.InNamespace(namespace),
		client.MatchingFields{"spec.volume.persistentVolumeClaim.claimName": v.name}); err != nil {
		v.t.Fatal(err)
	}
	if len(intents.Items) != 1 || intents.Items[0].Spec.NodeName != node {
		v.t.Fatalf("claim %s has the intents %v, want one, on node %s", v.name, intents.Items, node)
	}
	name := intents.Items[0].Name
	v.t.Cleanup(func() { v.release(name) })
	file := filepath.Join(v.ready(name), "proof")
	if got, err := os.ReadFile(file); err != nil || string(got) != v.name {
		v.t.Errorf("%s: content %q, error %v; want %q", file, got, err, v.name)
	}
	return name
}

func TestThePluginMovesAClaimAndItsData(t *testing.T) {
	t.Parallel()
	v := newVolume(t)
	intent := v.intent(nodeA)
	v.proof(v.ready(intent))
	expectPlugin(t, cli.Fine, "move", v.name, "--to", nodeB)
	v.moved(nodeA) // without --yes nothing is changed
	expectPlugin(t, cli.Fine, "move", v.name, "--to", nodeB, "--yes")
	v.moved(nodeB)
	expectPlugin(t, cli.Fine, "move", v.name, "--to", nodeB, "--yes")
}

func TestAMoveThatWasInterruptedGoesOn(t *testing.T) {
	t.Parallel()
	v := newVolume(t)
	v.proof(v.ready(v.intent(nodeA)))
	stuck := v.fault(faults.Fault{Method: "NodeUnstageVolume", When: faults.Before, Action: faults.Error,
		Code: codes.Internal, Message: "not yet"})
	ctx, interrupt := context.WithCancel(limited(t))
	ended := make(chan int, 1)
	go func() {
		exit, _ := plugin(ctx, "move", v.name, "--to", nodeB, "--yes")
		ended <- exit
	}()
	v.struck(stuck)
	interrupt()
	if exit := <-ended; exit != cli.Failed {
		t.Errorf("the interrupted move of claim %s: exit code %d, want %d", v.name, exit, cli.Failed)
	}
	v.removeFault(stuck)
	expectPlugin(t, cli.Fine, "move", v.name, "--to", nodeB, "--yes")
	v.moved(nodeB)
}

func TestThePluginDrainsANode(t *testing.T) {
	volumes := newVolumes(t, 3)
	for _, v := range volumes {
		v.proof(v.ready(v.intent(nodeA)))
	}
	expectPlugin(t, cli.Fine, "drain", nodeA, "--to", nodeB, "--yes")
	for _, v := range volumes {
		v.moved(nodeB)
	}
	state, err := sys.AwaitNode(limited(t), nodeA, func(s *volumesv1alpha1.NodeVolumeState) bool {
		return s != nil && len(s.Spec.Attachments) == 0
	})
	if err != nil || len(state.Status.Volumes) > 0 {
		t.Errorf("node %s after its drain: %v, error %v; want no volume on it", nodeA, state, err)
	}
	expectPlugin(t, cli.Fine, "drain", nodeB, "--delete-intents", "--yes")
}
