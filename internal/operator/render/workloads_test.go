/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package render

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/install"
	"github.com/hawser-io/hawser/test/apiserver"
)

// workloads renders both programs.
func workloads(t *testing.T, in Input) (*appsv1.Deployment, *appsv1.DaemonSet) {
	t.Helper()
	objects := render(t, in)
	manager, agent := &appsv1.Deployment{}, &appsv1.DaemonSet{}
	for name, typed := range map[string]any{"Deployment hawser-system/hawser-manager": manager,
		"DaemonSet hawser-system/hawser-agent": agent} {
		err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(objects[name].Object, typed, true)
		if err != nil {
			t.Fatal(err)
		}
	}
	return manager, agent
}

func minutes(n int) *metav1.Duration {
	return &metav1.Duration{Duration: time.Duration(n) * time.Minute}
}

func affinity(key, value string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.
		NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}}}}
}

func source(name string) volumesv1alpha1.FenceSource {
	return volumesv1alpha1.FenceSource{Name: name, Group: "metal3.io", Version: "v1alpha1", Resource: "baremetalhosts",
		NodeName: "object.metadata.name", Holds: "object.status.count < 1 && object.a.matches('$(A)x$')",
		Proves: volumesv1alpha1.FencePowerOff}
}

// full sets every field.
func full() volumesv1alpha1.VolumeManagerSpec {
	limit := &corev1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("2048Mi")}}
	return volumesv1alpha1.VolumeManagerSpec{
		AttachMode: volumesv1alpha1.AttachReplace, PodIntents: volumesv1alpha1.PodIntentsAlways,
		NodeSelector: map[string]string{"pool": "storage"},
		NodeAffinity: affinity("zone", "a"),
		Tolerations:  []corev1.Toleration{{Key: "storage", Operator: corev1.TolerationOpExists}},
		KubeletRoot:  "/data/kubelet", RootDirectory: "/data/hawser",
		Detach: &volumesv1alpha1.DetachDefaults{PodForceDetachAfter: minutes(6), ForgetGoneNodesAfter: minutes(120),
			ReleaseSetsOnTaints: []string{"example.com/going", "other"}},
		Fencing: &volumesv1alpha1.Fencing{ManageOutOfServiceTaint: ptr.To(true),
			Sources: []volumesv1alpha1.FenceSource{source("bmc")}},
		NodeLabels: ptr.To(true), LogLevel: volumesv1alpha1.LogDebug,
		Manager: volumesv1alpha1.ManagerWorkload{Replicas: ptr.To(int32(3)), Resources: limit},
		Agent: volumesv1alpha1.AgentWorkload{Resources: limit, MaxUnavailable: ptr.To(intstr.FromInt32(2)),
			MetricsPort: 19843, HealthPort: 19844, DriverTimeout: minutes(3), StatsPeriod: minutes(4)},
		MetricsCertificateSecret: "metrics-tls",
		NetworkPolicy:            volumesv1alpha1.ManagedNone, Monitoring: volumesv1alpha1.ManagedNone,
	}
}

