/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package metrics

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/metrics/metricstest"
)

// volumes is a client.Reader of PersistentVolumes by name.
type volumes map[string]corev1.PersistentVolumeSource

func (v volumes) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	o.(*corev1.PersistentVolume).Spec.PersistentVolumeSource = v[key.Name]
	return nil
}

func (volumes) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// second is a clock that is a second later each time it is read.
type second struct{ now time.Time }

func (s *second) Now() time.Time {
	s.now = s.now.Add(time.Second)
	return s.now
}

func (s *second) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

// attachment to a node as the watch shows it.
func attachment(driver string, with ...func(*storagev1.VolumeAttachment)) *storagev1.VolumeAttachment {
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(driver), Finalizers: []string{"external-attacher"}},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: driver, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("pv")},
		},
	}
	for _, change := range with {
		change(va)
	}
	return va
}

func hold(va *storagev1.VolumeAttachment) {
	va.Annotations = map[string]string{volumesv1alpha1.HoldAnnotation: "now"}
}
func attached(va *storagev1.VolumeAttachment) { va.Status.Attached = true }
func terminating(va *storagev1.VolumeAttachment) {
	va.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
}
func unpublished(va *storagev1.VolumeAttachment) {
	va.Finalizers = []string{volumesv1alpha1.ForcedAwayFinalizer}
}
func reborn(va *storagev1.VolumeAttachment) { va.UID += "-reborn" }

func inline(va *storagev1.VolumeAttachment) {
	va.Spec.Source = storagev1.VolumeAttachmentSource{InlineVolumeSpec: &corev1.PersistentVolumeSpec{}}
}

func attachError(at int64) func(*storagev1.VolumeAttachment) {
	return func(va *storagev1.VolumeAttachment) {
		va.Status.AttachError = &storagev1.VolumeError{Time: metav1.Unix(at, 0)}
	}
}

func detachError(at int64) func(*storagev1.VolumeAttachment) {
	return func(va *storagev1.VolumeAttachment) {
		va.Status.DetachError = &storagev1.VolumeError{Time: metav1.Unix(at, 0)}
	}
}

// operationsOf the driver, with the seconds that were observed.
func operationsOf(t *testing.T, driver string) map[string]float64 {
	t.Helper()
	seconds := map[string]float64{}
	for operation, sample := range metricstest.Operations(t, driver) {
		seconds[operation] = sample.Sum
	}
	return seconds
}

type change = func(*storagev1.VolumeAttachment)

