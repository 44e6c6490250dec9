/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/controller/liveness/livenesstest"
	"github.com/hawser-io/hawser/internal/handshake"
)

// excuses are those of a node, and whether they count after "this-restore".
var excuses = map[string]bool{"": false, "an-earlier-restore": false, "this-restore": true}

// restored is a controller that hears of a restore from the agent of node b, over these objects.
func restored(t *testing.T, objects ...client.Object) (*Controller, *testingclock.FakePassiveClock) {
	t.Helper()
	c, now := over(t, objects...)
	livenesstest.Restore(t, c.Tracker, c.Client.(client.WithWatch), "b", "this-restore")
	return c, now
}

func excused(nvs *volumesv1alpha1.NodeVolumeState, restore string) *volumesv1alpha1.NodeVolumeState {
	if restore != "" {
		metav1.SetMetaDataAnnotation(&nvs.ObjectMeta, volumesv1alpha1.ExcusedFromRestoreAnnotation, restore)
	}
	return nvs
}

// TestNothingThatMayBeOfBeforeARestoreIsEvidence: the backup has the taint with its record, the fence, the time and the
// last renewal, and none of them has what the agent has reported since.
func TestNothingThatMayBeOfBeforeARestoreIsEvidence(t *testing.T) {
	lease := renewedLease("a", noon)
	for _, c := range []struct {
		want   volumesv1alpha1.EvidenceType
		node   *corev1.Node
		record func(*volumesv1alpha1.NodeVolumeState)
	}{
		{volumesv1alpha1.EvidenceOutOfServiceTaint, withTaints(readyNode("a"), corev1.TaintNodeOutOfService),
			func(nvs *volumesv1alpha1.NodeVolumeState) {
				nvs.Status.Node.OutOfService.LastRenewal = handshake.Renewal(lease)
			}},
		{volumesv1alpha1.EvidenceFenced, readyNode("a"), func(nvs *volumesv1alpha1.NodeVolumeState) {
			nvs.Status.Node.Fences = []volumesv1alpha1.FenceObservation{{LastRenewal: handshake.Renewal(lease)}}
		}},
		{volumesv1alpha1.EvidenceForcedAfterTimeout, unreadyNode("a", noon), func(*volumesv1alpha1.NodeVolumeState) {}},
		{volumesv1alpha1.EvidenceNodeGone, nil, func(nvs *volumesv1alpha1.NodeVolumeState) { departed(nvs, noon) }},
	} {
		for excuse, counts := range excuses {
			t.Run(string(c.want)+", excused from "+excuse, func(t *testing.T) {
				live := []client.Object{lease}
				if c.node != nil {
					live = append(live, c.node)
				}
				controller, now := restored(t, live...)
				controller.Fences = &proof{holds: true}
				controller.Tracker.Observe("a", lease)
				nvs, n := excused(silenced(reported("a")), excuse), forcible("a")
				c.record(nvs)
				for range 60 {
					now.SetTime(now.Now().Add(10 * time.Second))
					if _, err := controller.confirmEvidence(t.Context(), n, nvs); err != nil {
						t.Fatal(err)
					}
				}
				expect := func(how string) {
					t.Helper()
					if (n.Evidence != nil) != counts || counts && n.Evidence.Type != c.want ||
						!counts && n.EvidenceDue != fenceAgain {
						t.Errorf("evidence against node a %s: %+v, due in %s; want %s: %t, or that it is due in %s", how, n.Evidence,
							n.EvidenceDue, c.want, counts, fenceAgain)
					}
				}
				expect("as it is confirmed")
				if err := controller.gatherEvidence(t.Context(), n, nvs); err != nil {
					t.Fatal(err)
				}
				expect("by the cache")
			})
		}
	}
}

func TestARestoreIsOverWithTheLeaseOfTheOnlyAgentThatReportsIt(t *testing.T) {
	c, now := restored(t)
	woken := make(chan string, 1)
	wake := func(_ context.Context, node string, _ queue) { woken <- node }
	if err := c.Tracker.Listen(wake).Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	remove(t, c, renewedLease("b", noon))
	<-woken
	if !c.Tracker.MayBePast(nil) {
		t.Error("the restore is over at once, want the agent to have time to report it again")
	}
	now.SetTime(now.Now().Add(liveness.DefaultDuration))
	if c.Tracker.MayBePast(nil) {
		t.Error("the restore is not over after the Lease of the agent that reported it was deleted, want that it is")
	}
}

func TestAccessThatIsCutIsNoEvidenceWhileThatMayBeOfBeforeARestore(t *testing.T) {
	for excuse, counts := range excuses {
		nvs := excused(usedIn(entryIn(reported("a"), isThere, "1", ""), "1"), excuse)
		c, now := restored(t, nvs, readyNode("a"), attachedTo("va-1", "1"))
		notHeard(c, now, "a")
		c.Fences = &network{known: []volumesv1alpha1.FenceReference{cutBy("f")}, cuts: map[string]bool{"f": true}}
		f, n := factsOf(t, c)
		if err := c.gatherCut(t.Context(), f, n, nvs); err != nil {
			t.Fatal(err)
		}
		if (n.Evidence != nil) != counts || !counts && n.EvidenceDue != fenceAgain {
			t.Errorf("excused from %q: evidence from what is known %+v, due in %s; want some: %t", excuse, n.Evidence,
				n.EvidenceDue, counts)
		}
		n.EvidenceDue = 0
		evidence, err := c.confirmCut(t.Context(), f, n, nvs, handshake.NodeOf(nvs, "v"))
		if err != nil || (evidence != nil) != counts || !counts && n.EvidenceDue != fenceAgain {
			t.Errorf("excused from %q: evidence %+v, due in %s, error %v; want some: %t", excuse, evidence, n.EvidenceDue, err,
				counts)
		}
	}
}
