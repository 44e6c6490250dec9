/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/metrics/reference"
)

// plugin is the name under which metrics count the volumes of the driver.
const plugin = "kubernetes.io/csi:" + driverName

// TestObservability runs every scenario of what users and Prometheus see.
func TestObservability(t *testing.T) {
	// The metrics are the process's.
	w := newWorldAlone(t)
	for _, s := range []struct {
		name     string
		scenario func(*testing.T, *world)
	}{
		{"an event of the pod names the pod that holds its volume, and is counted when repeated",
			anEventOfThePodNamesThePodThatHoldsItsVolume},
		{"a pod whose volume upstream attached is named", aPodWhoseVolumeUpstreamAttachedIsNamed},
		{"a driver's errors become one counted event of the pod", aDriversErrorsBecomeOneEventOfThePod},
		{"metrics have upstream's names and labels", metricsHaveUpstreamsNamesAndLabels},
	} {
		t.Run(s.name, func(t *testing.T) { s.scenario(t, w) })
	}
}

// eventOf waits until an event of the object satisfies ok, and returns it.
func (w *world) eventOf(t *testing.T, uid types.UID, what string, ok func(*eventsv1.Event) bool) *eventsv1.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	watcher, err := w.client.Watch(ctx, &eventsv1.EventList{}, client.InNamespace("default"))
	if err != nil {
		t.Fatalf("watching events: %v", err)
	}
	defer watcher.Stop()
	for e := range watcher.ResultChan() {
		if event, is := e.Object.(*eventsv1.Event); is && event.Regarding.UID == uid && ok(event) {
			return event
		}
	}
	t.Fatalf("no event of object %s within %s that %s, want one", uid, patience, what)
	return nil
}

func failedToAttach(e *eventsv1.Event) bool {
	return e.Reason == "FailedAttachVolume" && e.Type == corev1.EventTypeWarning
}

// touchClaim makes the controller reconcile a volume.
func (w *world) touchClaim(t *testing.T, claim, value string) {
	t.Helper()
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + claim}}
	w.change(t, pv, func() { metav1.SetMetaDataLabel(&pv.ObjectMeta, "nudge", value) })
}

func anEventOfThePodNamesThePodThatHoldsItsVolume(t *testing.T, w *world) {
	ticks := newStepClock()
	o := withPods(true)
	o.clock = ticks
	w.manage(t, o)
	w.managedNode(t, "tell-a")
	w.managedNode(t, "tell-b")
	w.volume(t, "tell", volumeOptions{})
	holder := w.pod(t, "tell-holder", "tell-a", "tell")
	held := w.podIntents(t, holder, "tell")[0]
	w.attached(t, held)
	told := w.eventOf(t, holder.UID, "tells the holder of its volume", func(e *eventsv1.Event) bool {
		return e.Reason == "SuccessfulAttachVolume"
	})
	if told.Type != corev1.EventTypeNormal || told.Related == nil || told.Related.UID != held.UID {
		t.Errorf("event of pod %s: %s; want Normal, related to %s", holder.Name, dump(told), held.Name)
	}

	waiting := w.pod(t, "tell-waiting", "tell-b", "tell")
	intent := w.podIntents(t, waiting, "tell")[0]
	const want = "the volume may be used on one node only and is held by node tell-a: pod default/tell-holder"
	if message := w.reason(t, intent, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse,
		volumesv1alpha1.ReasonVolumeInUse); message != want {
		t.Errorf("message of intent %s: %q; want %q", intent.Name, message, want)
	}
	first := w.eventOf(t, waiting.UID, "tells who waits of the holder", failedToAttach)
	if !strings.Contains(first.Note, want) {
		t.Errorf("event of the waiting pod: %s; want a note with %q", dump(first), want)
	}
	version := intent.ResourceVersion
	ticks.advance(31 * time.Second)
	w.touchClaim(t, "tell", "once")
	again := w.eventOf(t, waiting.UID, "is told again", func(e *eventsv1.Event) bool {
		return failedToAttach(e) && e.Series != nil
	})
	if again.Name != first.Name || again.Series.Count != 2 {
		t.Errorf("event of the second time: %s; want it counted in the first, %s", dump(again), first.Name)
	}
	until(t, w, intent, "the intent exists", exists)
	if intent.ResourceVersion != version {
		t.Errorf("intent %s was written although nothing changed: version %s, want %s", intent.Name,
			intent.ResourceVersion, version)
	}
	w.kill(t, holder)
	w.attached(t, intent)
	w.eventOf(t, waiting.UID, "tells that it has its volume", func(e *eventsv1.Event) bool {
		return e.Reason == "SuccessfulAttachVolume"
	})
}

