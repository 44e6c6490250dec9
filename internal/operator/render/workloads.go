/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package render

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

const (
	certificateVolume    = "metrics-certificate"
	certificateDirectory = "/etc/hawser/metrics"

	// The agents' volumes with directories of their hosts.
	kubeletVolume = "kubelet"
	rootVolume    = "root"
)

// Placement is where the agents run.
type Placement struct {
	NodeSelector map[string]string
	NodeAffinity *corev1.NodeSelector
	Tolerations  []corev1.Toleration
}

// PlacementOf a pod.
func PlacementOf(pod corev1.PodSpec) Placement {
	p := Placement{NodeSelector: pod.NodeSelector, Tolerations: pod.Tolerations}
	if a := pod.Affinity; a != nil && a.NodeAffinity != nil {
		p.NodeAffinity = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return p
}

// Directories of the agents on their hosts.
type Directories struct{ Kubelet, Root string }

// DirectoriesOf a pod.
func DirectoriesOf(pod corev1.PodSpec) Directories {
	paths := map[string]string{}
	for _, volume := range pod.Volumes {
		if volume.HostPath != nil {
			paths[volume.Name] = volume.HostPath.Path
		}
	}
	return Directories{Kubelet: paths[kubeletVolume], Root: paths[rootVolume]}
}

// edit changes an object in the form that server-side apply has: a field that is not set is not in it.
func edit[T any](object *unstructured.Unstructured, change func(*T) error) error {
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	typed := new(T)
	if err := json.Unmarshal(text, typed); err != nil {
		return err
	}
	if err := change(typed); err != nil {
		return err
	}
	if text, err = json.Marshal(typed); err != nil {
		return err
	}
	return object.UnmarshalJSON(text)
}

func (in Input) manager(d *appsv1ac.DeploymentApplyConfiguration) error {
	pod := d.Spec.Template.Spec
	container := &pod.Containers[0]
	container.WithImage(in.Images.Manager)
	if in.Spec.Manager.Replicas != nil {
		d.Spec.WithReplicas(*in.Spec.Manager.Replicas)
	}
	if err := setResources(container, in.Spec.Manager.Resources); err != nil {
		return err
	}
	if in.Spec.AttachMode == volumesv1alpha1.AttachReplace {
		setFlag(container, "attach-mode", string(in.Spec.AttachMode))
	}
	in.podIntents(container)
	if detach := in.Spec.Detach; detach != nil {
		setDuration(container, "pod-force-detach-after", detach.PodForceDetachAfter)
		setDuration(container, "forget-gone-nodes-after", detach.ForgetGoneNodesAfter)
		if taints := detach.ReleaseSetsOnTaints; len(taints) > 0 {
			setFlag(container, "release-sets-on-taints", strings.Join(taints, ","))
		}
	}
	if ptr.Deref(in.Spec.NodeLabels, false) {
		setFlag(container, "label-nodes", "true")
	}
	if err := in.fenceSources(container); err != nil {
		return err
	}
	in.both(pod, container)
	return nil
}

// fenceSources sets one flag for each source. Kubernetes replaces $(NAME) in an argument by a variable, and $$ by $.
func (in Input) fenceSources(container *corev1ac.ContainerApplyConfiguration) error {
	if in.Spec.Fencing == nil {
		return nil
	}
	if ptr.Deref(in.Spec.Fencing.ManageOutOfServiceTaint, false) {
		setFlag(container, "manage-out-of-service-taint", "true")
	}
	for i := range in.Spec.Fencing.Sources {
		var text strings.Builder
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false) // people read the expressions in the Deployment
		if err := encoder.Encode(in.Spec.Fencing.Sources[i]); err != nil {
			return err
		}
		container.WithArgs("--fence-source=" + strings.ReplaceAll(strings.TrimSpace(text.String()), "$", "$$"))
	}
	return nil
}

// podIntents: in Coexist they only show what upstream does, so a manager that is drained takes them back. In Replace
// they are what pods have their volumes by.
func (in Input) podIntents(container *corev1ac.ContainerApplyConfiguration) {
	switch {
	case in.Draining && in.Spec.AttachMode != volumesv1alpha1.AttachReplace,
		in.Spec.PodIntents == volumesv1alpha1.PodIntentsNever:
		setFlag(container, "pod-intents", "false")
	case in.Spec.PodIntents == volumesv1alpha1.PodIntentsAlways:
		setFlag(container, "pod-intents", "true")
	}
}

