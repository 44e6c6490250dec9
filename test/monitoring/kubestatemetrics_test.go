/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package monitoring runs the programs of others that Hawser ships files for.
package monitoring

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/endpoints"
)

const patience = time.Minute

// program is kube-state-metrics, which make builds.
var program = filepath.Join(apiserver.Root(), ".cache", "tools", "kube-state-metrics")

// kubeconfig writes a file that gives access as the test's administrator.
func kubeconfig(t *testing.T, c *rest.Config) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	config.AuthInfos["test"] = &clientcmdapi.AuthInfo{ClientCertificateData: c.CertData, ClientKeyData: c.KeyData,
		Token: c.BearerToken}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	name := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, name); err != nil {
		t.Fatal(err)
	}
	return name
}

// exporter is a kube-state-metrics that runs.
type exporter struct {
	url string
	mu  sync.Mutex
	log bytes.Buffer
}

// Write adds to the log.
func (e *exporter) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.log.Write(p)
}

func (e *exporter) logged() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.log.String()
}

// export runs kube-state-metrics on the file that we ship, until the test ends.
func export(t *testing.T, c *rest.Config) *exporter {
	t.Helper()
	address := endpoints.FreeAddress(t)
	host, port, _ := net.SplitHostPort(address)
	_, telemetryPort, _ := net.SplitHostPort(endpoints.FreeAddress(t))
	e := &exporter{url: "http://" + address + "/metrics"}
	ctx, cancel := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, program, "--kubeconfig="+kubeconfig(t, c), "--custom-resource-state-only",
		"--custom-resource-state-config-file="+
			filepath.Join(apiserver.Root(), "config", "kube-state-metrics", "custom-resource-state.yaml"),
		"--host="+host, "--port="+port, "--telemetry-host="+host, "--telemetry-port="+telemetryPort)
	command.Stdout, command.Stderr = e, e
	if err := command.Start(); err != nil {
		cancel()
		t.Fatalf("starting kube-state-metrics: %v", err)
	}
	t.Cleanup(func() {
		cancel()
		_ = command.Wait() // it was killed
		if t.Failed() {
			t.Logf("kube-state-metrics:\n%s", e.logged())
		}
	})
	return e
}

// ours removes the labels that kube-state-metrics adds to every series.
var ours = regexp.MustCompile(`customresource_(group|kind|version)="[^"]*",`)

// series are those of Hawser that are 1, sorted; nil while nothing answers.
func (e *exporter) series(t *testing.T) []string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil // it does not listen yet
	}
	defer answer.Body.Close() //nolint:errcheck // read to its end
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatalf("reading the metrics of kube-state-metrics: %v", err)
	}
	var lines []string
	scanner := bufio.NewScanner(bytes.NewReader(body))
	for scanner.Scan() {
		if line, ok := strings.CutSuffix(scanner.Text(), " 1"); ok && strings.HasPrefix(line, "hawser_") {
			lines = append(lines, ours.ReplaceAllString(line, ""))
		}
	}
	slices.Sort(lines)
	return lines
}

