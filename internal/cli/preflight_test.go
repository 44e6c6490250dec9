/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/doctor"
	"github.com/hawser-io/hawser/internal/preflight"
	"github.com/hawser-io/hawser/test/apiserver"
)

// stock creates a cluster of kubeadm with one driver, as far as objects go.
func stock(t *testing.T, c client.Client) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a",
		Labels: map[string]string{corev1.LabelOSStable: "linux"},
		Annotations: map[string]string{"kubeadm.alpha.kubernetes.io/cri-socket": "unix:///run/containerd/containerd.sock",
			"volumes.kubernetes.io/controller-managed-attach-detach": "true"}}}
	selector := map[string]string{"app": "disk"}
	plugin := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "disk-node"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: selector}, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "registrar", Image: "registrar"}},
				Volumes: []corev1.Volume{{Name: "registration", VolumeSource: corev1.VolumeSource{
					HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/kubelet/plugins_registry"}}}}}}}}
	manager := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-controller-manager-node-a",
		Labels: map[string]string{"tier": "control-plane"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "manager", Image: "manager", Command: []string{"kube-controller-manager", "--controllers=*,tokencleaner"}}}}}
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va"}, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: "disk.example.com", NodeName: "node-a",
		Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("pv")}}}
	for _, object := range []client.Object{node, plugin, manager, va, &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: "node-a"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
			Name: "disk.example.com", NodeID: "a"}}}}, &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: "disk.example.com"}}} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	va.Status.Attached = true
	if err := c.Status().Update(t.Context(), va); err != nil {
		t.Fatal(err)
	}
}

