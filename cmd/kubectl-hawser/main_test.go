/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hawser-io/hawser/test/apiserver"
)

// build builds the plugin as a release does, and returns its path.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubectl-hawser")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path,
		"-ldflags", "-X github.com/hawser-io/hawser/internal/version.Version=v1.2.3", ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the plugin: %v\n%s", err, out)
	}
	return path
}

type result struct {
	stdout, stderr string
	exit           int
}

func run(t *testing.T, program string, args ...string) result {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "KUBECONFIG=")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// hung is a server that accepts connections and never answers.
func hung(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return "http://" + listener.Addr().String()
}

func TestExitCodesWithoutACluster(t *testing.T) {
	program := build(t)
	silent := hung(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "http://" + listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		args []string
		exit int
		want string
	}{
		"help":                   {[]string{}, 0, "Usage:"},
		"version":                {[]string{"--version"}, 0, "v1.2.3"},
		"a kind that is none":    {[]string{"why", "thing", "a"}, 2, `the kind is "thing", want pod, pvc`},
		"no name":                {[]string{"why", "pod"}, 2, "want a kind"},
		"files and a name":       {[]string{"why", "pod", "a", "-f", "x"}, 2, "no kind and name"},
		"a format that is none":  {[]string{"why", "pod", "a", "-o", "xml"}, 2, `--output is "xml", want json, yaml, wide`},
		"a file that is missing": {[]string{"why", "-f", "/none", "--server", closed}, 2, "/none"},
		"no kubeconfig":          {[]string{"why", "pod", "a"}, 2, "no cluster is configured"},
		"no server":              {[]string{"why", "pod", "a", "--server", closed}, 2, "the API server does not answer"},
		"a server that is silent": {
			[]string{"why", "pod", "a", "--server", silent, "--timeout", "300ms"}, 124, "within 300ms"},
		"the same, with JSON": {
			[]string{"why", "pod", "a", "--server", silent, "--timeout", "300ms", "-o", "json"}, 124, "--timeout"},
		"a flag that does not exist": {[]string{"why", "--frobnicate"}, 2, "unknown flag"},
	} {
		t.Run(name, func(t *testing.T) {
			got := run(t, program, tt.args...)
			if got.exit != tt.exit || !strings.Contains(got.stdout+got.stderr, tt.want) {
				t.Errorf("kubectl-hawser %v: exit code %d, want %d and %q; stdout %q, stderr %q",
					tt.args, got.exit, tt.exit, tt.want, got.stdout, got.stderr)
			}
			if tt.exit != 0 && got.stdout != "" {
				t.Errorf("kubectl-hawser %v fails and prints %q to stdout, want nothing there", tt.args, got.stdout)
			}
		})
	}
}

func TestRequestsNameThePluginAndItsVersion(t *testing.T) {
	agents := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agents <- r.UserAgent()
		http.Error(w, "closed", http.StatusTeapot)
	}))
	defer server.Close()
	got := run(t, build(t), "why", "pod", "a", "--server", server.URL)
	if agent := <-agents; !strings.HasPrefix(agent, "kubectl-hawser/v1.2.3 (") {
		t.Errorf("the user agent is %q, want kubectl-hawser/v1.2.3 and the platform; exit code %d", agent, got.exit)
	}
}

func TestExitCodesOnARealCluster(t *testing.T) {
	config, c := apiserver.Start(t)
	program, kubeconfig := build(t), apiserver.Kubeconfig(t, config)
	source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "none"}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "web", Image: "web"}},
		Volumes:    []corev1.Volume{{Name: "data", VolumeSource: source}}}}
	if err := c.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"", "json", "yaml"} {
		got := run(t, program, "why", "pod/web", "-o", format, "--kubeconfig", kubeconfig)
		if got.exit != 1 || !strings.Contains(got.stdout, "HWS101") || got.stderr != "" {
			t.Errorf("a pod without its claim, -o %q: %+v, want exit code 1, HWS101 and nothing on stderr", format, got)
		}
		if strings.Contains(got.stdout, "\033") {
			t.Errorf("the output has colours, and stdout is no terminal: %q", got.stdout)
		}
	}
	painted := run(t, program, "why", "pod", "web", "--color", "always", "--kubeconfig", kubeconfig)
	if !strings.Contains(painted.stdout, "\033[31m") {
		t.Errorf("--color always: %q, want colours", painted.stdout)
	}
	pod.Status.Phase = corev1.PodSucceeded
	if err := c.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	got := run(t, program, "why", "pod", "web", "-o", "json", "--kubeconfig", kubeconfig)
	var report struct {
		Kind    string
		Reports []struct{ Verdict string }
	}
	err := json.Unmarshal([]byte(got.stdout), &report)
	if err != nil || report.Kind != "WhyReports" || len(report.Reports) != 1 || got.exit != 0 {
		t.Errorf("a pod that has ended: %+v, error %v, want exit code 0 and one report of kind WhyReports", got, err)
	}
}

// A server may answer for some objects and hang for others.
func TestATimeoutShowsWhatWasReadUntilThen(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/apis/volumes.hawser.io":
			http.NotFound(w, r)
		case "/api/v1/namespaces/shop/pods/web":
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"shop","name":"web","uid":"u"},` +
				`"spec":{"nodeName":"node-a","containers":[]},"status":{"phase":"Pending"}}`))
		default:
			<-r.Context().Done()
		}
	}))
	defer server.Close()
	got := run(t, build(t), "why", "pod", "web", "-n", "shop", "--server", server.URL, "--timeout", "1s")
	for _, want := range []string{"Pod shop/web: Pending, on node node-a", "unknown", "HWS804"} {
		if got.exit != 124 || !strings.Contains(got.stdout, want) || !strings.Contains(got.stderr, "--timeout") {
			t.Errorf("exit code %d, want 124 and %q; stderr %q, stdout:\n%s", got.exit, want, got.stderr, got.stdout)
		}
	}
}
