/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package placement

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/status"
)

// +kubebuilder:rbac:groups="",resources=pods;pods/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// longestMessage of a condition.
const longestMessage = 2048

// report writes the condition, and an event, if they changed.
func (c *Controller) report(ctx context.Context, pod *corev1.Pod, d decision) error {
	_, err := c.write(ctx, pod, corev1.ConditionFalse, d.reason, d.message)
	return err
}

// write writes the condition if it changed, and returns the pod as it then is; nil if the cache is behind. The version
// keeps it from a pod whose gate is lifted already.
func (c *Controller) write(
	ctx context.Context, pod *corev1.Pod, value corev1.ConditionStatus, reason, message string,
) (*corev1.Pod, error) {
	was := index.Placeable(pod)
	message = status.Shorten(message, longestMessage)
	if was != nil && was.Status == value && was.Reason == reason && was.Message == message {
		return pod, nil
	}
	is := corev1.PodCondition{Type: volumesv1alpha1.ConditionPlaceable, Status: value, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(c.Clock.Now())}
	if was != nil && was.Status == value {
		is.LastTransitionTime = was.LastTransitionTime
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"status":   map[string]any{"conditions": []corev1.PodCondition{is}},
	})
	if err != nil {
		return nil, err
	}
	written := pod.DeepCopy()
	// A strategic patch changes the condition of this type and no other.
	err = c.Client.Status().Patch(ctx, written, client.RawPatch(types.StrategicMergePatchType, patch))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil, nil // The event of the newer version leads here again.
	}
	if err != nil {
		return nil, fmt.Errorf("reporting on pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	c.announce(pod, is)
	return written, nil
}

func (c *Controller) announce(pod *corev1.Pod, is corev1.PodCondition) {
	eventType := corev1.EventTypeWarning
	if is.Reason == volumesv1alpha1.ReasonPlaced {
		eventType = corev1.EventTypeNormal
	}
	regarding := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
	}
	c.Events.Eventf(regarding, nil, eventType, is.Reason, "Place", "%s", status.ShortenNote(is.Message))
}

// lift writes the affinity and lifts the gate.
func (c *Controller) lift(ctx context.Context, pod *corev1.Pod, d decision) error {
	if d.reason == "" {
		d.reason, d.message = volumesv1alpha1.ReasonPlaced, "the pod's node affinity has what its volumes require"
	}
	again, at := refused(pod), pod
	// The condition comes first, because no reconcile follows that would correct it. If the API server refused the
	// pod before, it may do so again.
	if !again && (index.Placeable(pod) != nil || d.reason != volumesv1alpha1.ReasonPlaced) {
		var err error
		if at, err = c.write(ctx, pod, corev1.ConditionTrue, d.reason, d.message); err != nil || at == nil {
			return err
		}
	}
	placed, err := c.send(ctx, at, d.terms)
	if err != nil {
		return c.notLifted(ctx, at, err)
	}
	if again {
		_, err = c.write(ctx, placed, corev1.ConditionTrue, d.reason, d.message)
	}
	return err
}

// refused reports whether the API server did not accept the pod when it was last tried.
func refused(pod *corev1.Pod) bool {
	c := index.Placeable(pod)
	return c != nil && c.Reason == volumesv1alpha1.ReasonPlacementRefused
}

// notLifted handles the error of a pod whose gate was to be lifted. It may never be accepted, so it does not keep the
// others of its claims waiting. Where the answer is missing, the patch may still be on its way: the condition is a new
// version of the pod, at which that patch has no effect.
func (c *Controller) notLifted(ctx context.Context, pod *corev1.Pod, err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // The event of the newer version leads here again.
	}
	refused := decision{reason: volumesv1alpha1.ReasonPlacementRefused, message: err.Error()}
	return fmt.Errorf("lifting the gate of pod %s/%s: %w", pod.Namespace, pod.Name,
		errors.Join(err, c.report(ctx, pod, refused)))
}

// send is one patch at the version of the pod: affinity, gate and label. The pod has no other gate.
func (c *Controller) send(ctx context.Context, pod *corev1.Pod, terms []term) (*corev1.Pod, error) {
	spec := map[string]any{"schedulingGates": nil}
	if len(terms) > 0 {
		spec["affinity"] = map[string]any{"nodeAffinity": map[string]any{
			"requiredDuringSchedulingIgnoredDuringExecution": corev1.NodeSelector{NodeSelectorTerms: terms}}}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion,
			"labels": map[string]any{volumesv1alpha1.GatedLabel: nil}},
		"spec": spec,
	})
	if err != nil {
		return nil, err
	}
	placed := pod.DeepCopy()
	return placed, c.Client.Patch(ctx, placed, client.RawPatch(types.MergePatchType, patch))
}