func TestEveryFieldReachesItsProgram(t *testing.T) {
	in := input()
	in.Spec = full()
	manager, agent := workloads(t, in)
	expectArgs(t, manager.Spec.Template, "--attach-mode=Replace", "--pod-intents=true", "--pod-force-detach-after=6m0s",
		"--forget-gone-nodes-after=2h0m0s", "--release-sets-on-taints=example.com/going,other",
		"--manage-out-of-service-taint=true", "--label-nodes=true",
		`--fence-source={"name":"bmc","group":"metal3.io","version":"v1alpha1","resource":"baremetalhosts",`+
			`"nodeName":"object.metadata.name","holds":"object.status.count < 1 && object.a.matches('$$(A)x$$')",`+
			`"proves":"PowerOff"}`,
		"--zap-log-level=debug", "--metrics-cert-dir=/etc/hawser/metrics", "--leader-elect")
	expectArgs(t, agent.Spec.Template, "--kubelet-dir=/data/kubelet", "--root-dir=/data/hawser", "--driver-timeout=3m0s",
		"--stats-period=4m0s", "--metrics-bind-address=:19843", "--health-probe-bind-address=127.0.0.1:19844",
		"--zap-log-level=debug", "--metrics-cert-dir=/etc/hawser/metrics")
	expectPaths(t, manager.Spec.Template.Spec, map[string]string{"/etc/hawser/metrics": "Secret metrics-tls"})
	expectPaths(t, agent.Spec.Template.Spec, map[string]string{"/data/kubelet": "/data/kubelet",
		"/data/hawser": "/data/hawser", "/dev": "/dev", "/etc/hawser/metrics": "Secret metrics-tls"})
	if *manager.Spec.Replicas != 3 || agent.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntValue() != 2 {
		t.Errorf("replicas %d, max unavailable %v", *manager.Spec.Replicas, agent.Spec.UpdateStrategy.RollingUpdate)
	}
	for _, pod := range []corev1.PodSpec{manager.Spec.Template.Spec, agent.Spec.Template.Spec} {
		if got := pod.Containers[0].Resources; got.Requests != nil || got.Limits.Memory().String() != "2Gi" {
			t.Errorf("resources of %s: %v", pod.ServiceAccountName, got)
		}
	}
	for _, port := range agent.Spec.Template.Spec.Containers[0].Ports {
		if want := map[string]int32{"metrics": 19843, "health": 19844}[port.Name]; port.ContainerPort != want {
			t.Errorf("port %s is %d, want %d", port.Name, port.ContainerPort, want)
		}
	}
	pod := agent.Spec.Template.Spec
	want := map[string]string{"kubernetes.io/os": "linux", "pool": "storage"}
	if !reflect.DeepEqual(pod.NodeSelector, want) {
		t.Errorf("node selector %v, want %v", pod.NodeSelector, want)
	}
	if !reflect.DeepEqual(pod.Tolerations, in.Spec.Tolerations) {
		t.Errorf("tolerations %v, want %v", pod.Tolerations, in.Spec.Tolerations)
	}
	if got := PlacementOf(pod).NodeAffinity; !reflect.DeepEqual(got, in.Spec.NodeAffinity) {
		t.Errorf("node affinity %v, want %v", got, in.Spec.NodeAffinity)
	}
}

func expectArgs(t *testing.T, template corev1.PodTemplateSpec, want ...string) {
	t.Helper()
	args := template.Spec.Containers[0].Args
	for _, arg := range want {
		if !slices.Contains(args, arg) {
			t.Errorf("%s has no %s: %v", template.Spec.ServiceAccountName, arg, args)
		}
	}
	names := map[string]bool{}
	for _, arg := range args {
		name, _, _ := strings.Cut(arg, "=")
		if names[name] {
			t.Errorf("%s has %s twice: %v", template.Spec.ServiceAccountName, name, args)
		}
		names[name] = true
	}
}

