/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/doctor"
	"github.com/hawser-io/hawser/internal/doctor/read"
	"github.com/hawser-io/hawser/test/apiserver"
)

// examined is the report about the cluster of a fixture.
func examined(t *testing.T, f fixture) *doctor.Report {
	t.Helper()
	c, err := read.Cluster(t.Context(), newFakeReader(t, f), "", "hawser-system")
	if err != nil {
		t.Fatalf("reading the cluster of %s: %v, want success", f.name, err)
	}
	return doctor.Examine(c, noon)
}

func TestReportsOfBrokenClusters(t *testing.T) {
	for _, f := range fixturesOf(t, "doctor", noon) {
		report := examined(t, f)
		few := report.Findings[:min(len(report.Findings), mostFindings)]
		for name, got := range map[string]string{
			f.name + ".txt":      doctorText(report, few, false, false),
			f.name + "-wide.txt": doctorText(report, report.Findings, false, true),
		} {
			golden(t, filepath.Join("testdata", "doctor", name), got)
		}
	}
}

func TestEveryCommandOfDoctorIsPossibleInTheSituationThatWasRead(t *testing.T) {
	for _, f := range slices.Concat(fixturesOf(t, "doctor", noon), fixtures(t, noon)) {
		w := scene{t, newFakeReader(t, f)}
		for _, found := range examined(t, f).Findings {
			for _, command := range found.Run {
				if strings.Contains(command, "finalizers") {
					continue // such a patch is for what is being deleted
				}
				if why := w.prevented(command); why != "" {
					t.Errorf("%s: %s advises %q, but %s", f.name, found.Code, command, why)
				}
			}
		}
	}
}

// messy creates, on a real API server, what needs no age that the API server gives.
func messy(t *testing.T, c client.Client) {
	t.Helper()
	readFixture(t, "testdata/doctor/messy.yaml", time.Now()).create(t, c)
}

// reportOf is a report as JSON has it.
func reportOf(t *testing.T, stdout string) (report doctor.Report) {
	t.Helper()
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("the output is no JSON: %v\n%s", err, stdout)
	}
	return report
}

func codesOfFindings(report doctor.Report) []string {
	var codes []string
	for i := range report.Findings {
		codes = append(codes, report.Findings[i].Code)
	}
	return codes
}

// The times of creation are those of the test, so what has to be old is not found.
var foundAtOnce = []string{"HWS927", "HWS710", "HWS431", "HWS931", "HWS932", "HWS208", "HWS629"}

func TestDoctorOnARealAPIServer(t *testing.T) {
	config, c := apiserver.Borrow(t)
	stdout, stderr, exit := run(t, config, "doctor")
	if exit != Fine || !strings.Contains(stdout, "Nothing was found in the cluster.") {
		t.Errorf("an empty cluster: exit code %d, stderr %q, stdout:\n%s", exit, stderr, stdout)
	}
	messy(t, c)
	stdout, stderr, exit = run(t, config, "doctor", "-o", "json")
	report := reportOf(t, stdout)
	for _, want := range foundAtOnce {
		if got := codesOfFindings(report); exit != Findings || !slices.Contains(got, want) {
			t.Errorf("exit code %d and codes %v, want %d and %s; stderr %q", exit, got, Findings, want, stderr)
		}
	}
	for _, tt := range []struct {
		args string
		want []string
		not  string
		exit int
	}{
		{"doctor", []string{"findings in the cluster, the worst first", "Danger", "HWS710"}, "", Findings},
		{"doctor -A -n bank", []string{"findings in the cluster", "HWS710", "HWS932"}, "", Findings},
		{"doctor -n bank", []string{"in namespace bank", "HWS932", "PersistentVolumeClaim bank/big"}, "HWS710", Findings},
		{"doctor -n default -o json", []string{`"namespace": "default"`}, "HWS932", Fine},
		{"doctor -o yaml", []string{"kind: DoctorReport", "code: HWS710", "claim:"}, "", Findings},
		{"doctor -o wide", []string{"https://github.com", "way out", "way out"}, "", Findings},
		{"doctor node-a", []string{"unknown command"}, "", Failed},
		{"doctor -o table", []string{"want json, yaml, wide, name, jsonpath="}, "", Failed},
	} {
		stdout, stderr, exit := run(t, config, strings.Fields(tt.args)...)
		for _, want := range tt.want {
			if exit != tt.exit || !strings.Contains(stdout+stderr, want) {
				t.Errorf("%s: exit code %d, want %d and %q; stderr %q, stdout:\n%s", tt.args, exit, tt.exit, want, stderr, stdout)
			}
		}
		if tt.not != "" && strings.Contains(stdout, tt.not) {
			t.Errorf("%s: the output has %s, which is of another namespace:\n%s", tt.args, tt.not, stdout)
		}
	}
}

