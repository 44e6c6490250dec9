/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// pod explains a pod that upstream or Hawser attaches for.
func (w *walk) pod() {
	pod, ref := w.f.Pod.Value, w.f.Pod.Ref
	settled := PodSettled(pod)
	w.podLink(pod, ref, settled)
	w.timeline()
	if pod.Status.Phase == corev1.PodSucceeded && settled {
		return // it needs no volume any more
	}
	w.under(func() {
		if pod.Spec.NodeName != "" || !settled {
			w.node(facts.NodeOf(pod))
		}
		if w.f.PodIntents.Err != nil {
			w.unreadable(facts.Ref{Kind: facts.KindIntent, Namespace: ref.Namespace, Name: "(of the pod)"},
				w.f.PodIntents.Err)
		}
		for i := range w.f.Volumes {
			w.volume(&w.f.Volumes[i], !settled)
		}
	})
	if settled {
		return
	}
	if pod.DeletionTimestamp == nil {
		w.unscheduled(pod, ref)
		w.containers(pod, ref)
		w.podEvents(pod, ref)
	}
	w.fallback(pod, ref)
}

// PodSettled reports whether the pod has all that it asked for, or needs nothing any more.
func PodSettled(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil {
		return false
	}
	if pod.Status.Phase == corev1.PodSucceeded {
		return true
	}
	return pod.Status.Phase == corev1.PodRunning &&
		podCondition(pod, corev1.ContainersReady).Status != corev1.ConditionFalse
}

func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

func (w *walk) podLink(pod *corev1.Pod, ref facts.Ref, settled bool) {
	state, text, since := Waits, string(pod.Status.Phase), pod.CreationTimestamp.Time
	if text == "" {
		text = string(corev1.PodPending)
	}
	switch {
	case w.f.FromFile:
		text = "not applied yet"
	case settled:
		state = Good
	case pod.DeletionTimestamp != nil:
		text, since = "being deleted", pod.DeletionTimestamp.Time
		w.find(about{object: ref, reason: catalog.PodDeleting, since: since, places: at("node", pod.Spec.NodeName)})
	case pod.Status.Phase == corev1.PodFailed:
		state = Bad
		w.find(about{object: ref, reason: catalog.PodFailed, since: since,
			detail: join(pod.Status.Reason, pod.Status.Message)})
	}
	where := ", on no node yet"
	if pod.Spec.NodeName != "" {
		where = ", on node " + pod.Spec.NodeName
	}
	w.link(ref, state, text+where, since)
}

// gated is about one scheduling gate of the pod. On Hawser's own, the pod has the reason as a condition.
func gated(pod *corev1.Pod, gate string, ref facts.Ref) about {
	found := about{object: ref, reason: catalog.PodGated, detail: "scheduling gate " + gate,
		since: pod.CreationTimestamp.Time}
	if gate != volumesv1alpha1.PlacementGate {
		return found
	}
	found.reason = catalog.PodPlacement
	if why := podCondition(pod, volumesv1alpha1.ConditionPlaceable); why.Status == corev1.ConditionFalse {
		found.reason, found.detail, found.since = why.Reason, why.Message, why.LastTransitionTime.Time
	}
	return found
}

// unscheduled reports what keeps the pod from a node.
func (w *walk) unscheduled(pod *corev1.Pod, ref facts.Ref) {
	if pod.Spec.NodeName != "" {
		return
	}
	for _, gate := range pod.Spec.SchedulingGates {
		a := gated(pod, gate.Name, ref)
		w.find(w.unlessRefuted(a, "", w.volumes()...))
	}
	scheduled := podCondition(pod, corev1.PodScheduled)
	if len(pod.Spec.SchedulingGates) > 0 || scheduled.Status != corev1.ConditionFalse {
		return
	}
	if c := podCondition(pod, volumesv1alpha1.ConditionPlaceable); c.Status == corev1.ConditionTrue {
		w.find(about{object: ref, reason: c.Reason, detail: c.Message, since: c.LastTransitionTime.Time})
	}
	for _, reason := range schedulerReasons(scheduled.Message) {
		if reason == catalog.PodEphemeralClaim && w.report.has(reason) {
			continue // the claim itself was read
		}
		a := about{object: ref, reason: reason, detail: scheduled.Message, since: scheduled.LastTransitionTime.Time,
			places: w.claimPlaces()}
		if node := facts.NodeOf(pod); reason == catalog.PodVolumeLimit && node != "" {
			a = w.filled(a, node)
		}
		w.find(w.unlessRefuted(a, "", w.volumes()...))
	}
}

// ifKeptOff is the level of what keeps new pods from the only node that the subject asks for.
func (b *builder) ifKeptOff() catalog.Level {
	if b.f.Subject.Kind == facts.KindPod && b.f.Pod.Value.Spec.NodeName == "" &&
		strings.Contains(podCondition(b.f.Pod.Value, corev1.PodScheduled).Message, "were unschedulable") {
		return catalog.Problem
	}
	return ""
}