// expectPaths compares what the container sees at each path.
func expectPaths(t *testing.T, pod corev1.PodSpec, want map[string]string) {
	t.Helper()
	sources := map[string]string{}
	for _, v := range pod.Volumes {
		switch {
		case v.HostPath != nil:
			sources[v.Name] = v.HostPath.Path
		case v.Secret != nil:
			sources[v.Name] = "Secret " + v.Secret.SecretName
		}
	}
	got := map[string]string{}
	for _, m := range pod.Containers[0].VolumeMounts {
		if source, found := sources[m.Name]; found {
			got[m.MountPath] = source
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s sees %v, want %v", pod.ServiceAccountName, got, want)
	}
}

// TestNodesThatRunNoAgentAreLeftOutByDefault: pods there would stay Pending, and a rollout would wait for them.
func TestNodesThatRunNoAgentAreLeftOutByDefault(t *testing.T) {
	_, agent := workloads(t, input())
	for _, test := range []struct {
		labels map[string]string
		want   bool
	}{
		{nil, true},
		{map[string]string{"node.kubernetes.io/instance-type": "m5.large", "type": "storage"}, true},
		{map[string]string{"eks.amazonaws.com/compute-type": "auto"}, true},
		{map[string]string{"eks.amazonaws.com/compute-type": "fargate"}, false},
		{map[string]string{"type": "virtual-kubelet"}, false},
		{map[string]string{"node.kubernetes.io/instance-type": "eklet"}, false},
		{map[string]string{"kubernetes.io/os": "windows"}, false},
	} {
		node := &corev1.Node{}
		node.Labels = map[string]string{"kubernetes.io/os": "linux"}
		maps.Copy(node.Labels, test.labels)
		if got := install.AgentRunsOn(node, agent.Spec.Template.Spec); got != test.want {
			t.Errorf("an agent runs on a node with the labels %v: %t, want %t", test.labels, got, test.want)
		}
	}
}

// TestTheErrorWithWhichAProgramEndsIsInItsPod: without it a port that is taken is an exit code only.
func TestTheErrorWithWhichAProgramEndsIsInItsPod(t *testing.T) {
	manager, agent := workloads(t, input())
	for _, template := range []corev1.PodTemplateSpec{manager.Spec.Template, agent.Spec.Template} {
		c := template.Spec.Containers[0]
		if c.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError {
			t.Errorf("termination message policy of %s: %q, want FallbackToLogsOnError", c.Name, c.TerminationMessagePolicy)
		}
	}
}

func TestTolerationsMayBeNone(t *testing.T) {
	in := input()
	in.Spec.Tolerations = []corev1.Toleration{}
	if _, agent := workloads(t, in); len(agent.Spec.Template.Spec.Tolerations) != 0 {
		t.Errorf("tolerations: %v", agent.Spec.Template.Spec.Tolerations)
	}
}

func TestAPlacementThatIsHeldBackReplacesTheOneOfTheSpec(t *testing.T) {
	in := input()
	in.Spec = full()
	for _, held := range []Placement{{NodeSelector: map[string]string{"pool": "old"}},
		{NodeAffinity: affinity("zone", "old")}} {
		in.Placement = &held
		_, agent := workloads(t, in)
		if got := PlacementOf(agent.Spec.Template.Spec); !reflect.DeepEqual(got, held) {
			t.Errorf("placement of the agents: %+v, want %+v, which is held back", got, held)
		}
	}
	_, agent := workloads(t, in)
	expectArgs(t, agent.Spec.Template, "--kubelet-dir=/data/kubelet")
}

// TestEveryFlagOfAUserHasItsField compares with the flags that the programs define.
func TestEveryFlagOfAUserHasItsField(t *testing.T) {
	withoutField := map[string]string{
		"leader-elect": "the manifests set it", "leader-elect-namespace": "there is one namespace",
		"node-name": "the pod's own", "pprof-bind-address": "for measurements",
		"observe":      "config/observer is another installation",
		"boot-id-file": "for tests", "machine-identity-file": "for tests", "mountinfo": "the manifests set it",
	}
	defined := regexp.MustCompile(`(?:Var|Func)\((?:[^,"]+, )?"([a-z-]+)"`)
	source, err := os.ReadFile("workloads.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"cmd/manager/run.go", "cmd/agent/main.go"} {
		text, err := os.ReadFile(filepath.Join(apiserver.Root(), file))
		if err != nil {
			t.Fatal(err)
		}
		found := defined.FindAllStringSubmatch(string(text), -1)
		if len(found) < 8 {
			t.Errorf("%s defines only the flags %v", file, found)
		}
		for _, match := range found {
			used := strings.Contains(string(source), `"`+match[1]+`"`) || strings.Contains(string(source), `"--`+match[1]+`=`)
			if _, exempt := withoutField[match[1]]; used == exempt {
				t.Errorf("%s defines --%s: a field sets it: %t, an exception says that none has to: %t", file, match[1],
					used, exempt)
			}
		}
	}
}

// TestEachFenceSourceHasItsFlag has the flags read as the kubelet and the manager do.
func TestEachFenceSourceHasItsFlag(t *testing.T) {
	want := []volumesv1alpha1.FenceSource{source("first"), source("second")}
	in := input()
	in.Spec.Fencing = &volumesv1alpha1.Fencing{Sources: want}
	manager, agent := workloads(t, in)
	var got []volumesv1alpha1.FenceSource
	for _, arg := range manager.Spec.Template.Spec.Containers[0].Args {
		text, is := strings.CutPrefix(arg, "--fence-source=")
		if !is {
			continue
		}
		var s volumesv1alpha1.FenceSource
		if err := json.Unmarshal([]byte(strings.ReplaceAll(text, "$$", "$")), &s); err != nil {
			t.Fatalf("%s: %v", arg, err)
		}
		got = append(got, s)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the manager has the sources %+v, want %+v", got, want)
	}
	if args := strings.Join(agent.Spec.Template.Spec.Containers[0].Args, " "); strings.Contains(args, "fence") {
		t.Errorf("the agent has fence sources: %s", args)
	}
}

func TestOnlyInCoexistIsTheManagerDrainedOfTheIntentsOfPods(t *testing.T) {
	for mode, want := range map[volumesv1alpha1.AttachMode]bool{volumesv1alpha1.AttachCoexist: true,
		volumesv1alpha1.AttachReplace: false} {
		in := input()
		in.Spec.AttachMode, in.Spec.PodIntents, in.Draining = mode, volumesv1alpha1.PodIntentsAlways, true
		manager, _ := workloads(t, in)
		args := manager.Spec.Template.Spec.Containers[0].Args
		if got := slices.Contains(args, "--pod-intents=false"); got != want {
			t.Errorf("arguments of a manager in %s that is drained: %q; --pod-intents=false is %t, want %t", mode, args, got,
				want)
		}
		if _, refused := render(t, in)["ValidatingAdmissionPolicyBinding /hawser-draining"]; !refused {
			t.Errorf("objects in %s while draining: no binding hawser-draining, want one", mode)
		}
	}
}

func TestANamespaceThatIsItsAdministratorsIsProtectedByAPolicy(t *testing.T) {
	const policy = "ValidatingAdmissionPolicy /hawser-namespace"
	if _, there := render(t, input())[policy]; there {
		t.Errorf("objects in %s: policy hawser-namespace, want none: the namespace has the mark", input().Namespace)
	}
	in := input()
	in.Namespace = "storage-system"
	object := render(t, in)[policy]
	if object == nil {
		t.Fatalf("objects in %s: no policy hawser-namespace, want one", in.Namespace)
	}
	rules, _, err := unstructured.NestedSlice(object.Object, "spec", "matchConstraints", "resourceRules")
	if err != nil || len(rules) != 1 {
		t.Fatalf("rules of policy hawser-namespace: %v, error %v; want one", rules, err)
	}
	if names, _, _ := unstructured.NestedStringSlice(rules[0].(map[string]any), "resourceNames"); !slices.Equal(names,
		[]string{in.Namespace}) {
		t.Errorf("policy hawser-namespace protects namespaces %q, want %s", names, in.Namespace)
	}
}

// TestNothingIsMountedBelowWhatTheHostSees checks what lets the number of mounts grow with each restart of an agent: a
// mount of its container that lies in a directory with propagation to the host.
func TestNothingIsMountedBelowWhatTheHostSees(t *testing.T) {
	set := input()
	set.Spec = full()
	for name, in := range map[string]Input{"by default": input(), "with every field set": set} {
		_, agent := workloads(t, in)
		mounts := agent.Spec.Template.Spec.Containers[0].VolumeMounts
		shared := 0
		for _, outer := range mounts {
			if ptr.Deref(outer.MountPropagation, "") != corev1.MountPropagationBidirectional {
				continue
			}
			shared++
			for _, inner := range mounts {
				if strings.HasPrefix(inner.MountPath, outer.MountPath+"/") {
					t.Errorf("%s: the agent mounts %s in %s, which the host sees; want it elsewhere", name, inner.MountPath,
						outer.MountPath)
				}
			}
		}
		if shared != 2 {
			t.Errorf("%s: %d directories of the agent have propagation to the host, want 2", name, shared)
		}
	}
}