func aPodWhoseVolumeUpstreamAttachedIsNamed(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	w.node(t, "up-a")
	w.node(t, "up-b")
	w.volume(t, "up", volumeOptions{})
	w.pod(t, "up-holder", "up-a", "up")
	w.create(t, upstreamAttachment("", "up", "up-a"))
	intent := w.intent(t, "up", "up-b", "up")
	message := w.reason(t, intent, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse,
		volumesv1alpha1.ReasonVolumeInUse)
	if !strings.HasSuffix(message, "node up-a: pod default/up-holder") {
		t.Errorf("message of intent %s: %q; want the holder, pod default/up-holder on node up-a", intent.Name, message)
	}
	w.eventOf(t, intent.UID, "tells the intent of the holder", failedToAttach)
}

func aDriversErrorsBecomeOneEventOfThePod(t *testing.T, w *world) {
	w.manage(t, withPods(true))
	w.managedNode(t, "sick")
	w.attacher.set("pv-sick", "the array is on fire", false)
	w.volume(t, "sick", volumeOptions{})
	until(t, w, stateOf("sick"), "the agent has reported", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return exists(s) && s.Status.Protocol.ObservedUID == s.UID
	})
	pod := w.pod(t, "sick", "sick", "sick")
	first := w.eventOf(t, pod.UID, "tells of the error", failedToAttach)
	if !strings.Contains(first.Note, "the array is on fire") {
		t.Errorf("event of the pod: %s; want the driver's error", dump(first))
	}
	va := attachmentOf("sick", "sick")
	w.changeStatus(t, va, func() { va.Status.AttachError.Time = metav1.NewTime(va.Status.AttachError.Time.Add(3e9)) })
	again := w.eventOf(t, pod.UID, "tells of the second error", func(e *eventsv1.Event) bool {
		return failedToAttach(e) && e.Series != nil
	})
	if again.Name != first.Name {
		t.Errorf("event of the second error: %s; want it counted in the first, %s", dump(again), first.Name)
	}
	w.attacher.set("pv-sick", "", false)
	w.eventOf(t, pod.UID, "tells that it has its volume", func(e *eventsv1.Event) bool {
		return e.Reason == "SuccessfulAttachVolume"
	})
}

// scrape asks for the metrics as Prometheus does, and returns its lines.
func scrape(t *testing.T, url string) []string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatalf("making a request for %s: %v", url, err)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("scraping %s: %v", url, err)
	}
	defer answer.Body.Close() //nolint:errcheck // read to its end
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatalf("reading the metrics of %s: %v", url, err)
	}
	return strings.Split(string(body), "\n")
}

var labelName = regexp.MustCompile(`(\w+)="`)

// labelsOf lists the names of a metric's labels, in order; nil when the metric is not there.
func labelsOf(lines []string, metric string) []string {
	for _, line := range lines {
		if rest, ok := strings.CutPrefix(line, metric+"{"); ok {
			var names []string
			for _, m := range labelName.FindAllStringSubmatch(rest, -1) {
				names = append(names, m[1])
			}
			slices.Sort(names)
			return names
		}
	}
	return nil
}

// valueOf a metric with its labels; 0 when it is not there.
func valueOf(t *testing.T, lines []string, metric string) float64 {
	t.Helper()
	for _, line := range lines {
		if rest, ok := strings.CutPrefix(line, metric+" "); ok {
			value, err := strconv.ParseFloat(rest, 64)
			if err != nil {
				t.Fatalf("metric line %q: error %v, want a number", line, err)
			}
			return value
		}
	}
	return 0
}

// scrapedAsListed compares the families of a scrape with the list that the documentation is made of.
func scrapedAsListed(t *testing.T, lines []string) {
	t.Helper()
	listed, err := reference.Manager()
	if err != nil {
		t.Fatal(err)
	}
	scraped := 0
	for _, line := range lines {
		family, ok := strings.CutPrefix(line, "# TYPE ")
		if !ok {
			continue
		}
		scraped++
		name, kind, _ := strings.Cut(family, " ")
		i := slices.IndexFunc(listed, func(m reference.Metric) bool { return m.Name == name })
		if i < 0 || listed[i].Type != kind {
			t.Errorf("the manager has the %s %s, want it in the list of its metrics", kind, name)
			continue
		}
		series, labels := name, slices.Clone(listed[i].Labels)
		if kind == "histogram" {
			series, labels = name+"_bucket", append(labels, "le")
		}
		slices.Sort(labels)
		if got := labelsOf(lines, series); !slices.Equal(got, labels) {
			t.Errorf("%s has labels %v, want %v as listed", series, got, labels)
		}
	}
	// Those of the policies and of the version are registered by the program, and no pod has an inline volume here.
	if want := len(listed) - 3; scraped != want {
		t.Errorf("%d families of metrics were scraped, want the %d that are listed:\n%s", scraped, want,
			strings.Join(lines, "\n"))
	}
}

