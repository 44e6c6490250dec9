/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package render

import (
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/config"
)

// Adopted returns the spec under which the operator continues an installation that was made without it. The attach
// mode above all must stay: a manager that falls back to Coexist attaches nothing for pods.
func Adopted(manager *appsv1.Deployment, agent *appsv1.DaemonSet) volumesv1alpha1.VolumeManagerSpec {
	var spec volumesv1alpha1.VolumeManagerSpec
	if manager != nil {
		spec.Manager.Replicas = manager.Spec.Replicas
		adoptManager(&spec, flagsOf(manager.Spec.Template, "manager"))
	}
	if agent != nil {
		flags := flagsOf(agent.Spec.Template, "agent")
		spec.KubeletRoot, spec.RootDirectory = flags["kubelet-dir"], flags["root-dir"]
		spec.Agent.MetricsPort = port(flags["metrics-bind-address"])
		spec.Agent.HealthPort = port(flags["health-probe-bind-address"])
		spec.Agent.DriverTimeout = duration(flags["driver-timeout"])
		spec.Agent.StatsPeriod = duration(flags["stats-period"])
		adoptPlacement(&spec, agent.Spec.Template.Spec)
	}
	return spec
}

// adopted are the fields that Adopted reads from flags, with the flag and the workload that has it.
var adopted = []struct{ field, flag, workload string }{
	{"spec.attachMode", "attach-mode", "Deployment " + ManagerName},
	{"spec.podIntents", "pod-intents", "Deployment " + ManagerName},
	{"spec.detach.podForceDetachAfter", "pod-force-detach-after", "Deployment " + ManagerName},
	{"spec.detach.forgetGoneNodesAfter", "forget-gone-nodes-after", "Deployment " + ManagerName},
	{"spec.detach.releaseSetsOnTaints", "release-sets-on-taints", "Deployment " + ManagerName},
	{"spec.kubeletRoot", "kubelet-dir", "DaemonSet " + AgentName},
	{"spec.rootDirectory", "root-dir", "DaemonSet " + AgentName},
	{"spec.agent.metricsPort", "metrics-bind-address", "DaemonSet " + AgentName},
	{"spec.agent.healthPort", "health-probe-bind-address", "DaemonSet " + AgentName},
	{"spec.agent.driverTimeout", "driver-timeout", "DaemonSet " + AgentName},
	{"spec.agent.statsPeriod", "stats-period", "DaemonSet " + AgentName},
}

// Refused returns the flags whose fields the API server refuses in an adopted spec, each with its field and workload.
// A rule about several fields is a cause of the field above them, and its message names them.
func Refused(causes []metav1.StatusCause) []string {
	var flags []string
	for _, a := range adopted {
		parent, name := a.field[:strings.LastIndex(a.field, ".")], a.field[strings.LastIndex(a.field, ".")+1:]
		if slices.ContainsFunc(causes, func(c metav1.StatusCause) bool {
			return c.Field == a.field || c.Field == parent && strings.Contains(c.Message, name)
		}) {
			flags = append(flags, "--"+a.flag+" of "+a.workload+" ("+a.field+")")
		}
	}
	return flags
}

func adoptManager(spec *volumesv1alpha1.VolumeManagerSpec, flags map[string]string) {
	spec.AttachMode = volumesv1alpha1.AttachMode(flags["attach-mode"])
	switch flags["pod-intents"] {
	case "true":
		spec.PodIntents = volumesv1alpha1.PodIntentsAlways
	case "false":
		spec.PodIntents = volumesv1alpha1.PodIntentsNever
	}
	force, forget := duration(flags["pod-force-detach-after"]), duration(flags["forget-gone-nodes-after"])
	taints := strings.FieldsFunc(flags["release-sets-on-taints"], func(r rune) bool { return r == ',' })
	if force != nil || forget != nil || len(taints) > 0 {
		spec.Detach = &volumesv1alpha1.DetachDefaults{
			PodForceDetachAfter: force, ForgetGoneNodesAfter: forget, ReleaseSetsOnTaints: taints,
		}
	}
	switch flags["zap-log-level"] {
	case "debug":
		spec.LogLevel = volumesv1alpha1.LogDebug
	case "error":
		spec.LogLevel = volumesv1alpha1.LogError
	}
}

func adoptPlacement(spec *volumesv1alpha1.VolumeManagerSpec, pod corev1.PodSpec) {
	selector := maps.Clone(pod.NodeSelector)
	delete(selector, corev1.LabelOSStable)
	if len(selector) > 0 {
		spec.NodeSelector = selector
	}
	if affinity := PlacementOf(pod).NodeAffinity; !equality.Semantic.DeepEqual(affinity, defaultAffinity()) {
		spec.NodeAffinity = affinity
	}
	every := corev1.Toleration{Operator: corev1.TolerationOpExists}
	if !slices.Contains(pod.Tolerations, every) {
		spec.Tolerations = append([]corev1.Toleration{}, pod.Tolerations...)
	}
}

// defaultAffinity is that of the manifest, which a spec without one has.
func defaultAffinity() *corev1.NodeSelector {
	objects, err := load(config.Manifests, "agent")
	if err != nil {
		return nil
	}
	for _, object := range objects {
		agent := &appsv1.DaemonSet{}
		if object.GetKind() == "DaemonSet" &&
			runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, agent) == nil {
			return PlacementOf(agent.Spec.Template.Spec).NodeAffinity
		}
	}
	return nil
}

// switches are the flags that need no value. Any other flag takes the argument after it as its value.
var switches = []string{"leader-elect", "zap-devel"}

// flagsOf returns the flags of the named container, as package flag reads them. The last one wins. A webhook may have
// put a container of its own before it.
func flagsOf(template corev1.PodTemplateSpec, name string) map[string]string {
	flags := map[string]string{}
	if len(template.Spec.Containers) == 0 {
		return flags
	}
	at := slices.IndexFunc(template.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
	container := &template.Spec.Containers[max(at, 0)]
	args := slices.Clone(container.Args)
	if len(container.Command) > 1 {
		args = slices.Concat(container.Command[1:], args)
	}
	for len(args) > 0 {
		name, value, found := strings.Cut(args[0], "=")
		args = args[1:]
		if name = flagName(name); name == "" {
			return flags
		}
		switch {
		case found:
		case slices.Contains(switches, name):
			value = "true"
		case len(args) > 0:
			value, args = args[0], args[1:]
		}
		flags[name] = value
	}
	return flags
}

// flagName is empty for an argument that is no flag, which ends the flags.
func flagName(arg string) string {
	name, dashed := strings.CutPrefix(arg, "-")
	if !dashed {
		return ""
	}
	return strings.TrimPrefix(name, "-")
}

// port is 0 for none.
func port(address string) int32 {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return 0
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return int32(number)
}

// duration is nil for none, for zero, and for what the program would refuse.
func duration(text string) *metav1.Duration {
	d, err := time.ParseDuration(text)
	if err != nil || d == 0 {
		return nil
	}
	return &metav1.Duration{Duration: d}
}
