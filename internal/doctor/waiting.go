/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// notStorage are causes for which a pod waits that are not about its volumes, or that are not known.
var notStorage = map[string]bool{
	catalog.PodUnscheduled: true, catalog.PodDeleting: true, catalog.PodFailed: true, catalog.PodWaits: true,
	catalog.WaitsForPod: true, catalog.VolumeFull: true, catalog.Forbidden: true, catalog.Unreadable: true,
	catalog.Missing: true,
}

// held are causes that another user of the volume is, which is then named.
var held = map[string]bool{
	catalog.MultiAttach: true, catalog.HeldElsewhere: true, volumesv1alpha1.ReasonVolumeInUse: true,
	volumesv1alpha1.ReasonReadWriteOncePod: true, catalog.PodSingleUser: true, catalog.HolderOnDeadNode: true,
	catalog.ExclusiveTwice: true,
}

// waitingPods finds what pods wait for, once for each cause.
func waitingPods(x *examination) {
	for _, pod := range x.c.Pods.Items {
		if pod.DeletionTimestamp != nil || explain.PodSettled(pod) || pod.Status.Phase == corev1.PodRunning ||
			pod.Status.Phase == corev1.PodFailed || len(pod.Spec.Volumes) == 0 || x.isNew(pod, startOf(pod)) ||
			x.once[selinux+" "+string(pod.UID)] {
			continue
		}
		x.waits(refOf(facts.KindPod, pod), startOf(pod))
	}
}

// isNew reports whether a pod or an intent has waited for so short a time that it is only counted.
func (x *examination) isNew(object client.Object, since time.Time) bool {
	if x.old(since, podWaits) {
		return false
	}
	if x.c.Namespace == "" || x.c.Namespace == object.GetNamespace() {
		x.waitShortly++
	}
	return true
}

// startOf is since when a pod may wait for its volumes.
func startOf(pod *corev1.Pod) time.Time { return pod.CreationTimestamp.Time }

// waitingIntents finds what intents wait for. Those of pods wait with their pods.
func waitingIntents(x *examination) {
	for _, intent := range x.c.Intents.Items {
		ready := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionReady)
		since := intent.CreationTimestamp.Time
		if ready != nil {
			since = later(since, ready.LastTransitionTime.Time)
		}
		if intent.DeletionTimestamp != nil || ready != nil && ready.Status == metav1.ConditionTrue ||
			intent.Labels[volumesv1alpha1.PodUIDLabel] != "" || x.isNew(intent, since) {
			continue
		}
		x.waits(refOf(facts.KindIntent, intent), since)
	}
}

// pendingClaims finds what claims wait for that no pod and no intent waits for. Of those with one class and one event
// the first is explained.
func pendingClaims(x *examination) {
	kinds := map[string][]*corev1.PersistentVolumeClaim{}
	var order []string
	for _, claim := range x.c.Claims.Items {
		key := client.ObjectKeyFromObject(claim)
		if claim.Status.Phase == corev1.ClaimBound || claim.DeletionTimestamp != nil || x.waitsForPod(claim) ||
			!x.old(claim.CreationTimestamp.Time, stepTakes) || len(x.podsOf[key])+len(x.intentsOfClaim[key]) > 0 {
			continue
		}
		kind := fmt.Sprintf("%s/%v/%s", withoutIDs(x.lastEvent(claim), claim.Name), claim.Spec.VolumeName != "",
			ptr.Deref(claim.Spec.StorageClassName, ""))
		if kinds[kind] == nil {
			order = append(order, kind)
		}
		kinds[kind] = append(kinds[kind], claim)
	}
	for _, kind := range order {
		slices.SortStableFunc(kinds[kind], func(a, b *corev1.PersistentVolumeClaim) int {
			return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
		})
		x.pendingClaim(kinds[kind])
	}
}

// waitsForPod reports whether a claim without a user waits for its first one, as its class asks for.
func (x *examination) waitsForPod(claim *corev1.PersistentVolumeClaim) bool {
	class := of(x.classes, ptr.Deref(claim.Spec.StorageClassName, ""))
	return class != nil &&
		ptr.Deref(class.VolumeBindingMode, storagev1.VolumeBindingImmediate) == storagev1.VolumeBindingWaitForFirstConsumer
}

// pendingClaim adds what the first of some claims waits for. That a claim waits for its first pod is as it should be.
func (x *examination) pendingClaim(claims []*corev1.PersistentVolumeClaim) {
	_, report := x.report(refOf(facts.KindClaim, claims[0]))
	if report == nil {
		return
	}
	for _, found := range report.Findings {
		if notStorage[found.Reason] {
			continue
		}
		f := Finding{Severity: Outage, Finding: found, Count: len(claims), namespaces: map[string]bool{}}
		f.group = "class " + ptr.Deref(claims[0].Spec.StorageClassName, "") + apart(found, claims[0].Name)
		f.Object = refOf(facts.KindClaim, claims[0])
		f.Since = ptr.To(claims[0].CreationTimestamp.UTC())
		for _, claim := range claims {
			f.namespaces[claim.Namespace] = true
			if claim != claims[0] {
				f.Others = named(f.Others, Other{Ref: refOf(facts.KindClaim, claim)})
			}
		}
		x.found = append(x.found, f)
		return
	}
}

// lastEvent is the event of a claim that came last. A list has them by their names.
func (x *examination) lastEvent(claim *corev1.PersistentVolumeClaim) string {
	events := facts.Events(x.events[string(claim.UID)])
	if len(events) == 0 {
		return ""
	}
	last := events[len(events)-1]
	return last.Reason + " " + last.Message
}

