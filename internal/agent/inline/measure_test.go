/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inline

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/metrics/metricstest"
)

// phasesOf are the seconds of each phase since the beginning of the process.
func phasesOf(t *testing.T) map[string]float64 {
	t.Helper()
	seconds := map[string]float64{}
	for _, phase := range []string{"attached", "staged", "published", "bound"} {
		for _, s := range metricstest.Observed(t, "hawser_pod_volume_seconds", "phase", phase) {
			seconds[phase] += s.Sum
		}
	}
	return seconds
}

func TestTheTimeOfAPodIsCountedByTheStatesOfItsIntent(t *testing.T) {
	for name, c := range map[string]struct {
		claim string
		// rebooted: the node was started after the intent was requested.
		rebooted, another bool
		want              map[string]float64
	}{
		"of a claim": {claim: "data", want: map[string]float64{
			"attached": 4, "staged": 2, "published": 1, "bound": 3}},
		"of an intent":                        {want: map[string]float64{"bound": 1}},
		"of a claim, after a reboot":          {claim: "data", rebooted: true},
		"of the second volume of a claim too": {claim: "data", another: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := record.PodBindStore{Dir: t.TempDir(), Replace: func(string, []byte) error { return nil }}
				now := time.Now()
				ago := func(seconds int) *metav1.MicroTime {
					at := metav1.NewMicroTime(now.Add(-time.Duration(seconds) * time.Second))
					return &at
				}
				p := New(Options{Clock: clock.RealClock{}, Pods: record.NewPodBinds(store),
					Booted: func() time.Time { return now.Add(-time.Hour) }})
				if c.rebooted {
					p.Booted = func() time.Time { return now.Add(-5 * time.Second) }
				}
				r := request{claim: c.claim, target: "/target", pod: record.PodReference{UID: "uid"}}
				if c.another {
					b := record.PodBind{Target: "/another", Pod: r.pod, VolumeName: "volume"}
					if err := p.Pods.Add(b, false); err != nil {
						t.Fatal(err)
					}
				}
				f := found{intent: &volumesv1alpha1.VolumeAttachmentIntent{}, Publication: Publication{VolumeName: "volume"}}
				f.intent.Status.Timeline = &volumesv1alpha1.Timeline{Requested: ago(10), Attached: ago(6), Staged: ago(4),
					Published: ago(3)}
				before := phasesOf(t)
				p.measure(r, f, now.Add(-time.Second))
				got := phasesOf(t)
				for phase := range got {
					got[phase] -= before[phase]
				}
				maps.DeleteFunc(got, func(_ string, seconds float64) bool { return seconds == 0 })
				want := c.want
				if want == nil {
					want = map[string]float64{}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("seconds of each phase differ (-want +got):\n%s", diff)
				}
			})
		})
	}
}
