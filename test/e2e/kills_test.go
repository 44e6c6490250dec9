/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/test/csiloop/faults"
	"github.com/hawser-io/hawser/test/csiloop/ledger"
	"github.com/hawser-io/hawser/test/system"
)

// A test that kills or stops a program that all volumes need is not parallel. Those that are run after all others.

func TestADriverKilledDuringACallIsCalledAgain(t *testing.T) {
	for _, method := range []string{"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"} {
		for _, moment := range []faults.Moment{faults.Before, faults.After} {
			t.Run(method+" dies "+string(moment)+" its effect", func(t *testing.T) {
				v := newVolume(t)
				id := v.fault(faults.Fault{Method: method, Count: 1, When: moment, Action: faults.Die})
				name := v.intent(nodeA)
				if method == "NodeUnpublishVolume" || method == "NodeUnstageVolume" {
					v.ready(name)
					v.delete(name)
				}
				v.struck(id)
				restart(t, system.NodeDriver(nodeA), func() error { return sys.StartNodeDriver(limited(t), nodeA) })
				if method == "NodeStageVolume" || method == "NodePublishVolume" {
					write(t, v.ready(name))
				}
				v.release(name)
			})
		}
	}
}

func TestAControllerDriverKilledDuringACallIsCalledAgain(t *testing.T) {
	for _, method := range []string{"ControllerPublishVolume", "ControllerUnpublishVolume"} {
		for _, moment := range []faults.Moment{faults.Before, faults.After} {
			t.Run(method+" dies "+string(moment)+" its effect", func(t *testing.T) {
				v := newVolume(t)
				id := v.fault(faults.Fault{Method: method, Count: 1, When: moment, Action: faults.Die})
				name := v.intent(nodeA)
				if method == "ControllerUnpublishVolume" {
					v.ready(name)
					v.delete(name)
				}
				v.struck(id)
				restart(t, system.ControllerDriver, func() error { return sys.StartControllerDriver(limited(t)) })
				if method == "ControllerPublishVolume" {
					write(t, v.ready(name))
				}
				v.release(name)
			})
		}
	}
}

// restart verifies that a process has ended and starts it again.
func restart(t *testing.T, name string, start func() error) {
	t.Helper()
	if err := sys.StopProcess(limited(t), name); err != nil {
		t.Fatal(err)
	}
	if err := start(); err != nil {
		t.Fatal(err)
	}
}

func TestACallThatHangsIsUncertainAndDelaysNoOtherVolume(t *testing.T) {
	t.Parallel()
	v, other := newVolume(t), newVolume(t)
	id := v.fault(faults.Fault{Method: "NodeStageVolume", Count: 1, Action: faults.Hang, IgnoreCancel: true})
	name := v.intent(nodeA)
	v.struck(id)

	write(t, other.ready(other.intent(nodeA)))

	uncertain := system.HasReason(volumesv1alpha1.ConditionStaged, volumesv1alpha1.ReasonOutcomeUncertain)
	v.await(name, uncertain)
	// The driver answers the next attempt: the first one still runs.
	v.explained(name, uncertain, catalog.CallTimedOut, volumesv1alpha1.ReasonOutcomeUncertain)
	nvs, err := sys.AwaitNode(limited(t), nodeA, func(nvs *volumesv1alpha1.NodeVolumeState) bool { return nvs != nil })
	if err != nil {
		t.Fatal(err)
	}
	if !inUse(nvs, v.handle) {
		t.Errorf("volume %s, whose stage may still take effect, is not in use in node state %s, want it in use", v.handle,
			nodeA)
	}
	v.removeFault(id)
	write(t, v.ready(name))
}

func inUse(nvs *volumesv1alpha1.NodeVolumeState, handle string) bool {
	for _, volume := range nvs.Status.Volumes {
		if volume.VolumeName == uniqueName(handle) {
			return volume.InUse
		}
	}
	return false
}

func uniqueName(handle string) string { return "kubernetes.io/csi/" + system.DriverName + "^" + handle }

func TestAnIntentDeletedDuringAHangingStageIsReleasedOnlyAfterTheCall(t *testing.T) {
	t.Parallel()
	v := newVolume(t)
	id := v.fault(faults.Fault{Method: "NodeStageVolume", Count: 1, Action: faults.Hang, IgnoreCancel: true})
	name := v.intent(nodeA)
	v.struck(id)
	v.delete(name)
	v.removeFault(id)
	if err := sys.AwaitGone(limited(t), namespace, name); err != nil {
		t.Fatal(err)
	}
	judge(t)
}

