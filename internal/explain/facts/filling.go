/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package facts

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Filling is what takes the room for volumes on the only node that a pod may use, or on the subject if that is a node
// without a node state.
type Filling struct {
	// Attachments to the node.
	Attachments List[Attachment]
	// Pods on the node, and the PersistentVolumes that are attached to it by their names.
	Pods       List[corev1.Pod]
	Persistent map[string]*corev1.PersistentVolume
}

// volumeLimit reports whether the scheduler counts nodes that have as many volumes as they can take.
func volumeLimit(message string) bool { return strings.Contains(message, "exceed max volume count") }

// filling reads what fills the only node that an unscheduled pod may use.
func (g *Gatherer) filling(ctx context.Context, pod *corev1.Pod) {
	node := NodeOf(pod)
	full := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && volumeLimit(c.Message)
	})
	if node == "" || pod.Spec.NodeName != "" || !full {
		return
	}
	g.OnNode(ctx, node, &g.facts.Filling)
}

// OnNode reads the attachments to a node, their PersistentVolumes, and the pods of the node.
func (g *Gatherer) OnNode(ctx context.Context, node string, f *Filling) {
	g.progress("attachments to " + node)
	var names []string
	all, err := g.attachments(ctx)
	f.Attachments.Err = err
	for _, a := range all {
		if a.Node == node {
			f.Attachments.Items, names = append(f.Attachments.Items, a), append(names, a.Volume)
		}
	}
	f.Persistent, _ = g.Persistent(ctx, names) // without it only the names of claims are missing
	pods, err := list[corev1.PodList](ctx, g, "pods on "+node, client.MatchingFields{"spec.nodeName": node})
	f.Pods = List[corev1.Pod]{Items: pods.Items, Err: err}
}

// UsersOf are the pods on the node that use a volume of a driver there, with their namespaces.
func (f *Filling) UsersOf(driver string) []string {
	claims := map[string]bool{}
	for _, a := range f.Attachments.Items {
		if claim := ClaimName(f.Persistent[a.Volume]); a.Driver == driver && claim != "" {
			claims[claim] = true
		}
	}
	return f.users(claims)
}

// UsersOfVolume are the pods on the node that use a PersistentVolume there, with their namespaces.
func (f *Filling) UsersOfVolume(name string) []string {
	return f.users(map[string]bool{ClaimName(f.Persistent[name]): true})
}

func (f *Filling) users(claims map[string]bool) []string {
	var names []string
	for i := range f.Pods.Items {
		pod := &f.Pods.Items[i]
		if !Ended(pod) && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			claim, ok := ClaimOf(pod, &v)
			return ok && claims[pod.Namespace+"/"+claim]
		}) {
			names = append(names, pod.Namespace+"/"+pod.Name)
		}
	}
	return names
}

// Ended reports whether a pod needs no volume any more.
func Ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Count is how many volumes of a driver are attached to the node.
func (f *Filling) Count(driver string) int {
	n := 0
	for _, a := range f.Attachments.Items {
		if a.Driver == driver {
			n++
		}
	}
	return n
}

// NodeOf is the node of a pod: where it is bound, or the only one that it may use.
func NodeOf(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	if name := pod.Spec.NodeSelector[corev1.LabelHostname]; name != "" {
		return name
	}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil &&
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		return onlyNode(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms)
	}
	return ""
}

// onlyNode is the only node that terms allow by its name; empty if they do not name one alone.
func onlyNode(terms []corev1.NodeSelectorTerm) string {
	if len(terms) != 1 {
		return ""
	}
	for _, r := range slices.Concat(terms[0].MatchExpressions, terms[0].MatchFields) {
		if (r.Key == corev1.LabelHostname || r.Key == "metadata.name") && r.Operator == corev1.NodeSelectorOpIn &&
			len(r.Values) == 1 {
			return r.Values[0]
		}
	}
	return ""
}