// claimPlaces names the claim and volume of a pod that has only one.
func (w *walk) claimPlaces() map[string]string {
	if len(w.f.Volumes) != 1 {
		return nil
	}
	return map[string]string{"claim": w.f.Volumes[0].Claim.Ref.Name, "volume": w.f.Volumes[0].Volume.Ref.Name}
}

// containers reports a container that waits for something else than volumes.
func (w *walk) containers(pod *corev1.Pod, ref facts.Ref) {
	for _, c := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		waiting := c.State.Waiting
		if waiting == nil || waiting.Reason == "ContainerCreating" || waiting.Reason == "PodInitializing" {
			continue
		}
		w.find(about{object: ref, reason: catalog.PodContainers, since: pod.CreationTimestamp.Time,
			detail: fmt.Sprintf("container %s: %s", c.Name, join(waiting.Reason, waiting.Message))})
	}
}

// podEvents reports what the attach/detach controller and the kubelet could not do. Only the newest event of each
// meaning counts, and none about what has succeeded since.
func (w *walk) podEvents(pod *corev1.Pod, ref facts.Ref) {
	if w.f.PodEvents.Err != nil {
		w.unreadable(facts.Ref{Kind: "Event", Namespace: pod.Namespace, Name: pod.Name}, w.f.PodEvents.Err)
	}
	for i := len(w.f.PodEvents.Items) - 1; i >= 0; i-- {
		e := w.f.PodEvents.Items[i]
		reason := mountReason(e)
		if reason == "" || w.over(e, reason) {
			continue
		}
		places := w.claimPlaces()
		if places == nil {
			places = map[string]string{}
		}
		places["node"] = pod.Spec.NodeName
		a := about{object: ref, reason: reason, detail: repeated(e), since: e.First, places: places}
		if reason == catalog.MountWaits {
			a = w.sinceStart(a, pod) // the kubelet reports it as soon as its attempt ends, which may be at once
		}
		if reason == catalog.PodMissingObject {
			a = w.unlessFound(a, e)
		}
		w.find(w.unlessRefuted(a, pod.Spec.NodeName, w.volumes()...))
	}
}

// over reports whether an event is about an attach, or a claim that was not bound, that has succeeded since.
func (w *walk) over(e facts.Event, reason string) bool {
	return e.Reason == "FailedAttachVolume" && w.allAttached() || reason == catalog.PodUnboundClaims &&
		each(w.volumes(), func(v *facts.Volume) string { return claimBound(w.f, v) }) != ""
}

// reportsWithin is how long a kubelet may wait for volumes before it reports that.
const reportsWithin = 2 * time.Minute

// sinceStart is a finding about a pod since its start. It is no problem as long as the kubelet may still wait.
func (b *builder) sinceStart(a about, pod *corev1.Pod) about {
	a.since = pod.CreationTimestamp.Time
	if pod.Status.StartTime != nil {
		a.since = pod.Status.StartTime.Time
	}
	if b.f.Now.Sub(a.since) < reportsWithin {
		a.level = catalog.Waiting
	}
	return a
}

// allAttached reports whether every volume of the pod is known to be attached.
func (w *walk) allAttached() bool {
	for i := range w.f.Volumes {
		v := &w.f.Volumes[i]
		if !v.Volume.Found || v.Driver != "" && v.NeedsAttach() && !v.Attached() {
			return false
		}
	}
	return true
}

// repeated is an event's message with how often it came.
func repeated(e facts.Event) string {
	if e.Count <= 1 {
		return e.Message
	}
	return fmt.Sprintf("%s (%d times, last at %s)", e.Message, e.Count, e.Last.UTC().Format(time.RFC3339))
}

// tries is what repeated and attachFails add to a message.
var tries = regexp.MustCompile(` \((\d+ times, last|last try) at [^)]*\)`)

// WithoutTries is a finding's detail without how often something was tried, and when.
func WithoutTries(detail string) string { return tries.ReplaceAllString(detail, "") }

// fallback reports that nothing explains the wait, so that a waiting pod is never called fine.
func (w *walk) fallback(pod *corev1.Pod, ref facts.Ref) {
	if len(w.report.Findings) == 0 && !w.f.FromFile {
		w.find(w.sinceStart(about{object: ref, reason: catalog.PodWaits, places: at("node", pod.Spec.NodeName)}, pod))
	}
}

func at(place, value string) map[string]string { return map[string]string{place: value} }

// join puts a colon between texts that are not empty.
func join(texts ...string) string {
	var parts []string
	for _, t := range texts {
		if t != "" {
			parts = append(parts, t)
		}
	}
	return strings.Join(parts, ": ")
}

// fewPods is how many pods a command that ends them may name.
const fewPods = 3

// PodsToEnd are the names of pods for a command that ends them. It is empty if there are none, or too many to be ended
// without a look at each.
func PodsToEnd(pods []*corev1.Pod) string {
	var names []string
	for _, pod := range pods {
		if pod.DeletionTimestamp == nil && !facts.Ended(pod) {
			names = append(names, pod.Name)
		}
	}
	if len(names) > fewPods {
		return ""
	}
	return strings.Join(names, " ")
}

func pointers[T any](list []T) []*T {
	all := make([]*T, len(list))
	for i := range list {
		all[i] = &list[i]
	}
	return all
}