// judge reads the driver's own ledger: no volume was unpublished while mounted, or used on two nodes.
func judge(t *testing.T) {
	t.Helper()
	entries, err := ledger.Read(sys.BackingDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range []func([]ledger.Entry) []ledger.Violation{ledger.PublishedTwice, ledger.UnpublishedWhileStaged,
		ledger.UsedUnattached} {
		for _, violation := range rule(entries) {
			t.Errorf("violation in the ledger: %v; want none", violation)
		}
	}
}

func TestAnAgentKilledInsideEachCallContinues(t *testing.T) {
	for _, method := range []string{"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"} {
		for _, moment := range []faults.Moment{faults.Before, faults.After} {
			t.Run(method+" "+string(moment)+" its effect", func(t *testing.T) {
				v := newVolume(t)
				id := v.fault(faults.Fault{Method: method, Count: 1, When: moment, Action: faults.Hang, IgnoreCancel: true})
				name := v.intent(nodeA)
				release := method == "NodeUnpublishVolume" || method == "NodeUnstageVolume"
				if release {
					v.ready(name)
					v.delete(name)
				}
				v.struck(id)
				if err := sys.Kill(system.Agent(nodeA)); err != nil {
					t.Fatal(err)
				}
				v.removeFault(id)
				startAgent(t, nodeA)
				if !release {
					write(t, v.ready(name))
				}
				v.release(name)
			})
		}
	}
	judge(t)
}

func startAgent(t *testing.T, node string) {
	t.Helper()
	restart(t, system.Agent(node), func() error { return sys.StartAgent(limited(t), node) })
}

func TestAControllerKilledBetweenAttachmentAndStatusFinishesTheAttach(t *testing.T) {
	v := newVolume(t)
	id := v.fault(faults.Fault{Method: "ControllerPublishVolume", Count: 1, Action: faults.Hang, IgnoreCancel: true})
	name := v.intent(nodeA)
	v.struck(id)
	if err := sys.Kill(system.Manager); err != nil {
		t.Fatal(err)
	}
	v.removeFault(id)
	if _, err := system.Await(limited(t), sys, &storagev1.VolumeAttachmentList{}, client.ObjectKey{Name: v.attachment()},
		func(a *storagev1.VolumeAttachment) bool { return a != nil && a.Status.Attached }); err != nil {
		t.Fatal(err)
	}
	restart(t, system.Manager, func() error { return sys.StartManager(limited(t)) })
	write(t, v.ready(name))
}

// attachment is the name of the volume's only VolumeAttachment.
func (v *volume) attachment() string {
	v.t.Helper()
	pvc := &corev1.PersistentVolumeClaim{}
	if err := sys.Client.Get(limited(v.t), client.ObjectKey{Namespace: namespace, Name: v.name}, pvc); err != nil {
		v.t.Fatal(err)
	}
	var list storagev1.VolumeAttachmentList
	if err := sys.Client.List(limited(v.t), &list); err != nil {
		v.t.Fatal(err)
	}
	for _, a := range list.Items {
		if a.Spec.Source.PersistentVolumeName != nil && *a.Spec.Source.PersistentVolumeName == pvc.Spec.VolumeName {
			return a.Name
		}
	}
	v.t.Fatalf("no attachment of PersistentVolume %s among %d, want one", pvc.Spec.VolumeName, len(list.Items))
	return ""
}

// TestAnAPIServerStoppedForAMinuteChangesNothingThatIsMounted waits for a minute. That is longer than the
// agents' leases, so that the controller finds expired leases afterwards.
func TestAnAPIServerStoppedForAMinuteChangesNothingThatIsMounted(t *testing.T) {
	v := newVolume(t)
	// Provisioned before, because the test does not measure how soon other programs reconnect. client-go needs up to a
	// minute.
	later := newVolume(t)
	name := v.intent(nodeA)
	path := v.ready(name)
	before, err := system.MountIDs(sys.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := sys.StopProcess(limited(t), system.APIServer); err != nil {
		t.Fatal(err)
	}
	minute := time.NewTimer(time.Minute)
	defer minute.Stop()
	<-minute.C
	write(t, path)
	if err := sys.StartAPIServer(limited(t)); err != nil {
		t.Fatal(err)
	}
	write(t, later.ready(later.intent(nodeA)))
	v.ready(name)
	after, err := system.MountIDs(sys.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for mount, id := range before {
		if after[mount] != id {
			t.Errorf("mount %s has ID %d, want %d, as before the API server stopped", mount, after[mount], id)
		}
	}
	// The next tests need a provisioner that has reconnected.
	provision(limited(t), t)
}

// write proves that a published filesystem accepts data and returns it.
func write(t *testing.T, path string) {
	t.Helper()
	file := filepath.Join(path, "proof")
	if err := os.WriteFile(file, []byte(path), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != path {
		t.Fatalf("file %s: content %q, error %v; want %q", file, got, err, path)
	}
	mounts, err := system.MountIDs(filepath.Dir(path))
	if err != nil || mounts[path] == 0 {
		t.Fatalf("%s: mount ID %d, error %v; want a mount point", path, mounts[path], err)
	}
}

func conditionOf(intent *volumesv1alpha1.VolumeAttachmentIntent, conditionType string) string {
	c := meta.FindStatusCondition(intent.Status.Conditions, conditionType)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason + ": " + c.Message
}