// flown is the report of preflight.
func flown(t *testing.T, config *rest.Config, args ...string) (report preflight.Report, exit int) {
	t.Helper()
	stdout, stderr, exit := run(t, config, append([]string{"preflight", "-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("the output is no JSON: %v\n%s; stderr %q", err, stdout, stderr)
	}
	return report, exit
}

// states are the checks with their status, and the code of those that are not OK.
func states(r *preflight.Report) map[string]string {
	all := map[string]string{}
	for i := range r.Checks {
		text := string(r.Checks[i].Status)
		if f := r.Checks[i].Finding; f != nil {
			text += " " + f.Code
		}
		all[r.Checks[i].Name] = text
	}
	return all
}

// fine is what a cluster of a test has: its API server listens on any port.
func fine() map[string]string {
	all := map[string]string{"port of the API server": "WARN HWS953"}
	for _, name := range []string{"Kubernetes version", "API kinds", "admission policies", "your rights",
		"privileged pods",
		"nodes", "ports of the nodes", "kubelet directory", "attach/detach controller", "SELinux", "drivers"} {
		all[name] = "OK"
	}
	return all
}

func TestPreflightOnARealAPIServer(t *testing.T) {
	config, c := apiserver.Borrow(t)
	deleteKinds(t, config)
	stock(t, c)
	report, exit := flown(t, config)
	want := fine()
	if strings.HasPrefix(report.Kubernetes, "v1.35") {
		want["API kinds"] = "WARN HWS944"
	}
	if diff := cmp.Diff(want, states(&report)); exit != Fine || diff != "" || report.Installed {
		t.Errorf("exit code %d, installed %t, checks (-want +got):\n%s", exit, report.Installed, diff)
	}
	if report.Distribution != "kubeadm" || len(report.LeftOut) > 0 || report.InitialSpec["networkPolicy"] != "None" ||
		len(report.Drivers) != 1 || report.Drivers[0].Attached != 1 {
		t.Errorf("the report is %+v, want kubeadm, nothing left out, networkPolicy None and one driver", report)
	}
	stdout, stderr, exit := run(t, config, "preflight")
	for _, want := range []string{"(kubeadm), 1 node.", "0 blocked, 1 warning, 11 OK.",
		"WARN    HWS953 port of the API server",
		"OK             your rights:", "DRIVER", `INITIAL_SPEC`, `{"networkPolicy":"None"}`, "\nNext: kubectl apply -k ."} {
		if exit != Fine || !strings.Contains(stdout, want) {
			t.Errorf("exit code %d, want %d and %q; stderr %q, stdout:\n%s", exit, Fine, want, stderr, stdout)
		}
	}
	wide, _, _ := run(t, config, "preflight", "-o", "wide")
	if !strings.Contains(wide, "findings.md#hws953") {
		t.Errorf("the wide report has no address of HWS953:\n%s", wide)
	}
	nothingWasWritten(t, c)
}

// nothingWasWritten checks that dry runs left nothing.
func nothingWasWritten(t *testing.T, c client.Client) {
	t.Helper()
	var policies admissionv1.ValidatingAdmissionPolicyList
	var namespaces corev1.NamespaceList
	for _, list := range []client.ObjectList{&policies, &namespaces} {
		if err := c.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	for i := range namespaces.Items {
		if namespaces.Items[i].Name == volumesv1alpha1.InstallNamespace {
			t.Errorf("namespace %s exists after a dry run", namespaces.Items[i].Name)
		}
	}
	for i := range policies.Items {
		if strings.HasPrefix(policies.Items[i].Name, "hawser-") {
			t.Errorf("policy %s exists after a dry run", policies.Items[i].Name)
		}
	}
}

func TestPreflightTriesAPodWhereTheNamespaceExists(t *testing.T) {
	config, c := apiserver.Borrow(t)
	stock(t, c)
	for level, want := range map[string]string{"restricted": "WARN HWS949", "baseline": "WARN HWS949", "privileged": "OK",
		"": "OK"} {
		name := "space-" + level + "x"
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if level != "" {
			space.Labels = map[string]string{"pod-security.kubernetes.io/enforce": level}
		}
		if err := c.Create(t.Context(), space); err != nil {
			t.Fatal(err)
		}
		report, _ := flown(t, config, "--hawser-namespace", name)
		if got := states(&report)["privileged pods"]; got != want {
			t.Errorf("with the label %q: %s, want %s", level, got, want)
		}
		var pods corev1.PodList
		if err := c.List(t.Context(), &pods, client.InNamespace(name)); err != nil || len(pods.Items) > 0 {
			t.Errorf("%d pods after a dry run, error %v; want none", len(pods.Items), err)
		}
	}
}

func TestPreflightSeesAnInstallationAndItsVersion(t *testing.T) {
	config, c := apiserver.Borrow(t)
	stock(t, c)
	state := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}
	if err := c.Create(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	state.Status.AgentVersion = "v0.1.0"
	if err := c.Status().Update(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, exit := run(t, config, "preflight")
	for _, want := range []string{"Hawser is installed already (v0.1.0)", "Next: kubectl hawser doctor"} {
		if exit != Fine || !strings.Contains(stdout, want) {
			t.Errorf("exit code %d, want %q; stderr %q, stdout:\n%s", exit, want, stderr, stdout)
		}
	}
}

func TestPreflightOfAUserWithoutRightsIsBlockedAndNamesWhatWasNotRead(t *testing.T) {
	config, c := apiserver.Borrow(t)
	deleteKinds(t, config)
	stock(t, c)
	report, exit := flown(t, as(config, "stranger"))
	want := map[string]string{"Kubernetes version": "OK", "API kinds": "OK", "your rights": "BLOCKED HWS951"}
	if diff := cmp.Diff(want, states(&report)); exit != Findings || diff != "" {
		t.Errorf("exit code %d, checks (-want +got):\n%s", exit, diff)
	}
	if user := report.Checks[0].Object.Name; user != "stranger" || report.Nodes >= 0 {
		t.Errorf("the user is %q and %d nodes are counted, want stranger, and none counted", user, report.Nodes)
	}
	for _, kind := range []string{"Node", "CSIDriver", "DaemonSet", "Namespace", preflight.KindPolicyTrial} {
		if !slices.ContainsFunc(report.LeftOut, func(l doctor.LeftOut) bool { return l.Kind == kind && l.Forbidden }) {
			t.Errorf("left out is %+v, want %s too, as forbidden", report.LeftOut, kind)
		}
	}
	stdout, _, _ := run(t, as(config, "stranger"), "preflight")
	if !strings.Contains(stdout, "Node (you have no right to it): left out: nodes, kubelet directory") {
		t.Errorf("the text does not name what is left out:\n%s", stdout)
	}
}

func TestPreflightCostsAsManyRequestsInALargerCluster(t *testing.T) {
	config, c := apiserver.Borrow(t)
	stock(t, c)
	p := newProxy(t, config)
	cost := func() ([]string, int) {
		if stdout, stderr, exit := runAt(t, p.URL, "preflight"); exit != Fine {
			t.Fatalf("exit code %d, want %d; stderr %q, stdout:\n%s", exit, Fine, stderr, stdout)
		}
		reads, pages := p.counts()
		return lists(t, reads), pages
	}
	cost() // an API server has a client try a kind again that it has just begun to serve
	small, _ := cost()
	fill(t, c, 1000)
	large, pages := cost()
	if diff := cmp.Diff(small, large); diff != "" || pages == 0 || pages > 3 {
		t.Errorf("%d further pages with 1,000 volumes, want some; the requests differ (-small +large):\n%s", pages, diff)
	}
}

func TestPreflightOfAServerThatStopsToAnswerEndsInTimeAndFindsNothing(t *testing.T) {
	config, _ := apiserver.Borrow(t)
	p := newProxy(t, config)
	to, err := url.Parse(p.URL)
	if err != nil {
		t.Fatal(err)
	}
	through := httputil.NewSingleHostReverseProxy(to)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/apis/") || strings.HasPrefix(r.URL.Path, "/api/") {
			_, _ = io.Copy(io.Discard, r.Body) // the server notices the end of a client only then
			<-r.Context().Done()
			return
		}
		through.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	stdout, stderr, exit := runAt(t, server.URL, "preflight", "--timeout", "3s")
	if exit != TimedOut || strings.Contains(stdout, "\nBLOCKED") {
		t.Errorf("exit code %d, want %d and nothing blocked; stderr %q, stdout:\n%s", exit, TimedOut, stderr, stdout)
	}
	for _, want := range []string{"OK             Kubernetes version", "Not read:", "left out: your rights"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the report has no %q:\n%s", want, stdout)
		}
	}
}