func TestTenFindingsAreShownAndTheRestIsCounted(t *testing.T) {
	config, c := apiserver.Borrow(t)
	messy(t, c)
	for i := range 10 {
		if err := c.Create(t.Context(), taintedNode(fmt.Sprintf("tainted-%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	few, _, _ := run(t, config, "doctor")
	all, _, _ := run(t, config, "doctor", "--all")
	asJSON, _, _ := run(t, config, "doctor", "-o", "json")
	total := len(reportOf(t, asJSON).Findings)
	if n := shown(few); n != mostFindings || !strings.Contains(few, fmt.Sprintf("%d more;", total-10)) {
		t.Errorf("%d findings are shown of %d, want %d and the rest counted:\n%s", n, total, mostFindings, few)
	}
	if n := shown(all); n != total || strings.Contains(all, "more; --all") {
		t.Errorf("--all shows %d findings, want %d:\n%s", n, total, all)
	}
}

// shown counts the findings in a text.
func shown(text string) int {
	return len(regexp.MustCompile(`(?m)^(Danger|Outage|Risk|Notice) `).FindAllString(text, -1))
}

// taintedNode is a Ready one with the out-of-service taint.
func taintedNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute,
			TimeAdded: &metav1.Time{Time: time.Now().Add(-time.Hour)}}}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady,
			Status: corev1.ConditionTrue}}}}
}

func TestDoctorWorksWithoutHawsersKinds(t *testing.T) {
	config, c := apiserver.Borrow(t)
	messy(t, c)
	deleteKinds(t, config)
	stdout, stderr, exit := run(t, config, "doctor", "-o", "json")
	report := reportOf(t, stdout)
	for _, want := range foundAtOnce {
		if got := codesOfFindings(report); exit != Findings || !slices.Contains(got, want) {
			t.Errorf("exit code %d and codes %v, want %d and %s; stderr %q", exit, got, Findings, want, stderr)
		}
	}
	if report.Installed || len(report.LeftOut) > 0 {
		t.Errorf("installed %t, left out %+v; want no Hawser, and nothing left out", report.Installed, report.LeftOut)
	}
}

func TestDoctorNamesWhatAUserMayNotRead(t *testing.T) {
	config, c := apiserver.Borrow(t)
	messy(t, c)
	stdout, stderr, exit := run(t, as(config, "stranger"), "doctor")
	if exit != Failed || stdout != "" || !strings.Contains(stderr, "you may not do that") {
		t.Errorf("without any right: exit code %d, stdout %q, stderr %q; want %d and why", exit, stdout, stderr, Failed)
	}
	grant(t, c, "dev", []string{""}, []string{"pods", "persistentvolumeclaims", "events"}, []string{"list"})
	stdout, stderr, exit = run(t, as(config, "dev"), "doctor", "-n", "shop")
	for _, want := range []string{"You may not list Node: findings are left out about", "dead nodes",
		"You may not list VolumeAttachment"} {
		if exit != Fine && exit != Findings || !strings.Contains(stdout, want) {
			t.Errorf("exit code %d, want a report with %q; stderr %q, stdout:\n%s", exit, want, stderr, stdout)
		}
	}
	if strings.Contains(stdout, "HWS710") {
		t.Errorf("the report has a finding about a node, which was not read:\n%s", stdout)
	}
}

// paths of the lists that were read, without the pages that follow.
func lists(t *testing.T, reads []string) []string {
	t.Helper()
	var paths []string
	for _, read := range reads {
		u, err := url.Parse(read)
		if err != nil {
			t.Fatal(err)
		}
		if !u.Query().Has("continue") {
			paths = append(paths, u.Path)
		}
	}
	slices.Sort(paths)
	return paths
}

func TestDoctorCostsAsManyRequestsInALargerCluster(t *testing.T) {
	config, c := apiserver.Borrow(t)
	messy(t, c)
	p := newProxy(t, config)
	count := func() ([]string, int) {
		stdout, stderr, exit := runAt(t, p.URL, "doctor")
		if exit != Findings {
			t.Fatalf("exit code %d, want %d; stderr %q, stdout:\n%s", exit, Findings, stderr, stdout)
		}
		reads, pages := p.counts()
		return lists(t, reads), pages
	}
	small, pages := count()
	if pages > 0 || len(small) > mostRequests || len(slices.Compact(slices.Clone(small))) < 15 {
		t.Errorf("%d requests and %d further pages in a small cluster: %v; want at most %d, and none", len(small), pages,
			small, mostRequests)
	}
	fill(t, c, 1000)
	large, pages := count()
	if diff := cmp.Diff(small, large); diff != "" {
		t.Errorf("the requests differ in a cluster of 1,000 volumes (-small +large):\n%s", diff)
	}
	if want := 3 * 1; pages < want || pages > 8 {
		t.Errorf("%d further pages with 1,000 volumes, want one or two for each kind of 1,000", pages)
	}
}

func TestAWatchOfDoctorShowsWhatChanges(t *testing.T) {
	config, c := apiserver.Borrow(t)
	messy(t, c)
	p := newProxy(t, config)
	out, errOut, stop := watching(t, p, "doctor")
	out.wait(t, 0, "HWS927")
	p.counts()
	skip := len(out.String())
	if err := c.Create(t.Context(), taintedNode("node-d")); err != nil {
		t.Fatal(err)
	}
	out.wait(t, skip, "Node node-d")
	if reads, _ := p.counts(); len(reads) > 0 {
		t.Errorf("the report after a change read %q, want it made from memory", reads)
	}
	if exit := stop(); exit != Findings || errOut.String() != "" {
		t.Errorf("interrupted: exit code %d, stderr %q; want %d", exit, errOut.String(), Findings)
	}
}

func TestTheDoctorCountsWhatItHasNotExamined(t *testing.T) {
	if got := doctorText(&doctor.Report{New: 3}, nil, false, false); !strings.Contains(got, "3 pods and intents") {
		t.Errorf("report of three that have just begun to wait: %q, want their number", got)
	}
}