// await scrapes, as Prometheus does, until the series are those.
func (e *exporter) await(t *testing.T, what string, want ...string) {
	t.Helper()
	slices.Sort(want)
	scrapes := time.NewTicker(100 * time.Millisecond)
	defer scrapes.Stop()
	deadline := time.After(patience)
	for {
		got := e.series(t)
		if slices.Equal(got, want) {
			return
		}
		select {
		case <-scrapes.C:
		case <-deadline:
			t.Fatalf("series of %s:\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// condition since one second after the epoch, so that a series of its time has the value 1.
func condition(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.Unix(1, 0),
		Message: "a message, which is no label"}
}

func TestConditionsBecomeSeriesThatKeepUnknownApart(t *testing.T) {
	if _, err := os.Stat(program); err != nil {
		t.Skipf("LEFT OUT (needs %s; make test builds it)", program)
	}
	config, api := apiserver.Start(t)
	e := export(t, config)
	intent := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data"},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{NodeName: "n1",
			Volume: volumesv1alpha1.VolumeSource{
				PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "data"}}},
	}
	state := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	for _, object := range []client.Object{intent, state} {
		if err := api.Create(t.Context(), object); err != nil {
			t.Fatalf("creating %T: %v", object, err)
		}
	}
	report := func(object client.Object, into *[]metav1.Condition, conditions ...metav1.Condition) {
		t.Helper()
		*into = conditions
		if err := api.Status().Update(t.Context(), object); err != nil {
			t.Fatalf("writing the status of %T: %v", object, err)
		}
	}
	report(intent, &intent.Status.Conditions, condition("Attached", metav1.ConditionFalse, "VolumeInUseElsewhere"),
		condition("Ready", metav1.ConditionFalse, "VolumeInUseElsewhere"))
	state.Status.Summary = &volumesv1alpha1.NodeVolumeSummary{Failing: 1}
	report(state, &state.Status.Conditions, condition("DriversReady", metav1.ConditionFalse, "DriversMissing"),
		condition("MountsConsistent", metav1.ConditionTrue, "AsExpected"),
		condition("Ready", metav1.ConditionUnknown, "AgentUnreachable"))
	const of = `intent="data",namespace="default",node="n1"`
	node := []string{
		`hawser_node_condition_reason{condition="DriversReady",node="n1",reason="DriversMissing",status="False"}`,
		`hawser_node_condition_reason{condition="MountsConsistent",node="n1",reason="AsExpected",status="True"}`,
		`hawser_node_condition_reason{condition="Ready",node="n1",reason="AgentUnreachable",status="Unknown"}`,
		`hawser_node_drivers_ready{node="n1",status="False"}`,
		`hawser_node_failing_volumes{node="n1"}`,
		`hawser_node_mounts_consistent{node="n1",status="True"}`,
		`hawser_node_ready{node="n1",status="Unknown"}`,
	}
	e.await(t, "a node whose agent is silent and an intent that waits", append(slices.Clone(node),
		`hawser_intent_condition_reason{condition="Attached",`+of+`,reason="VolumeInUseElsewhere",status="False"}`,
		`hawser_intent_condition_reason{condition="Ready",`+of+`,reason="VolumeInUseElsewhere",status="False"}`,
		`hawser_intent_ready{`+of+`,status="False"}`, `hawser_intent_ready_transition_timestamp_seconds{`+of+`}`)...)
	report(intent, &intent.Status.Conditions, condition("Ready", metav1.ConditionFalse, "VolumeModeMismatch"),
		condition("Stalled", metav1.ConditionTrue, "VolumeModeMismatch"))
	e.await(t, "an intent with a final error", append(slices.Clone(node),
		`hawser_intent_condition_reason{condition="Ready",`+of+`,reason="VolumeModeMismatch",status="False"}`,
		`hawser_intent_condition_reason{condition="Stalled",`+of+`,reason="VolumeModeMismatch",status="True"}`,
		`hawser_intent_ready{`+of+`,status="False"}`, `hawser_intent_ready_transition_timestamp_seconds{`+of+`}`,
		`hawser_intent_stalled{`+of+`,status="True"}`)...)
	if err := api.Delete(t.Context(), intent); err != nil {
		t.Fatalf("deleting intent %s: %v", intent.Name, err)
	}
	e.await(t, "a node alone", node...)
	set := &volumesv1alpha1.VolumeAttachmentIntentSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "models"},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSetSpec{NodeSelector: &metav1.LabelSelector{},
			Template: volumesv1alpha1.IntentTemplate{Spec: volumesv1alpha1.IntentTemplateSpec{
				Volume: &volumesv1alpha1.TemplateVolumeSource{
					PersistentVolumeClaim: volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "models"}}}}},
	}
	if err := api.Create(t.Context(), set); err != nil {
		t.Fatalf("creating set %s: %v", set.Name, err)
	}
	set.Status.ObservedGeneration, set.Status.Desired, set.Status.Ready, set.Status.Failing = 1, 1, 1, 1
	report(set, &set.Status.Conditions, condition("Ready", metav1.ConditionFalse, "IntentsFailing"))
	const ofSet = `intentset="models",namespace="default"`
	e.await(t, "a set", append(slices.Clone(node),
		`hawser_intentset_condition_reason{condition="Ready",`+ofSet+`,reason="IntentsFailing",status="False"}`,
		`hawser_intentset_desired_nodes{`+ofSet+`}`, `hawser_intentset_ready_nodes{`+ofSet+`}`,
		`hawser_intentset_failing_nodes{`+ofSet+`}`, `hawser_intentset_ready{`+ofSet+`,status="False"}`)...)
	if log := e.logged(); strings.Contains(log, "expected value for path") {
		t.Errorf("kube-state-metrics logs errors about objects without a condition, want none:\n%s", log)
	}
}
