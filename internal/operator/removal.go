/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/operator/render"
	"github.com/hawser-io/hawser/internal/operator/usage"
)

// removal is what an installation that is on its way out is about. The zero value is one that stays.
type removal struct {
	// draining: nothing new may come into use.
	draining  bool
	condition *metav1.Condition
}

// remover removes Hawser after its VolumeManager was deleted.
type remover struct{ *Reconciler }

func notRemoved(reason, format string, args ...any) *metav1.Condition {
	return &metav1.Condition{Type: volumesv1alpha1.ConditionRemoved, Status: metav1.ConditionFalse, Reason: reason,
		Message: fmt.Sprintf(format, args...)}
}

// dismantle carries out the deletion of the VolumeManager. Each stage is decided on what there is: if a volume comes
// into use at the last moment, the installation comes back and releases it.
func (r remover) dismantle(ctx context.Context, vm *volumesv1alpha1.VolumeManager) (time.Duration, error) {
	if !controllerutil.ContainsFinalizer(vm, volumesv1alpha1.RemovalFinalizer) {
		return 0, nil
	}
	if finished, err := r.isFinished(ctx, vm); finished || err != nil {
		return 0, err
	}
	u, err := r.findUsed(ctx, vm)
	if err == nil {
		u.pods, err = r.runningPods(ctx)
	}
	if err != nil && pastDraining(vm) {
		return 0, r.fails(ctx, vm, removedReason(vm), err)
	}
	if err != nil {
		unknown := notRemoved(volumesv1alpha1.ReasonUseUnknown, "it is not known what is in use: %s", listed(err))
		return 0, errors.Join(err, r.reportRemoval(ctx, vm, unknown))
	}
	if !u.nothing() && (u.known || !pastDraining(vm)) {
		return r.drain(ctx, vm, u)
	}
	if err := errors.Join(r.ungate(ctx), r.refuseNew(ctx, vm)); err != nil {
		return 0, r.fails(ctx, vm, volumesv1alpha1.ReasonStoppingPrograms, err)
	}
	programs, err := r.programs(ctx)
	if err != nil {
		return 0, r.fails(ctx, vm, volumesv1alpha1.ReasonStoppingPrograms, err)
	}
	if len(programs) > 0 {
		if err := r.stop(ctx); err != nil {
			return 0, r.fails(ctx, vm, volumesv1alpha1.ReasonStoppingPrograms, err)
		}
		wait := notRemoved(volumesv1alpha1.ReasonStoppingPrograms, "nothing is in use; waiting for the end of %s",
			usage.Some(programs))
		return 0, r.reportRemoval(ctx, vm, wait)
	}
	return 0, r.clean(ctx, vm)
}

// fails reports with what a stage fails, and returns it. As long as that is the same, the status stays as it is.
func (r remover) fails(ctx context.Context, vm *volumesv1alpha1.VolumeManager, stage string, err error) error {
	return errors.Join(err, r.reportRemoval(ctx, vm, notRemoved(stage, "nothing is in use, but a step fails and is tried "+
		"again: %s", listed(err))))
}

// isFinished reports whether an earlier reconcile has let the VolumeManager go. The cache may not have that yet, but
// already an intent or a pod that was refused until then. What is applied now would stay for good.
func (r remover) isFinished(ctx context.Context, vm *volumesv1alpha1.VolumeManager) (bool, error) {
	live := &volumesv1alpha1.VolumeManagerList{}
	if err := r.Live.List(ctx, live); err != nil {
		return false, fmt.Errorf("reading the VolumeManager: %w", err)
	}
	for i := range live.Items {
		if now := &live.Items[i]; now.UID == vm.UID {
			return !controllerutil.ContainsFinalizer(now, volumesv1alpha1.RemovalFinalizer), nil
		}
	}
	return true, nil
}

// pastDraining reports whether an earlier reconcile found nothing in use. What the kinds had is then of no interest.
func pastDraining(vm *volumesv1alpha1.VolumeManager) bool {
	reason := removedReason(vm)
	return reason == volumesv1alpha1.ReasonStoppingPrograms || reason == volumesv1alpha1.ReasonCleaningUp
}

// removedReason is the stage that an earlier reconcile has reported; empty for none.
func removedReason(vm *volumesv1alpha1.VolumeManager) string {
	if c := meta.FindStatusCondition(vm.Status.Conditions, volumesv1alpha1.ConditionRemoved); c != nil {
		return c.Reason
	}
	return ""
}

// refuseNew applies the policies that refuse new intents and new pods with inline volumes. No manager would release
// them any more.
func (r remover) refuseNew(ctx context.Context, vm *volumesv1alpha1.VolumeManager) error {
	policies, err := render.Refusals(r.Namespace)
	if err != nil {
		return err
	}
	_, err = r.applyAll(ctx, vm, policies)
	return err
}

// drains reports whether Hawser lets go of what is left. Intents that only show what upstream does do not count: once
// nothing else is left, they go without Drain too.
func (u used) drains(vm *volumesv1alpha1.VolumeManager) bool {
	return vm.Spec.Removal == volumesv1alpha1.RemovalDrain ||
		u.released() && len(u.intents) > 0
}

// drain keeps the installation, which has to release the volumes, and lets go of intents if that is wanted.
func (r remover) drain(ctx context.Context, vm *volumesv1alpha1.VolumeManager, u used) (time.Duration, error) {
	leaving := removal{draining: u.drains(vm), condition: waitsFor(vm, u)}
	var failure error
	if leaving.draining {
		// An intent that is deleted before new ones are refused would be created again.
		failure = errors.Join(r.deleteGating(ctx), r.refuseNew(ctx, vm), r.deleteIntents(ctx, vm, u.intents))
	}
	if failure != nil {
		leaving.condition.Message += fmt.Sprintf(". A step fails and is tried again: %s", listed(failure))
	}
	again, err := r.install(ctx, vm, u, leaving)
	return again, errors.Join(failure, err)
}

