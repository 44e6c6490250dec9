/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/operator/condition"
	"github.com/hawser-io/hawser/internal/operator/render"
)

// render holds back what would take the agent from volumes in use: another placement, or directories in which it would
// not find their mounts. The latter may have been changed while no operator ran that marks the VolumeManager.
func (r *Reconciler) render(ctx context.Context, in render.Input, u used) ([]*unstructured.Unstructured,
	[]condition.Problem, error) {
	objects, err := render.Objects(in)
	if err != nil {
		return nil, nil, err
	}
	at := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "DaemonSet" })
	if at < 0 {
		return objects, nil, nil
	}
	have, _, err := r.compare(ctx, objects[at], nil, true)
	if err != nil || have == nil {
		return objects, nil, err
	}
	from, err := fromUnstructured[appsv1.DaemonSet](have)
	if err != nil {
		return nil, nil, err
	}
	to, err := fromUnstructured[appsv1.DaemonSet](objects[at])
	if err != nil {
		return nil, nil, err
	}
	left, err := r.leaving(ctx, from.Spec.Template.Spec, to.Spec.Template.Spec)
	if err != nil {
		return nil, nil, err
	}
	var held []condition.Problem
	if len(left) > 0 {
		in.Placement = new(render.PlacementOf(from.Spec.Template.Spec))
		held = append(held, condition.Problem{Reason: volumesv1alpha1.ReasonPlacementHeldBack,
			Message: leavingMessage(left)})
	}
	kept := render.DirectoriesOf(from.Spec.Template.Spec)
	if !u.released() && kept != render.DirectoriesOf(to.Spec.Template.Spec) {
		in.Spec.KubeletRoot, in.Spec.RootDirectory = kept.Kubelet, kept.Root
		held = append(held, condition.Problem{Reason: volumesv1alpha1.ReasonPlacementHeldBack, Message: fmt.Sprintf(
			"spec.kubeletRoot and spec.rootDirectory are held back, because the agents would not find the mounts of volumes "+
				"that are in use: they keep %s and %s. Release these volumes (kubectl get vai,nvs -A), or set the fields so",
			kept.Kubelet, kept.Root)})
	}
	if len(held) == 0 {
		return objects, nil, nil
	}
	objects, err = render.Objects(in)
	return objects, held, err
}

// leaving returns the nodes with volumes in use that would lose their agent.
func (r *Reconciler) leaving(ctx context.Context, from, to corev1.PodSpec) ([]leftNode, error) {
	if equality.Semantic.DeepEqual(render.PlacementOf(from), render.PlacementOf(to)) {
		return nil, nil // nothing that decides about nodes differs
	}
	nodes := &corev1.NodeList{}
	if err := r.Cache.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	volumes := func(string) int { return -1 }
	if r.serves(volumesv1alpha1.GroupVersion.WithKind("NodeVolumeState")) {
		states := &volumesv1alpha1.NodeVolumeStateList{}
		if err := r.Cache.List(ctx, states); err != nil {
			return nil, fmt.Errorf("listing node states: %w", err)
		}
		counts := map[string]int{}
		for i := range states.Items {
			counts[states.Items[i].Name] = volumesOn(&states.Items[i])
		}
		volumes = func(node string) int { return counts[node] }
	}
	return leaving(nodes.Items, volumes, from, to), nil
}

// observe gathers what the conditions depend on.
func (r *Reconciler) observe(ctx context.Context, vm *volumesv1alpha1.VolumeManager,
	present map[string]*unstructured.Unstructured) (condition.Facts, error) {
	facts := condition.Facts{Now: r.Clock.Now(), Deadline: r.Deadline}
	if c := meta.FindStatusCondition(vm.Status.Conditions, volumesv1alpha1.ConditionProgressing); c != nil &&
		c.Status == metav1.ConditionTrue {
		facts.ProgressingSince = c.LastTransitionTime.Time
	}
	deployment, err := workload[appsv1.Deployment](ctx, r, present, "Deployment", render.ManagerName)
	if err != nil {
		return facts, err
	}
	daemonSet, err := workload[appsv1.DaemonSet](ctx, r, present, "DaemonSet", render.AgentName)
	if err != nil {
		return facts, err
	}
	facts.Manager, facts.Agents = ofDeployment(deployment), ofDaemonSet(daemonSet)
	if facts.Agents.Scheduled < facts.Agents.Desired {
		if facts.Agents.Refusal, err = refusal(ctx, r.Live, daemonSet); err != nil {
			return facts, err
		}
	}
	nodes := &corev1.NodeList{}
	if err := r.Cache.List(ctx, nodes); err != nil {
		return facts, fmt.Errorf("listing nodes: %w", err)
	}
	if daemonSet != nil {
		facts.WithoutAgent = withoutAgent(nodes.Items, daemonSet.Spec.Template.Spec)
	}
	facts.Pods, err = r.pods(ctx, nodes.Items)
	return facts, err
}

// workload returns one that is present, or that was applied before and is left as it is because no image is known.
func workload[T any](ctx context.Context, r *Reconciler, present map[string]*unstructured.Unstructured,
	kind, name string) (*T, error) {
	object := newObject(appsv1.SchemeGroupVersion.WithKind(kind))
	object.SetNamespace(r.Namespace)
	object.SetName(name)
	if applied := present[identity(object)]; applied != nil {
		return fromUnstructured[T](applied)
	}
	err := r.Cache.Get(ctx, client.ObjectKeyFromObject(object), object)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", identity(object), err)
	}
	return fromUnstructured[T](object)
}