func (in Input) agent(d *appsv1ac.DaemonSetApplyConfiguration) error {
	pod := d.Spec.Template.Spec
	container := &pod.Containers[0]
	container.WithImage(in.Images.Agent)
	if in.Spec.Agent.MaxUnavailable != nil {
		d.Spec.UpdateStrategy.RollingUpdate.WithMaxUnavailable(*in.Spec.Agent.MaxUnavailable)
	}
	if err := setResources(container, in.Spec.Agent.Resources); err != nil {
		return err
	}
	setDirectory(pod, kubeletVolume, "kubelet-dir", in.Spec.KubeletRoot)
	setDirectory(pod, rootVolume, "root-dir", in.Spec.RootDirectory)
	setPort(container, "metrics", "metrics-bind-address", ":", in.Spec.Agent.MetricsPort)
	setPort(container, "health", "health-probe-bind-address", "127.0.0.1:", in.Spec.Agent.HealthPort)
	setDuration(container, "driver-timeout", in.Spec.Agent.DriverTimeout)
	setDuration(container, "stats-period", in.Spec.Agent.StatsPeriod)
	in.both(pod, container)
	return in.place(pod)
}

// place selects the nodes of the agents. The manifest's own selector stays, and what the spec does not set.
func (in Input) place(pod *corev1ac.PodSpecApplyConfiguration) error {
	p := Placement{NodeSelector: in.Spec.NodeSelector, NodeAffinity: in.Spec.NodeAffinity,
		Tolerations: in.Spec.Tolerations}
	if in.Placement != nil {
		p = *in.Placement
		pod.NodeSelector, pod.Affinity, pod.Tolerations = nil, nil, nil
	}
	pod.NodeSelector = maps.Clone(pod.NodeSelector)
	pod.WithNodeSelector(p.NodeSelector)
	if p.NodeAffinity != nil {
		affinity := corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: p.NodeAffinity}}
		if err := replace(&pod.Affinity, affinity); err != nil {
			return err
		}
	}
	if p.Tolerations == nil {
		return nil
	}
	return replace(&pod.Tolerations, p.Tolerations)
}

// replace a part of an apply configuration by what the API's own type has.
func replace[T any](part *T, by any) error {
	text, err := json.Marshal(by)
	if err != nil {
		return err
	}
	var replaced T
	err = json.Unmarshal(text, &replaced)
	*part = replaced
	return err
}

// both sets what manager and agent have in common.
func (in Input) both(pod *corev1ac.PodSpecApplyConfiguration, container *corev1ac.ContainerApplyConfiguration) {
	if level := in.Spec.LogLevel; level != "" && level != volumesv1alpha1.LogInfo {
		setFlag(container, "zap-log-level", strings.ToLower(string(level)))
	}
	if in.Spec.MetricsCertificateSecret == "" {
		return
	}
	setFlag(container, "metrics-cert-dir", certificateDirectory)
	pod.WithVolumes(corev1ac.Volume().WithName(certificateVolume).WithSecret(
		corev1ac.SecretVolumeSource().WithSecretName(in.Spec.MetricsCertificateSecret)))
	container.WithVolumeMounts(corev1ac.VolumeMount().WithName(certificateVolume).
		WithMountPath(certificateDirectory).WithReadOnly(true))
}

// setFlag replaces the flag, or appends it.
func setFlag(container *corev1ac.ContainerApplyConfiguration, name, value string) {
	argument, prefix := "--"+name+"="+value, "--"+name+"="
	at := slices.IndexFunc(container.Args, func(arg string) bool { return strings.HasPrefix(arg, prefix) })
	if at < 0 {
		container.WithArgs(argument)
		return
	}
	container.Args[at] = argument
}

func setDuration(container *corev1ac.ContainerApplyConfiguration, name string, value *metav1.Duration) {
	if value != nil {
		setFlag(container, name, value.Duration.String())
	}
}

// setPort moves a port, which has the same number in the container.
func setPort(container *corev1ac.ContainerApplyConfiguration, name, flag, host string, port int32) {
	if port == 0 {
		return
	}
	setFlag(container, flag, host+strconv.Itoa(int(port)))
	for i := range container.Ports {
		if *container.Ports[i].Name == name {
			container.Ports[i].WithContainerPort(port)
		}
	}
}

// setDirectory moves a directory of the host, which has the same path in the container.
func setDirectory(pod *corev1ac.PodSpecApplyConfiguration, volume, flag, directory string) {
	if directory == "" {
		return
	}
	container := &pod.Containers[0]
	setFlag(container, flag, directory)
	for i := range pod.Volumes {
		if *pod.Volumes[i].Name == volume {
			pod.Volumes[i].HostPath.WithPath(directory)
		}
	}
	for i := range container.VolumeMounts {
		if *container.VolumeMounts[i].Name == volume {
			container.VolumeMounts[i].WithMountPath(directory)
		}
	}
}

func setResources(container *corev1ac.ContainerApplyConfiguration, want *corev1.ResourceRequirements) error {
	if want == nil {
		return nil
	}
	text, err := json.Marshal(want)
	if err != nil {
		return err
	}
	container.Resources = corev1ac.ResourceRequirements()
	return json.Unmarshal(text, container.Resources)
}
