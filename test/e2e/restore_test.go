/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"path/filepath"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/csiloop/ledger"
	"github.com/hawser-io/hawser/test/system"
)

// TestARestoredAPIServerMovesNothingThatIsInUse takes a snapshot of the real etcd and restores it later. Two
// volumes have changed in between. One was attached without an intent and is mounted now. The other has moved
// to node B.
func TestARestoredAPIServerMovesNothingThatIsInUse(t *testing.T) {
	for _, test := range []struct {
		name string
		bump uint64
		// stopped is true if manager and agents are stopped for the restore, and the manager is started first.
		stopped bool
	}{
		{name: "revisions used again, all programs continue", bump: 0},
		{name: "revisions bumped, the manager started first", bump: 1 << 30, stopped: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			keepAll(t)
			mounted, moved, unused := newVolume(t), newVolume(t), newVolume(t)
			snapshot := filepath.Join(t.TempDir(), "etcd.snapshot")

			first := moved.intent(nodeA)
			write(t, moved.ready(first))
			attachedUnwanted(t, mounted)
			must(t, sys.Backup(limited(t), snapshot))

			later := mounted.intent(nodeA)
			must(t, sys.KeepManager(limited(t)))
			path := mounted.ready(later)
			write(t, path)
			moved.release(first)
			second := moved.intent(nodeB)
			pathB := moved.ready(second)
			write(t, pathB)

			if test.stopped {
				stopAll(t)
			}
			begin := sessions(t)
			must(t, sys.Restore(limited(t), snapshot, test.bump))
			t.Log("restored")
			if test.stopped {
				must(t, sys.KeepManager(limited(t)))
				// The condition shows that the manager has read the present state.
				probe := unused.intent(nodeA)
				unused.await(probe, system.HasReason(volumesv1alpha1.ConditionAttached, volumesv1alpha1.ReasonWaitingForAgent))
				for _, node := range []string{nodeA, nodeB} {
					must(t, sys.KeepAgent(limited(t), node))
				}
			}
			for _, node := range []string{nodeA, nodeB} {
				_, err := sys.AwaitNode(limited(t), node, func(nvs *volumesv1alpha1.NodeVolumeState) bool {
					return nvs != nil && nvs.Status.Protocol.Session > begin[node] &&
						nvs.Spec.Protocol.ConfirmedSession == nvs.Status.Protocol.Session
				})
				must(t, err)
			}
			// Several things are wrong after a restore, so that the verdict is not compared here.
			moved.await(first, system.HasReason(volumesv1alpha1.ConditionAttached, volumesv1alpha1.ReasonVolumeInUse))
			write(t, path)
			write(t, pathB)
			untouchedSince(t, mounted, moved)

			// Both intents are lost in the API. The intent whose attachment exists is created again. For the other one,
			// an administrator declares the attachment released.
			again := mounted.intent(nodeA, named(later))
			mounted.ready(again)
			mounted.release(again)
			moved.release(first)
			declare(t, nodeB, moved)
			third := moved.intent(nodeB)
			write(t, moved.ready(third))
			moved.release(third)
			judge(t)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// keepAll restarts manager and agents whenever they end, until the test ends.
func keepAll(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		stopAll(t)
		must(t, sys.StartManager(limited(t)))
		for _, node := range []string{nodeA, nodeB} {
			must(t, sys.StartAgent(limited(t), node))
		}
	})
	stopAll(t)
	must(t, sys.KeepManager(limited(t)))
	for _, node := range []string{nodeA, nodeB} {
		must(t, sys.KeepAgent(limited(t), node))
	}
}

func stopAll(t *testing.T) {
	t.Helper()
	for _, name := range []string{system.Manager, system.Agent(nodeA), system.Agent(nodeB)} {
		must(t, sys.StopProcess(limited(t), name))
	}
}

// attachedUnwanted leaves the volume attached to node A, without an intent and a manager.
func attachedUnwanted(t *testing.T, v *volume) {
	t.Helper()
	name := v.intent(nodeA,
		func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Spec.DesiredState = volumesv1alpha1.DesiredAttached })
	v.ready(name)
	must(t, sys.StopProcess(limited(t), system.Manager))
	v.release(name)
}

func sessions(t *testing.T) map[string]int64 {
	t.Helper()
	found := map[string]int64{}
	for _, node := range []string{nodeA, nodeB} {
		nvs, err := sys.AwaitNode(limited(t), node, func(nvs *volumesv1alpha1.NodeVolumeState) bool { return nvs != nil })
		must(t, err)
		found[node] = nvs.Status.Protocol.Session
	}
	return found
}

func named(name string) func(*volumesv1alpha1.VolumeAttachmentIntent) {
	return func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Name, i.GenerateName = name, "" }
}

// untouchedSince checks that the driver was not called to remove a volume from a node that uses it.
func untouchedSince(t *testing.T, volumes ...*volume) {
	t.Helper()
	judge(t)
	entries, err := ledger.Read(sys.BackingDir())
	must(t, err)
	for _, v := range volumes {
		staged := map[string]bool{}
		for _, e := range entries {
			if e.Volume != v.handle || e.Phase != ledger.Effect {
				continue
			}
			switch e.Method {
			case "NodeStageVolume":
				staged[e.Node] = true
			case "NodeUnstageVolume":
				delete(staged, e.Node)
			}
		}
		if len(staged) != 1 {
			t.Errorf("volume %s is staged on %v, want one node", v.handle, staged)
		}
	}
}

// declare declares the volume's use on the node as released. The use has no attachment in the API.
func declare(t *testing.T, node string, v *volume) {
	t.Helper()
	nvs, err := sys.AwaitNode(limited(t), node, func(nvs *volumesv1alpha1.NodeVolumeState) bool { return nvs != nil })
	must(t, err)
	for _, line := range nvs.Status.Volumes {
		if line.VolumeName == uniqueName(v.handle) {
			patched := nvs.DeepCopy()
			if patched.Annotations == nil {
				patched.Annotations = map[string]string{}
			}
			patched.Annotations[volumesv1alpha1.DeclaredReleasedPrefix+string(line.AttachmentUID)] = "restored from a backup"
			must(t, sys.Client.Patch(limited(t), patched, client.MergeFrom(nvs)))
			return
		}
	}
	t.Errorf("node state %s does not have volume %s, want it in use", node, v.handle)
}
