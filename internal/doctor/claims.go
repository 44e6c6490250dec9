/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package doctor

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// deletedClaims finds claims that are being deleted while something uses them, or while nothing does.
func deletedClaims(x *examination) {
	for _, claim := range x.c.Claims.Items {
		if claim.DeletionTimestamp == nil || !x.old(claim.DeletionTimestamp.Time, settles) {
			continue
		}
		key := client.ObjectKeyFromObject(claim)
		pods, intents := living(x.podsOf[key]), living(x.intentsOfClaim[key])
		f := about{severity: Risk, reason: catalog.ClaimFinalizer, object: refOf(facts.KindClaim, claim),
			since: claim.DeletionTimestamp.Time, group: claim.Namespace, states: map[string]catalog.State{},
			places: map[string]string{"volume": claim.Spec.VolumeName, "pods": explain.PodsToEnd(pods)}}
		switch {
		case len(pods)+len(intents) > 0:
			f.states[catalog.Users] = catalog.Present
			f.detail = fmt.Sprintf("used by %s", users(pods, intents))
			if pv := of(x.volumes, claim.Spec.VolumeName); pv != nil {
				policy := string(pv.Spec.PersistentVolumeReclaimPolicy)
				f.states[catalog.Retain] = explain.Retained(pv)
				f.detail += "; reclaim policy of its volume " + policy
				if f.states[catalog.Retain] == catalog.Gone { // each has its own command that keeps the data
					f.severity, f.group = Danger, f.group+"/"+claim.Name
				}
			}
		case len(x.podsOf[key])+len(x.intentsOfClaim[key]) > 0 || !x.old(claim.DeletionTimestamp.Time, stepTakes):
			continue // what uses it is being deleted, too
		default:
			f.severity, f.states[catalog.Users], f.group = Notice, catalog.Gone, f.group+" without users"
			f.detail = fmt.Sprintf("finalizers %v", claim.Finalizers)
		}
		x.find(f)
	}
}

// living are the objects that are not being deleted.
func living[T client.Object](list []T) []T {
	return slices.DeleteFunc(slices.Clone(list), func(o T) bool { return o.GetDeletionTimestamp() != nil })
}

// users names pods and intents.
func users(pods []*corev1.Pod, intents []*volumesv1alpha1.VolumeAttachmentIntent) string {
	switch {
	case len(intents) == 0:
		return "pods " + namesOf(pods)
	case len(pods) == 0:
		return "intents " + namesOf(intents)
	}
	return "pods " + namesOf(pods) + " and intents " + namesOf(intents)
}

// countedUnused finds claims that Kubernetes takes for unused, and that intents use.
func countedUnused(x *examination) {
	for _, claim := range x.c.Claims.Items {
		c := claimCondition(claim, corev1.PersistentVolumeClaimUnused)
		intents := living(x.intentsOfClaim[client.ObjectKeyFromObject(claim)])
		intents = slices.DeleteFunc(intents, func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
			return i.Status.ClaimUID != claim.UID
		})
		if c.Status != corev1.ConditionTrue || len(intents) == 0 || !x.old(c.LastTransitionTime.Time, settles) {
			continue
		}
		x.find(about{severity: Risk, reason: catalog.CountedUnused, object: refOf(facts.KindClaim, claim),
			since: c.LastTransitionTime.Time, group: claim.Namespace, detail: "used by intents " + namesOf(intents)})
	}
}

// expansions finds those that fail or do not go on.
func expansions(x *examination) {
	for _, claim := range x.c.Claims.Items {
		if claim.Status.Phase == corev1.ClaimBound && claim.DeletionTimestamp == nil {
			x.expansion(claim)
		}
	}
}

func (x *examination) expansion(claim *corev1.PersistentVolumeClaim) {
	status := claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
	asked, has := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
	class := ptr.Deref(claim.Spec.StorageClassName, "")
	f := about{severity: Risk, object: refOf(facts.KindClaim, claim), group: class,
		places: map[string]string{"class": class}, detail: explain.Sizes(claim)}
	failed, failedSince := explain.ResizeError(claim, facts.Events(x.events[string(claim.UID)]))
	begun := resizeCondition(claim, corev1.PersistentVolumeClaimFileSystemResizePending,
		corev1.PersistentVolumeClaimResizing)
	age := resizeTakes
	switch {
	case status == corev1.PersistentVolumeClaimControllerResizeInfeasible ||
		status == corev1.PersistentVolumeClaimNodeResizeInfeasible:
		f.reason, f.since, age = catalog.ResizeInfeasible, begun.LastTransitionTime.Time, settles
		f.detail += ": " + string(status) + suffix(failed)
	case failed != "":
		f.reason, f.since, age = explain.ResizeFailure(claim), failedSince, settles
		f.group += " " + withoutIDs(failed, claim.Name, claim.Spec.VolumeName)
		f.detail += suffix(failed)
	case begun.Status == corev1.ConditionTrue:
		onNode := begun.Type == corev1.PersistentVolumeClaimFileSystemResizePending ||
			status == corev1.PersistentVolumeClaimNodeResizePending
		if onNode && !x.usedNow(claim) {
			return // a node that uses it finishes it
		}
		f.reason, f.since = catalog.ResizePending, begun.LastTransitionTime.Time
		f.detail += ": " + string(begun.Type)
	case status == "" && !has.IsZero() && asked.Cmp(has) > 0:
		f.reason, f.since = catalog.ResizeUnanswered, explain.Written(claim.ManagedFields, `"f:requests"`)
	default:
		return
	}
	if x.old(f.since, age) {
		x.find(f)
	}
}

func suffix(message string) string {
	if message == "" {
		return ""
	}
	return ": " + message
}

// resizeCondition is the first of some conditions that is True.
func resizeCondition(claim *corev1.PersistentVolumeClaim, kinds ...corev1.PersistentVolumeClaimConditionType,
) corev1.PersistentVolumeClaimCondition {
	for _, kind := range kinds {
		if c := claimCondition(claim, kind); c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return corev1.PersistentVolumeClaimCondition{}
}

// usedNow reports whether a pod runs with the claim, or an intent has it.
func (x *examination) usedNow(claim *corev1.PersistentVolumeClaim) bool {
	key := client.ObjectKeyFromObject(claim)
	return len(living(x.intentsOfClaim[key])) > 0 || slices.ContainsFunc(x.podsOf[key], func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil
	})
}