func waitsFor(vm *volumesv1alpha1.VolumeManager, u used) *metav1.Condition {
	switch {
	case !u.known:
		return notRemoved(volumesv1alpha1.ReasonUseUnknown, "a kind of Hawser is missing, so it is not known what is in "+
			"use. Install the kinds again (config/crd); the removal then continues")
	case !u.drains(vm):
		return notRemoved(volumesv1alpha1.ReasonVolumesInUse, "%s. Release them, or set spec.removal to Drain", u.left())
	case len(u.uses) == 0 && len(u.pods) > 0:
		return notRemoved(volumesv1alpha1.ReasonDraining, "%s. Delete them; no new ones are accepted", u.left())
	case len(u.uses) == 0 && len(u.directories) > 0:
		return notRemoved(volumesv1alpha1.ReasonDraining, "%s. Delete the Node of a machine that is gone", u.left())
	case len(u.uses) == 0:
		return notRemoved(volumesv1alpha1.ReasonDraining, "waiting for the end of %d intent(s) of pods", len(u.intents))
	case vm.Spec.AttachMode == volumesv1alpha1.AttachReplace:
		return notRemoved(volumesv1alpha1.ReasonDraining, "%s. Delete the pods that use volumes, or give them back to "+
			"Kubernetes: set spec.attachMode to Coexist, then turn its attach/detach controller on", u.left())
	}
	return notRemoved(volumesv1alpha1.ReasonDraining, "%s", u.left())
}

// left names the volumes and pods that are left.
func (u used) left() string {
	var left []string
	if len(u.uses) > 0 {
		left = append(left, usage.Message(u.uses))
	}
	if len(u.pods) > 0 {
		left = append(left, usage.PodsMessage(u.pods))
	}
	if len(u.directories) > 0 && len(u.pods) == 0 {
		left = append(left, usage.DirectoriesMessage(u.directories))
	}
	return cut(strings.Join(left, ". "))
}

// deleteIntents of users. Those of pods stay as long as their pods, and the manager deletes them; except for those of
// Coexist that only show what upstream does.
func (r remover) deleteIntents(ctx context.Context, vm *volumesv1alpha1.VolumeManager,
	intents []volumesv1alpha1.VolumeAttachmentIntent) error {
	var failures []error
	for i := range intents {
		intent := &intents[i]
		shows := vm.Spec.AttachMode != volumesv1alpha1.AttachReplace &&
			intent.Spec.Publisher == volumesv1alpha1.PublisherKubelet
		if intent.DeletionTimestamp != nil || usage.OfPod(intent) && !shows {
			continue
		}
		err := r.Client.Delete(ctx, intent, client.Preconditions{UID: &intent.UID})
		if client.IgnoreNotFound(err) != nil {
			failures = append(failures, fmt.Errorf("deleting intent %s/%s: %w", intent.Namespace, intent.Name, err))
		}
	}
	return errors.Join(failures...)
}

// workloads are the manager's Deployment and the agents' DaemonSet.
func (r remover) workloads() []client.Object {
	manager, agent := newObject(operatorDeployment), newObject(appsv1.SchemeGroupVersion.WithKind("DaemonSet"))
	manager.SetName(render.ManagerName)
	agent.SetName(render.AgentName)
	manager.SetNamespace(r.Namespace)
	agent.SetNamespace(r.Namespace)
	return []client.Object{manager, agent}
}

// programs of Hawser that are there, except for the operator, by name: workloads before pods.
func (r remover) programs(ctx context.Context) ([]string, error) {
	var found []string
	for _, workload := range r.workloads() {
		err := r.Cache.Get(ctx, client.ObjectKeyFromObject(workload), workload)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading %s: %w", workload.GetName(), err)
		}
		if err == nil {
			found = append(found, workload.GetObjectKind().GroupVersionKind().Kind+" "+workload.GetName())
		}
	}
	pods := &corev1.PodList{}
	if err := r.Cache.List(ctx, pods, client.InNamespace(r.Namespace)); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	for i := range pods.Items {
		if isProgram(&pods.Items[i]) {
			found = append(found, "pod "+pods.Items[i].Name+" on node "+pods.Items[i].Spec.NodeName)
		}
	}
	slices.Sort(found)
	return found, nil
}

// isProgram reports whether the pod is one of a manager or an agent.
func isProgram(pod *corev1.Pod) bool {
	return pod.Labels["app.kubernetes.io/component"] == "manager" || isAgent(pod)
}

func isAgent(pod *corev1.Pod) bool { return pod.Labels["app.kubernetes.io/component"] == "agent" }

// stop ends manager and agents. Their pods end with their workloads.
func (r remover) stop(ctx context.Context) error {
	for _, workload := range r.workloads() {
		err := r.Client.Delete(ctx, workload, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting %s: %w", workload.GetName(), err)
		}
	}
	return nil
}

// reportRemoval writes the condition if it changed.
func (r remover) reportRemoval(ctx context.Context, vm *volumesv1alpha1.VolumeManager,
	condition *metav1.Condition) error {
	after := vm.DeepCopy()
	condition.ObservedGeneration = vm.Generation
	condition.LastTransitionTime.Time = r.Clock.Now()
	if !meta.SetStatusCondition(&after.Status.Conditions, *condition) {
		return nil
	}
	after.Status.ObservedGeneration = vm.Generation
	if err := r.Client.Status().Update(ctx, after); err != nil {
		return client.IgnoreNotFound(err)
	}
	after.DeepCopyInto(vm)
	return nil
}