func TestOperationsAreTimedByTheReportsOfTheAttacher(t *testing.T) {
	all := func(changes ...change) []change { return changes }
	for _, c := range []struct {
		name string
		// life of an attachment: each version as it is shown; deleted says that it is gone in the end.
		life    [][]change
		deleted bool
		want    map[string]float64
	}{
		{name: "attached", life: [][]change{all(hold), all(hold, attached)},
			want: map[string]float64{"volume_attach success false": 1}},
		{name: "attached at the second attempt",
			life: [][]change{all(hold), all(hold, attachError(1)), all(hold, attachError(1)), all(hold, attached)},
			want: map[string]float64{"volume_attach fail-unknown false": 1, "volume_attach success false": 1}},
		{name: "detached", life: [][]change{all(hold), all(hold, attached), all(hold, attached, terminating)}, deleted: true,
			want: map[string]float64{"volume_attach success false": 1, "volume_detach success false": 1}},
		{name: "let go of first",
			life: [][]change{all(hold), all(hold, attached), all(attached), all(attached, terminating)}, deleted: true,
			want: map[string]float64{"volume_attach success false": 1, "volume_detach success false": 1}},
		{name: "let go of and taken back", life: [][]change{all(hold, attached), all(attached), all(hold, attached)},
			want: map[string]float64{}},
		{name: "detached at the third attempt",
			life: [][]change{all(hold, attached), all(hold, attached, terminating),
				all(hold, attached, terminating, detachError(1)), all(hold, attached, terminating, detachError(2))}, deleted: true,
			want: map[string]float64{"volume_detach fail-unknown false": 2, "volume_detach success false": 1}},
		{name: "forced away, the name kept",
			life: [][]change{all(hold, attached), all(hold, attached, terminating),
				all(hold, attached, terminating, unpublished), all(hold, attached, terminating, unpublished)}, deleted: true,
			want: map[string]float64{"volume_detach success false": 1}},
		{name: "somebody else's", life: [][]change{nil, all(attached), all(attached, terminating)}, deleted: true,
			want: map[string]float64{}},
		{name: "never attached", life: [][]change{all(hold), all(hold, attachError(1))}, deleted: true,
			want: map[string]float64{"volume_attach fail-unknown false": 1}},
		{name: "another one under the name, the end of the first missed",
			life: [][]change{all(hold), all(hold, reborn), all(hold, reborn, attached)},
			want: map[string]float64{"volume_attach success false": 1}},
		{name: "migrated, in a pod itself", life: [][]change{all(hold, inline), all(hold, inline, attached)},
			want: map[string]float64{"volume_attach success true": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			driver := strings.ReplaceAll(c.name, " ", "-")
			leading := make(chan struct{})
			close(leading)
			o := &operations{reader: volumes{}, leading: leading, clock: &second{}}
			var last *storagev1.VolumeAttachment
			for _, version := range c.life {
				va := attachment(driver, version...)
				if last == nil {
					o.added(va)
				} else {
					o.changed(last, va)
				}
				last = va
			}
			if c.deleted {
				o.deleted(last)
				if len(o.under) > 0 {
					t.Errorf("operations kept of deleted attachments: %v, want none", o.under)
				}
			}
			if got := operationsOf(t, driver); !maps.Equal(got, c.want) {
				t.Errorf("operations observed of driver %s: %v, want %v", driver, got, c.want)
			}
		})
	}
}

func TestOnlyTheLeaderReports(t *testing.T) {
	leading := make(chan struct{})
	o := &operations{reader: volumes{}, leading: leading, clock: &second{}}
	o.added(attachment("standby", hold))
	o.changed(attachment("standby", hold), attachment("standby", hold, attached))
	if got := operationsOf(t, "standby"); len(got) > 0 {
		t.Errorf("operations observed by a manager that does not lead: %v, want none", got)
	}
	// What it saw begin before it was elected counts.
	o.added(attachment("elected", hold))
	close(leading)
	o.changed(attachment("elected", hold), attachment("elected", hold, attached))
	if got := operationsOf(t, "elected"); got["volume_attach success false"] != 1 {
		t.Errorf("operations observed by the leader: %v, want 1 volume_attach success", got)
	}
	state := &stateCollector{leading: make(chan struct{})}
	ch := make(chan prometheus.Metric, 1)
	state.Collect(ch)
	if len(ch) > 0 {
		t.Error("a manager that does not lead counts volumes, want none")
	}
}

func TestForcedDetachesHaveUpstreamsReasons(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(forcedDetaches)
	for _, evidence := range []volumesv1alpha1.EvidenceType{
		volumesv1alpha1.EvidenceForcedAfterTimeout, volumesv1alpha1.EvidenceNodeGone,
		volumesv1alpha1.EvidenceOutOfServiceTaint,
		volumesv1alpha1.EvidenceAgentReleased, volumesv1alpha1.EvidenceDeclaredByAdministrator,
		volumesv1alpha1.EvidenceAttachmentLost,
	} {
		Detached("d", &volumesv1alpha1.DetachEvidence{Type: evidence})
	}
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("metric families: %v, error %v; want the forced detaches alone", families, err)
	}
	counts := map[string]float64{}
	for _, metric := range families[0].GetMetric() {
		counts[metric.GetLabel()[0].GetValue()] = metric.GetCounter().GetValue()
	}
	if !maps.Equal(counts, map[string]float64{"timeout": 2, "out-of-service": 1}) {
		t.Errorf("forced detaches by reason: %v, want timeout 2, out-of-service 1", counts)
	}
}
