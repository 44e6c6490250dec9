/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package metrics

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
	"github.com/hawser-io/hawser/internal/install"
)

var start = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

func condition(kind string, status metav1.ConditionStatus, reason string, since time.Time) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(since)}
}

func intentWith(name string, conditions ...metav1.Condition) *volumesv1alpha1.VolumeAttachmentIntent {
	return &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: metav1.NewTime(start)},
		Status:     volumesv1alpha1.VolumeAttachmentIntentStatus{Conditions: conditions},
	}
}

// counted is what the collectors of a leader count in objects five minutes after the start, by name and labels.
func counted(t *testing.T, objects ...client.Object) map[string]float64 {
	t.Helper()
	api := controllertest.New(t, fake.NewClientBuilder().WithScheme(controllertest.Scheme()), objects...)
	leading := make(chan struct{})
	registry := prometheus.NewPedanticRegistry()
	clock := testclock.NewFakePassiveClock(start.Add(5 * time.Minute))
	registry.MustRegister(&intentCollector{reader: api.Client, leading: leading, clock: clock},
		&nodeCollector{reader: api.Client, leading: leading, clock: clock})
	if n, err := testutil.GatherAndCount(registry); err != nil || n != 0 {
		t.Errorf("a process that does not lead has %d series and error %v, want none", n, err)
	}
	close(leading)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			key := family.GetName()
			for _, l := range m.GetLabel() {
				key += fmt.Sprintf(" %s=%s", l.GetName(), l.GetValue())
			}
			values[key] = m.GetGauge().GetValue()
		}
	}
	return values
}

// expect compares the series of one metric.
func expect(t *testing.T, all map[string]float64, metric string, want map[string]float64) {
	t.Helper()
	got := map[string]float64{}
	for key, value := range all {
		if labels, ok := strings.CutPrefix(key, metric+" "); ok {
			got[labels] = value
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("series of %s: %v, want %v", metric, got, want)
	}
}

func TestIntentsAreCountedByTheReasonOfEachCondition(t *testing.T) {
	held := condition("Attached", metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeInUse, start)
	all := counted(t, intentWith("a", held, condition("Ready", metav1.ConditionFalse, "VolumeInUseElsewhere", start)),
		intentWith("b", held), intentWith("new"))
	expect(t, all, "hawser_intent_conditions", map[string]float64{
		"condition=Attached reason=VolumeInUseElsewhere status=False": 2,
		"condition=Ready reason=VolumeInUseElsewhere status=False":    1,
	})
}

func TestTheOldestIntentThatWaitsIsKnownForEachPhase(t *testing.T) {
	yes, no := metav1.ConditionTrue, metav1.ConditionFalse
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	leaving := intentWith("leaving", condition("Ready", no, "Releasing", at(0)))
	leaving.Finalizers = []string{volumesv1alpha1.ReleaseFinalizer}
	leaving.DeletionTimestamp = ptr.To(metav1.NewTime(at(290)))
	all := counted(t,
		intentWith("ready", condition("Resolved", yes, "Resolved", at(0)), condition("Ready", yes, "Ready", at(0))),
		intentWith("new"),
		intentWith("attaching", condition("Resolved", yes, "Resolved", at(0)),
			condition("Attached", no, "Attaching", at(200)), condition("Ready", no, "Attaching", at(100))),
		intentWith("attaching later", condition("Resolved", yes, "Resolved", at(0)),
			condition("Ready", no, "NodeLimitReached", at(250))),
		intentWith("publishing", condition("Resolved", yes, "Resolved", at(0)),
			condition("Attached", yes, "Attached", at(0)), condition("Staged", yes, "Staged", at(0)),
			condition("Ready", no, "Publishing", at(280))),
		intentWith("silent", condition("Ready", metav1.ConditionUnknown, "AgentUnreachable", at(240))),
		leaving)
	expect(t, all, "hawser_oldest_waiting_intent_seconds", map[string]float64{
		"phase=resolve": 300, "phase=attach": 200, "phase=stage": 0, "phase=publish": 20, "phase=agent": 60,
		"phase=release": 10,
	})
}

func TestATaintIsCountedByWhoHasSetIt(t *testing.T) {
	node := func(name, value string, ready corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: corev1.TaintNodeOutOfService, Value: value, Effect: corev1.TaintEffectNoExecute}}},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
	}
	all := counted(t, node("off", "down", corev1.ConditionUnknown), node("back", "down", corev1.ConditionTrue),
		node("fenced", volumesv1alpha1.OutOfServiceTaintValue, corev1.ConditionTrue),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "well"}})
	expect(t, all, "hawser_out_of_service_nodes", map[string]float64{
		"by=other node=off ready=false": 1, "by=other node=back ready=true": 1, "by=manager node=fenced ready=true": 1,
	})
}