// waits adds a pod or an intent to those that wait for its cause.
func (x *examination) waits(ref facts.Ref, since time.Time) {
	f, report := x.report(ref)
	if report == nil {
		return
	}
	cause, known := causeOf(report)
	if !known || cause.Level != catalog.Problem && !x.old(since, stepTakes) {
		return
	}
	v := volumeOf(f, cause.Object)
	found := Finding{Severity: Outage, Finding: cause, Count: 1, Waiting: 1, Waiters: []facts.Ref{ref},
		namespaces: map[string]bool{ref.Namespace: true}, group: groupOf(cause, v, ref)}
	if v != nil && v.Claim.Ref.Name != "" {
		found.Claim = ptr.To(v.Claim.Ref)
	}
	since = since.UTC()
	found.Since = &since
	if cause.Reason == catalog.HolderOnDeadNode && x.once[dead+" "+cause.Object.Name] {
		found.Finding = x.deadNode(cause.Object)
	}
	if held[found.Reason] && v != nil {
		x.holders(&found, v)
	}
	if len(found.Run) == 0 {
		found.Run = []string{"kubectl hawser why " + whyOf[ref.Kind] + " " + ref.Name + " -n " + ref.Namespace}
	}
	x.found = append(x.found, found)
}

// deadNode is what was found of a node that is not Ready.
func (x *examination) deadNode(node facts.Ref) explain.Finding {
	i := slices.IndexFunc(x.found, func(f Finding) bool {
		return f.Object == node && (f.Reason == catalog.NodeNotReady || f.Reason == catalog.KubeletSilent)
	})
	return x.found[i].Finding
}

var whyOf = map[string]string{facts.KindPod: "pod", facts.KindIntent: "intent"}

// causeOf is the first finding that explains a wait for a volume. That a claim is not bound is explained by the claim's
// own. A pod whose containers begin has its volumes, and one with a gate does not want them yet.
func causeOf(r *explain.Report) (cause explain.Finding, known bool) {
	for _, f := range r.Findings {
		claims := f.Object.Kind == facts.KindClaim || f.Object.Kind == facts.KindClass
		switch {
		case f.Reason == catalog.PodContainers || f.Reason == catalog.PodGated:
			return explain.Finding{}, false
		case notStorage[f.Reason]:
		case !known:
			cause, known = f, true
		case cause.Reason == catalog.PodUnboundClaims && claims:
			return f, true
		}
	}
	return cause, known
}

// volumeOf is the volume that a cause is about: the one that has the object, or the first one with a claim.
func volumeOf(f *facts.Facts, object facts.Ref) *facts.Volume {
	var first *facts.Volume
	for i := range f.Volumes {
		v := &f.Volumes[i]
		if slices.Contains([]facts.Ref{v.Claim.Ref, v.Volume.Ref, v.Attachment.Ref, v.Class.Ref, v.Intent.Ref}, object) ||
			slices.ContainsFunc(v.Elsewhere.Items, func(va storagev1.VolumeAttachment) bool { return va.Name == object.Name }) {
			return v
		}
		if first == nil || first.Claim.Found && first.Claim.Value.Status.Phase == corev1.ClaimBound &&
			v.Claim.Found && v.Claim.Value.Status.Phase != corev1.ClaimBound {
			first = v
		}
	}
	return first
}

// groupOf is equal for causes that are one: those of a node, a class, or a driver.
func groupOf(cause explain.Finding, v *facts.Volume, waiter facts.Ref) string {
	switch cause.Object.Kind {
	case facts.KindLease:
		if cause.Reason == catalog.LeaseExpired {
			return "" // all silent agents
		}
		return cause.Object.String()
	case facts.KindNode, facts.KindCSINode, facts.KindState, facts.KindManager:
		return cause.Object.String()
	}
	switch {
	case v == nil:
		return cause.Object.String()
	case held[cause.Reason]:
		return v.Volume.Ref.String() // each has a holder of its own
	}
	_, handle := volume.Split(v.UniqueName)
	text := apart(cause, waiter.Name, v.Node, v.Volume.Ref.Name, v.Claim.Ref.Name, handle)
	switch {
	case v.Driver != "":
		return v.Driver + text
	case v.Claim.Found:
		return "class " + ptr.Deref(v.Claim.Value.Spec.StorageClassName, "") + text
	}
	return cause.Object.String()
}

// holders adds which pods and intents have the volume on another node.
func (x *examination) holders(f *Finding, v *facts.Volume) {
	key := client.ObjectKey{Namespace: v.Claim.Ref.Namespace, Name: v.Claim.Ref.Name}
	var names []string
	pods := slices.DeleteFunc(slices.Clone(x.podsOf[key]), func(pod *corev1.Pod) bool {
		return pod.Spec.NodeName == "" || pod.Spec.NodeName == v.Node
	})
	for _, pod := range pods {
		names = append(names, fmt.Sprintf("pod %s on node %s", pod.Name, pod.Spec.NodeName))
	}
	end := catalog.Entry{Run: []string{catalog.EndPods}}
	run, remarks := catalog.Separate(
		end.Commands(map[string]string{"pods": explain.PodsToEnd(pods), "namespace": key.Namespace}))
	if len(run) > 0 {
		f.Run = slices.Concat(run, f.Run)
		maps.Copy(remarks, f.Remarks)
		f.Remarks = remarks
	}
	for _, intent := range x.intentsOfClaim[key] {
		if node := intent.Spec.NodeName; node != v.Node &&
			meta.IsStatusConditionTrue(intent.Status.Conditions, volumesv1alpha1.ConditionAttached) {
			names = append(names, fmt.Sprintf("intent %s on node %s", intent.Name, node))
		}
	}
	if len(names) > 0 {
		f.Detail = "held by " + strings.Join(names[:min(len(names), 3)], ", ") + "; " + f.Detail
	}
}