func metricsHaveUpstreamsNamesAndLabels(t *testing.T, w *world) {
	registry := prometheus.NewRegistry()
	o := withPods(true)
	o.metrics = registry
	_, stop := w.manage(t, o)
	server := httptest.NewServer(
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}),
	)
	defer server.Close()
	before := scrape(t, server.URL)

	w.managedNode(t, "measured")
	a := w.node(t, "measured-away")
	w.attacher.set("pv-measured", "not at once", false)
	w.volume(t, "measured", volumeOptions{})
	w.volume(t, "measured-away", volumeOptions{})
	pod := w.pod(t, "measured", "measured", "measured")
	w.eventOf(t, pod.UID, "tells of an error", func(e *eventsv1.Event) bool {
		return failedToAttach(e) && strings.Contains(e.Note, "not at once")
	})
	w.attacher.set("pv-measured", "", false)
	w.attached(t, w.podIntents(t, pod, "measured")[0])
	w.eventOf(t, pod.UID, "tells that it has its volume", func(e *eventsv1.Event) bool {
		return e.Reason == "SuccessfulAttachVolume"
	})
	away := w.intent(t, "measured-away", "measured-away", "measured-away")
	until(t, w, away, "the intent is Ready", isReady)
	lines := scrape(t, server.URL)
	for _, want := range []string{
		`attachdetach_controller_total_volumes{plugin_name="` + plugin + `",state="desired_state_of_world"}`,
		`attachdetach_controller_total_volumes{plugin_name="` + plugin + `",state="actual_state_of_world"}`,
		`storage_count_attachable_volumes_in_use{node="measured",volume_plugin="` + plugin + `"} 1`,
		`storage_count_attachable_volumes_in_use{node="measured-away",volume_plugin="` + plugin + `"} 1`,
		`storage_operation_duration_seconds_count{migrated="false",operation_name="volume_attach",` +
			`status="success",volume_plugin="` + plugin + `"}`,
		`storage_operation_duration_seconds_count{migrated="false",operation_name="volume_attach",` +
			`status="fail-unknown",volume_plugin="` + plugin + `"}`,
		`hawser_phase_duration_seconds_count{driver="stub.csi.hawser.io",phase="attach"}`,
	} {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, want) }) {
			t.Errorf("metrics have no line with %s, want one", want)
		}
	}

	w.powersOff(t, a)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "measured-away"}}
	w.change(t, node, func() {
		node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
	})
	w.delete(t, away)
	until(t, w, attachmentOf("measured-away", "measured-away"), "the driver has unpublished",
		func(va *storagev1.VolumeAttachment) bool {
			return !exists(va) || va.DeletionTimestamp != nil && !slices.Contains(va.Finalizers, attacherFinalizer)
		})
	w.kill(t, pod)
	gone(t, w, attachmentOf("measured", "measured"))
	until(t, w, stateOf("measured"), "the entry is gone", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return len(s.Spec.Attachments) == 0
	})

	// What is counted at the end of a pass has been counted when the manager has come to its end.
	stop()
	lines = scrape(t, server.URL)
	for metric, labels := range map[string][]string{
		"attachdetach_controller_total_volumes":                            {"plugin_name", "state"},
		"attach_detach_controller_attachdetach_controller_forced_detaches": {"reason"},
		"storage_operation_duration_seconds_bucket": {"le", "migrated", "operation_name", "status",
			"volume_plugin"},
		"hawser_detaches_total":                {"driver", "evidence"},
		"hawser_phase_duration_seconds_bucket": {"driver", "le", "phase"},
	} {
		if got := labelsOf(lines, metric); !slices.Equal(got, labels) {
			t.Errorf("%s has labels %v, want %v", metric, got, labels)
		}
	}
	scrapedAsListed(t, lines)
	for metric, more := range map[string]float64{
		`attach_detach_controller_attachdetach_controller_forced_detaches{reason="out-of-service"}`: 1,
		`attach_detach_controller_attachdetach_controller_forced_detaches{reason="timeout"}`:        0,
		`hawser_detaches_total{driver="stub.csi.hawser.io",evidence="OutOfServiceTaint"}`:           1,
	} {
		if got := valueOf(t, lines, metric) - valueOf(t, before, metric); got != more {
			t.Errorf("%s grew by %v, want %v", metric, got, more)
		}
	}
	for _, want := range []string{
		`storage_operation_duration_seconds_count{migrated="false",operation_name="volume_detach",` +
			`status="success",volume_plugin="` + plugin + `"}`,
		`hawser_phase_duration_seconds_count{driver="stub.csi.hawser.io",phase="detach"}`,
	} {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, want) }) {
			t.Errorf("metrics have no line with %s, want one", want)
		}
	}
}