func ofDeployment(d *appsv1.Deployment) condition.Workload {
	if d == nil {
		return condition.Workload{}
	}
	w := condition.Workload{Exists: true, Observed: d.Status.ObservedGeneration >= d.Generation,
		Desired: ptr.Deref(d.Spec.Replicas, 1), Scheduled: d.Status.Replicas, Updated: d.Status.UpdatedReplicas,
		Ready: d.Status.ReadyReplicas, Old: d.Status.Replicas - d.Status.UpdatedReplicas, Budget: 1}
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			w.Failure = c.Message
		}
	}
	return w
}

func ofDaemonSet(d *appsv1.DaemonSet) condition.Workload {
	if d == nil {
		return condition.Workload{}
	}
	w := condition.Workload{Exists: true, Observed: d.Status.ObservedGeneration >= d.Generation,
		Desired: d.Status.DesiredNumberScheduled, Scheduled: d.Status.CurrentNumberScheduled,
		Updated: d.Status.UpdatedNumberScheduled, Ready: d.Status.NumberReady}
	if rolling := d.Spec.UpdateStrategy.RollingUpdate; rolling != nil && rolling.MaxUnavailable != nil {
		budget, err := intstr.GetScaledValueFromIntOrPercent(rolling.MaxUnavailable, int(w.Desired), true)
		if err == nil {
			w.Budget = int32(budget) //nolint:gosec // a share of an int32
		}
	}
	return w
}

// refusal is the message of the newest event with which the controller of DaemonSets reports that it could create no
// pod; empty for none. A DaemonSet has no condition for it.
func refusal(ctx context.Context, live client.Reader, d *appsv1.DaemonSet) (string, error) {
	refused := &corev1.EventList{}
	if err := live.List(ctx, refused, client.InNamespace(d.Namespace), client.MatchingFields{
		"involvedObject.uid": string(d.UID), "reason": "FailedCreate"}); err != nil {
		return "", fmt.Errorf("listing the events of %s: %w", d.Name, err)
	}
	if len(refused.Items) == 0 {
		return "", nil
	}
	return slices.MaxFunc(refused.Items, func(a, b corev1.Event) int { return at(&a).Compare(at(&b)) }).Message, nil
}

// at is when an event was seen last.
func at(e *corev1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	if e.LastTimestamp.IsZero() {
		return e.EventTime.Time
	}
	return e.LastTimestamp.Time
}

// pods that are not ready or are being deleted, by name.
func (r *Reconciler) pods(ctx context.Context, nodes []corev1.Node) ([]condition.Pod, error) {
	pods := &corev1.PodList{}
	if err := r.Cache.List(ctx, pods, client.InNamespace(r.Namespace)); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	ready := map[string]bool{}
	for i := range nodes {
		ready[nodes[i].Name] = liveness.Ready(&nodes[i])
	}
	var found []condition.Pod
	for i := range pods.Items {
		pod := &pods.Items[i]
		since, notReady := notReadySince(pod)
		terminating := pod.DeletionTimestamp != nil
		if !notReady && !terminating || !isProgram(pod) {
			continue
		}
		if terminating {
			since = pod.DeletionTimestamp.Time
		}
		found = append(found, condition.Pod{Name: pod.Name, Node: pod.Spec.NodeName,
			Intended: intendedFor(pod), Since: since, Agent: isAgent(pod), Terminating: terminating, Failure: failureOf(pod),
			NodeReady: ready[pod.Spec.NodeName]})
	}
	slices.SortFunc(found, func(a, b condition.Pod) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// intendedFor is the node that the controller of a DaemonSet made a pod for. The scheduler binds it there, or nowhere.
func intendedFor(pod *corev1.Pod) string {
	required := render.PlacementOf(pod.Spec).NodeAffinity
	if required == nil {
		return ""
	}
	for _, term := range required.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

func notReadySince(pod *corev1.Pod) (time.Time, bool) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.LastTransitionTime.Time, c.Status != corev1.ConditionTrue
		}
	}
	return pod.CreationTimestamp.Time, true
}

// failureOf is why a container waits, if it does not merely start.
func failureOf(pod *corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		waiting := c.State.Waiting
		if waiting == nil || waiting.Reason == "ContainerCreating" || waiting.Reason == "PodInitializing" {
			continue
		}
		if last := c.LastTerminationState.Terminated; last != nil {
			return fmt.Sprintf("%s, %d restart(s), last exit code %d%s", waiting.Reason, c.RestartCount, last.ExitCode,
				lastLine(last.Message))
		}
		return waiting.Reason + ": " + waiting.Message
	}
	return ""
}

// longestQuote of a container's last words, in bytes.
const longestQuote = 512

// lastLine quotes the last line of a termination message, which is the end of the log unless the program wrote one.
func lastLine(message string) string {
	lines := strings.Split(strings.TrimSpace(message), "\n")
	line := lines[len(lines)-1]
	if line == "" {
		return ""
	}
	return ": " + strings.ToValidUTF8(line[:min(len(line), longestQuote)], "")
}

func fromUnstructured[T any](object *unstructured.Unstructured) (*T, error) {
	typed := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
		return nil, fmt.Errorf("converting %s: %w", identity(object), err)
	}
	return typed, nil
}