func TestEntriesAreCountedByDriverAndState(t *testing.T) {
	decided := func(seconds int) *volumesv1alpha1.DetachEvidence {
		return &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceAgentReleased,
			Time: metav1.NewTime(start.Add(time.Duration(seconds) * time.Second))}
	}
	entry := func(driver string, state volumesv1alpha1.AttachmentState, e *volumesv1alpha1.DetachEvidence,
	) volumesv1alpha1.NodeAttachment {
		return volumesv1alpha1.NodeAttachment{Driver: driver, State: state, Evidence: e}
	}
	away := entry("disk", volumesv1alpha1.AttachmentDetaching, decided(0))
	away.DetachedTime = ptr.To(metav1.NewTime(start))
	full := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "full"},
		Spec: volumesv1alpha1.NodeVolumeStateSpec{Attachments: []volumesv1alpha1.NodeAttachment{
			entry("disk", volumesv1alpha1.AttachmentAttached, nil), entry("files", volumesv1alpha1.AttachmentAttached, nil),
			entry("disk", volumesv1alpha1.AttachmentDetaching, decided(270)),
			entry("disk", volumesv1alpha1.AttachmentDetaching, decided(120)), away,
		}},
		Status: volumesv1alpha1.NodeVolumeStateStatus{Summary: &volumesv1alpha1.NodeVolumeSummary{Orphaned: 2},
			Conditions: []metav1.Condition{condition("Ready", metav1.ConditionTrue, "Ready", start)}}}
	all := counted(t, full, &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "new"}})
	expect(t, all, "hawser_attachments", map[string]float64{
		"driver=disk state=Attached": 1, "driver=disk state=Detaching": 2, "driver=disk state=ForcedAway": 1,
		"driver=files state=Attached": 1, "driver=files state=Detaching": 0, "driver=files state=ForcedAway": 0,
	})
	expect(t, all, "hawser_oldest_detaching_seconds", map[string]float64{"driver=disk": 180, "driver=files": 0})
	expect(t, all, "hawser_orphaned_volumes", map[string]float64{"node=full": 2, "node=new": 0})
	expect(t, all, "hawser_node_conditions", map[string]float64{"condition=Ready reason=Ready status=True": 1})
}

// TestANodeThatCanRunNoAgentHasNoSeriesThatAsksForOne: HawserAgentMissing would fire there for good.
func TestANodeThatCanRunNoAgentHasNoSeriesThatAsksForOne(t *testing.T) {
	windows, linux := &corev1.Node{}, &corev1.Node{}
	windows.Name, windows.Status.NodeInfo.OperatingSystem = "windows", "windows"
	linux.Name, linux.Status.NodeInfo.OperatingSystem = "linux", "linux"
	all := counted(t, windows, linux, &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "windows"}},
		&volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "linux"}})
	expect(t, all, "hawser_orphaned_volumes", map[string]float64{"node=linux": 0})
}

func TestANodeThatTheAgentsDaemonSetLeavesOutHasNoSeriesThatAsksForOneUnlessVolumesAreThere(t *testing.T) {
	agents := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "hawser-system", Name: "agents", Labels: install.AgentLabels,
	}}
	agents.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "storage"}
	objects := []client.Object{agents}
	for name, pool := range map[string]string{"selected": "storage", "left-out": "other", "in-use": "other"} {
		node, nvs := &corev1.Node{}, &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: name}}
		node.Name, node.Labels = name, map[string]string{"pool": pool}
		if name == "in-use" {
			nvs.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: "v", InUse: true}}
		}
		objects = append(objects, node, nvs)
	}
	expect(t, counted(t, objects...), "hawser_orphaned_volumes", map[string]float64{"node=selected": 0, "node=in-use": 0})
}

func TestEveryEvidenceOfTheAPIButAReleaseHasItsSeries(t *testing.T) {
	text, err := os.ReadFile("../../../config/crd/bases/volumes.hawser.io_nodevolumestates.yaml")
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, crd); err != nil {
		t.Fatal(err)
	}
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	attachment := spec.Properties["attachments"].Items.Schema.Properties
	var want []string
	for _, value := range attachment["evidence"].Properties["type"].Enum {
		if name := strings.Trim(string(value.Raw), `"`); name != string(volumesv1alpha1.EvidenceAgentReleased) {
			want = append(want, name)
		}
	}
	if len(want) == 0 {
		t.Fatal("the CRD has no evidence but a release, want some")
	}
	for _, name := range want {
		if !slices.Contains(unreleasedEvidence, volumesv1alpha1.EvidenceType(name)) {
			t.Errorf("hawser_forced_detaches_total has no series of evidence %s before the first detach, want one", name)
		}
	}
}

func TestForcedDetachesHaveAllSeriesAndTheirProtection(t *testing.T) {
	initialise()
	if got, want := testutil.CollectAndCount(unreleased), 2*len(unreleasedEvidence); got != want {
		t.Errorf("hawser_forced_detaches_total has %d series before any detach, want %d", got, want)
	}
	none := unreleased.WithLabelValues(string(volumesv1alpha1.EvidenceDeclaredByAdministrator), protectionNone)
	before := testutil.ToFloat64(none)
	for _, e := range []volumesv1alpha1.DetachEvidence{
		{Type: volumesv1alpha1.EvidenceDeclaredByAdministrator, Unprotected: true},
		{Type: volumesv1alpha1.EvidenceDeclaredByAdministrator}, {Type: volumesv1alpha1.EvidenceAgentReleased},
	} {
		Detached("disk", &e)
	}
	if got := testutil.ToFloat64(none) - before; got != 1 {
		t.Errorf("detaches on evidence DeclaredByAdministrator without protection grew by %v after one of three, want 1", got)
	}
	fenced := &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceFenced}
	none, cut := unreleased.WithLabelValues(string(fenced.Type), protectionNone),
		unreleased.WithLabelValues(string(fenced.Type), protectionCut)
	before, wasCut := testutil.ToFloat64(none), testutil.ToFloat64(cut)
	Detached("disk", fenced)
	AccessReturned(fenced)
	if lifted, all := testutil.ToFloat64(none)-before, testutil.ToFloat64(cut)-wasCut; lifted != 1 || all != 1 {
		t.Errorf("a detach on a fence that was lifted too early counted %v times as cut, and %v times as not; want 1 and 1",
			all, lifted)
	}
	if got, want := testutil.CollectAndCount(unreleased), 2*len(unreleasedEvidence); got != want {
		t.Errorf("hawser_forced_detaches_total has %d series after detaches, want %d: a release is not forced", got, want)
	}
}
