/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package facts

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
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
	r.Intents, err = g.allIntents(ctx, client.InNamespace(claim.Namespace),
		client.MatchingFields{"spec.volume.persistentVolumeClaim.claimName": claim.Name})
	if err != nil {
		return nil, &ErrSubject{Ref{KindIntent, claim.Namespace, "of claim " + claim.Name}, err}
	}
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
	if r.Intents, err = g.allIntents(ctx, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, &ErrSubject{Ref{KindIntent, "", "on node " + node}, err}
	}
	g.podsOn(ctx, r, node)
	if to != "" {
		if r.OnTarget, err = g.allIntents(ctx, client.MatchingFields{"spec.nodeName": to}); err != nil {
			return nil, &ErrSubject{Ref{KindIntent, "", "on node " + to}, err}
		}
	}
	return r, g.rest(ctx, r)
}

// rest reads the node where the intents go, the attachments, and the volumes.
func (g *Gatherer) rest(ctx context.Context, r *Relocation) error {
	if r.To != "" {
		g.node(ctx, r.To)
		if n, _ := r.NodeOf(r.To); Absent(n.Node.Err) {
			return &ErrSubject{n.Node.Ref, n.Node.Err}
		}
		r.Attachments.Items, r.Attachments.Err = g.attachments(ctx)
	}
	r.Persistent = map[string]Object[*corev1.PersistentVolume]{}
	for i := range r.Intents {
		name := r.Intents[i].Status.VolumeName
		if name == "" && len(r.Volumes) > 0 {
			name = r.Volumes[0].Volume.Ref.Name
		}
		r.Persistent[Key(&r.Intents[i])] = get[corev1.PersistentVolume](ctx, g, KindVolume, "", name)
	}
	return ctx.Err()
}

// podsOn reads the pods that are bound to a node, all of them: one that is left out may use a volume.
func (g *Gatherer) podsOn(ctx context.Context, r *Relocation, node string, options ...client.ListOption) {
	options = append(options, client.MatchingFields{"spec.nodeName": node}, client.Limit(most))
	for next := ""; ; {
		g.progress("pods on node " + node)
		var pods corev1.PodList
		if err := g.Reader.List(ctx, &pods, append(slices.Clip(options), client.Continue(next))...); err != nil {
			r.Pods.Err = err
			return
		}
		for i := range pods.Items {
			if p := pods.Items[i].Status.Phase; p != corev1.PodSucceeded && p != corev1.PodFailed {
				r.Pods.Items = append(r.Pods.Items, pods.Items[i])
			}
		}
		if next = pods.Continue; next == "" {
			return
		}
	}
}

// allIntents reads a list of intents in pages.
func (g *Gatherer) allIntents(ctx context.Context, options ...client.ListOption) (
	[]volumesv1alpha1.VolumeAttachmentIntent, error) {
	var all []volumesv1alpha1.VolumeAttachmentIntent
	options = append(options, client.Limit(most))
	for next := ""; ; {
		g.progress("intents")
		var found volumesv1alpha1.VolumeAttachmentIntentList
		if err := g.Reader.List(ctx, &found, append(slices.Clip(options), client.Continue(next))...); err != nil {
			return nil, err
		}
		all = append(all, found.Items...)
		if next = found.Continue; next == "" {
			return all, nil
		}
	}
}

// Uses reports whether a pod uses the volume of an intent: by its claim, or by its name.
func Uses(pod *corev1.Pod, intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	if pod.Namespace != intent.Namespace {
		return false
	}
	source := intent.Spec.Volume.PersistentVolumeClaim
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if claim, ok := claimOf(pod, v); ok && source != nil && claim == source.ClaimName {
			return true
		}
		if inlineAttribute(v, volumesv1alpha1.AttributeIntent) == intent.Name {
			return true
		}
	}
	return false
}
