/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package facts

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// Relocation is what concerns intents that leave their node.
type Relocation struct {
	*Facts
	// To is where they go; empty for nowhere.
	To string
	// Intents of the claim, or on the node.
	Intents []volumesv1alpha1.VolumeAttachmentIntent
	// OnTarget are the intents on the node where those of a drained node go.
	OnTarget []volumesv1alpha1.VolumeAttachmentIntent
	// Pods on the nodes of the intents that have not ended.
	Pods List[corev1.Pod]
	// Attachments of all volumes.
	Attachments List[Attachment]
	// Persistent are the PersistentVolumes of the intents, by the name of the intent with its namespace.
	Persistent map[string]Object[*corev1.PersistentVolume]
	// Claims are those of the intents, by the same name. An intent of another source has none.
	Claims map[string]Object[*corev1.PersistentVolumeClaim]
	// Endings of the data, by the names of the PersistentVolumes.
	Endings map[string]Ending
}

// Key is the name of an object with its namespace.
func Key(object client.Object) string { return object.GetNamespace() + "/" + object.GetName() }

// Move reads what concerns a move of a claim's volume to a node.
func (g *Gatherer) Move(ctx context.Context, claim Ref, to string) (*Relocation, error) {
	f, err := g.Gather(ctx, claim)
	if err != nil {
		return nil, err
	}
	r := &Relocation{Facts: f, To: to}
	intents := g.intents(ctx, "intents", client.InNamespace(claim.Namespace),
		client.MatchingFields{"spec.volume.persistentVolumeClaim.claimName": claim.Name})
	if intents.Err != nil {
		return nil, &ErrSubject{Ref{KindIntent, claim.Namespace, "of claim " + claim.Name}, intents.Err}
	}
	r.Intents = intents.Items
	var nodes []string
	for i := range r.Intents {
		if node := r.Intents[i].Spec.NodeName; node != to {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	for _, node := range slices.Compact(nodes) {
		g.node(ctx, node)
		g.podsOn(ctx, r, node, client.InNamespace(claim.Namespace))
	}
	return r, g.rest(ctx, r)
}

// NodeNow reads a node that an intent leaves, or where it goes, and the Lease of the manager.
func (g *Gatherer) NodeNow(ctx context.Context, node string) (*Facts, error) {
	if err := g.begin(ctx, Ref{Kind: KindNode, Name: node}); err != nil {
		return nil, err
	}
	g.node(ctx, node)
	g.system(ctx)
	return g.facts, ctx.Err()
}

// Drain reads what concerns a drain of a node: of the intents only, which may go to another node.
func (g *Gatherer) Drain(ctx context.Context, node, to string) (*Relocation, error) {
	f, err := g.Gather(ctx, Ref{Kind: KindNode, Name: node})
	if err != nil {
		return nil, err
	}
	if n, _ := f.NodeOf(node); f.Installed && Absent(n.State.Err) {
		return nil, &ErrSubject{n.State.Ref, n.State.Err}
	}
	r := &Relocation{Facts: f, To: to}
	intents := g.intents(ctx, "intents", client.MatchingFields{"spec.nodeName": node})
	if intents.Err != nil {
		return nil, &ErrSubject{Ref{KindIntent, "", "on node " + node}, intents.Err}
	}
	r.Intents = intents.Items
	g.podsOn(ctx, r, node)
	if to != "" {
		intents = g.intents(ctx, "intents", client.MatchingFields{"spec.nodeName": to})
		if intents.Err != nil {
			return nil, &ErrSubject{Ref{KindIntent, "", "on node " + to}, intents.Err}
		}
		r.OnTarget = intents.Items
	}
	return r, g.rest(ctx, r)
}

// rest reads the node where the intents go, the attachments, the volumes, and the claims.
func (g *Gatherer) rest(ctx context.Context, r *Relocation) error {
	if r.To != "" {
		g.node(ctx, r.To)
		if n, _ := r.NodeOf(r.To); Absent(n.Node.Err) {
			return &ErrSubject{n.Node.Ref, n.Node.Err}
		}
		r.Attachments.Items, r.Attachments.Err = g.attachments(ctx)
	}
	r.Persistent = map[string]Object[*corev1.PersistentVolume]{}
	volumes := map[string]*corev1.PersistentVolume{}
	r.Claims = map[string]Object[*corev1.PersistentVolumeClaim]{}
	for i := range r.Intents {
		intent := &r.Intents[i]
		name := intent.Status.VolumeName
		if name == "" && len(r.Volumes) > 0 {
			name = r.Volumes[0].Volume.Ref.Name
		}
		pv := get[corev1.PersistentVolume](ctx, g, KindVolume, "", name)
		if r.Persistent[Key(intent)] = pv; pv.Found {
			volumes[name] = pv.Value
		}
		if source := intent.Spec.Volume.PersistentVolumeClaim; source != nil {
			r.Claims[Key(intent)] = get[corev1.PersistentVolumeClaim](ctx, g, KindClaim, intent.Namespace, source.ClaimName)
		}
	}
	r.Endings = g.Endings(ctx, volumes)
	return ctx.Err()
}

// podsOn reads the pods that are bound to a node, all of them: one that is left out may use a volume.
func (g *Gatherer) podsOn(ctx context.Context, r *Relocation, node string, options ...client.ListOption) {
	pods, err := list[corev1.PodList](ctx, g, "pods on node "+node,
		append(options, client.MatchingFields{"spec.nodeName": node})...)
	if err != nil {
		r.Pods.Err = err
		return
	}
	for i := range pods.Items {
		if p := pods.Items[i].Status.Phase; p != corev1.PodSucceeded && p != corev1.PodFailed {
			r.Pods.Items = append(r.Pods.Items, pods.Items[i])
		}
	}
}

// Uses reports whether a pod uses the volume of an intent: by its claim, by its name, or in a directory that shows it.
func Uses(pod *corev1.Pod, intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	if pod.Namespace != intent.Namespace {
		return false
	}
	source := intent.Spec.Volume.PersistentVolumeClaim
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if claim, ok := ClaimOf(pod, v); ok && source != nil && claim == source.ClaimName {
			return true
		}
		if inlineAttribute(v, volumesv1alpha1.AttributeIntent) == intent.Name || shows(v, pod, intent) {
			return true
		}
	}
	return false
}

// shows reports whether a volume of a pod is a directory that shows the intent. The intent of a pod is in none.
func shows(v *corev1.Volume, pod *corev1.Pod, intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	text := inlineAttribute(v, volumesv1alpha1.AttributeIntents)
	if owner := metav1.GetControllerOf(intent); text == "" || pod.Spec.NodeName != intent.Spec.NodeName ||
		owner != nil && owner.Kind == "Pod" {
		return false
	}
	selector, err := labels.Parse(text)
	return err == nil && selector.Matches(labels.Set(intent.Labels)) // what cannot be parsed shows nothing
}
