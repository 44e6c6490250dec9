/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package facts

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// Gather reads the facts about a subject, which is of any kind that has a case here. If it cannot be read itself, the
// error is an ErrSubject. If the context ends after that, the facts that were read come with the context's error.
func (g *Gatherer) Gather(ctx context.Context, subject Ref) (*Facts, error) {
	if err := g.begin(ctx, subject); err != nil {
		return nil, err
	}
	if err := g.subject(ctx, subject); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &ErrSubject{subject, err}
	}
	g.system(ctx)
	return g.facts, ctx.Err()
}

func (g *Gatherer) subject(ctx context.Context, ref Ref) error {
	switch ref.Kind {
	case KindPod:
		return g.ofPod(ctx, ref)
	case KindClaim:
		return g.ofClaim(ctx, ref)
	case KindVolume:
		return g.ofVolume(ctx, ref)
	case KindIntent:
		return g.ofIntent(ctx, ref)
	case KindSet:
		return g.ofSet(ctx, ref)
	case KindAttachment:
		return g.ofAttachment(ctx, ref)
	case KindManager:
		return g.ofManager(ctx, ref)
	default:
		return g.ofNode(ctx, ref)
	}
}

func (g *Gatherer) ofPod(ctx context.Context, ref Ref) error {
	g.facts.Pod = get[corev1.Pod](ctx, g, ref.Kind, ref.Namespace, ref.Name)
	if !g.facts.Pod.Found {
		return g.facts.Pod.Err
	}
	pod := g.facts.Pod.Value
	g.facts.PodEvents = g.events(ctx, pod.Namespace, pod.UID)
	g.missing(ctx, pod.Namespace, g.facts.PodEvents.Items)
	if g.facts.Installed && pod.UID != "" {
		g.facts.PodIntents = g.intents(ctx, "intents of "+ref.String(), client.InNamespace(pod.Namespace),
			client.MatchingLabels{volumesv1alpha1.PodUIDLabel: string(pod.UID)})
	}
	for i := range pod.Spec.Volumes {
		if claim, ok := ClaimOf(pod, &pod.Spec.Volumes[i]); ok {
			g.podVolume(ctx, &pod.Spec.Volumes[i], claim)
		} else if intent := inlineAttribute(&pod.Spec.Volumes[i], volumesv1alpha1.AttributeIntent); intent != "" {
			g.inlineIntent(ctx, pod.Spec.Volumes[i].Name,
				get[volumesv1alpha1.VolumeAttachmentIntent](ctx, g, KindIntent, pod.Namespace, intent))
		} else if selector := inlineAttribute(&pod.Spec.Volumes[i], volumesv1alpha1.AttributeIntents); selector != "" {
			g.directory(ctx, pod.Spec.Volumes[i].Name, selector)
		}
	}
	g.node(ctx, NodeOf(pod))
	g.filling(ctx, pod)
	return nil
}

// inlineAttribute is an attribute of an inline volume of Hawser's; empty for any other volume.
func inlineAttribute(v *corev1.Volume, name string) string {
	if v.CSI == nil || v.CSI.Driver != volumesv1alpha1.InlineDriver {
		return ""
	}
	return v.CSI.VolumeAttributes[name]
}

// directory reads the intents that a directory of a pod shows, or is to show.
func (g *Gatherer) directory(ctx context.Context, name, text string) {
	pod := g.facts.Pod.Value
	selector, err := labels.Parse(text)
	if err != nil || !g.facts.Installed || pod.Spec.NodeName == "" {
		return // the events of the pod have what is wrong with a selector
	}
	found := g.intents(ctx, "intents of directory "+name, client.InNamespace(pod.Namespace),
		client.MatchingLabelsSelector{Selector: selector}, client.MatchingFields{"spec.nodeName": pod.Spec.NodeName})
	if found.Err != nil {
		g.facts.PodIntents.Err = found.Err
	}
	for i := range found.Items {
		intent := &found.Items[i]
		if owner := metav1.GetControllerOf(intent); owner != nil && owner.Kind == "Pod" {
			continue // of one pod alone
		}
		g.inlineIntent(ctx, name, Object[*volumesv1alpha1.VolumeAttachmentIntent]{Value: intent, Found: true,
			Ref: Ref{KindIntent, intent.Namespace, intent.Name}})
	}
}

// inlineIntent reads the volume of an intent that a volume of a pod uses.
func (g *Gatherer) inlineIntent(ctx context.Context, name string,
	intent Object[*volumesv1alpha1.VolumeAttachmentIntent]) {
	pod := g.facts.Pod.Value
	v := Volume{PodVolume: name, Node: pod.Spec.NodeName, Intent: intent}
	if v.Intent.Found && v.Intent.Value.Spec.Volume.PersistentVolumeClaim != nil {
		g.claim(ctx, &v, pod.Namespace, v.Intent.Value.Spec.Volume.PersistentVolumeClaim.ClaimName)
		g.kept(ctx, &v)
	}
	g.attachment(ctx, &v)
	g.users(ctx, &v)
	g.facts.Volumes = append(g.facts.Volumes, v)
}

// ClaimOf is the claim of a pod's volume: named, of an ephemeral volume, or named to Hawser's inline driver.
func ClaimOf(pod *corev1.Pod, v *corev1.Volume) (string, bool) {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName, true
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name, true
	case v.CSI != nil && v.CSI.Driver == volumesv1alpha1.InlineDriver:
		claim := v.CSI.VolumeAttributes[volumesv1alpha1.AttributeClaim]
		return claim, claim != ""
	default:
		return "", false
	}
}

func (g *Gatherer) podVolume(ctx context.Context, volume *corev1.Volume, claim string) {
	pod := g.facts.Pod.Value
	v := Volume{PodVolume: volume.Name, Ephemeral: volume.Ephemeral != nil, Node: pod.Spec.NodeName}
	for i := range g.facts.PodIntents.Items {
		intent := &g.facts.PodIntents.Items[i]
		if source := intent.Spec.Volume.PersistentVolumeClaim; source != nil && source.ClaimName == claim {
			v.Intent = Object[*volumesv1alpha1.VolumeAttachmentIntent]{Value: intent, Found: true,
				Ref: Ref{KindIntent, intent.Namespace, intent.Name}}
		}
	}
	g.claim(ctx, &v, pod.Namespace, claim)
	g.attachment(ctx, &v)
	g.users(ctx, &v)
	g.facts.Volumes = append(g.facts.Volumes, v)
}

func (g *Gatherer) ofClaim(ctx context.Context, ref Ref) error {
	var v Volume
	g.claim(ctx, &v, ref.Namespace, ref.Name)
	if !v.Claim.Found {
		return v.Claim.Err
	}
	g.attachment(ctx, &v)
	g.users(ctx, &v)
	g.facts.Users = g.podsOf(ctx, ref)
	g.facts.Volumes = append(g.facts.Volumes, v)
	return nil
}

func (g *Gatherer) ofVolume(ctx context.Context, ref Ref) error {
	var v Volume
	g.volume(ctx, &v, ref.Name)
	if !v.Volume.Found {
		return v.Volume.Err
	}
	if v.Volume.Value.Spec.ClaimRef != nil {
		v.Claim, _ = g.owner(ctx, v.Volume.Value)
	}
	g.attachment(ctx, &v)
	g.users(ctx, &v)
	g.facts.Volumes = append(g.facts.Volumes, v)
	return nil
}

func (g *Gatherer) ofIntent(ctx context.Context, ref Ref) error {
	intent := get[volumesv1alpha1.VolumeAttachmentIntent](ctx, g, ref.Kind, ref.Namespace, ref.Name)
	if intent.Found {
		g.wanted(ctx, intent)
	}
	return intent.Err
}

// wanted reads what an intent wants: its volume, attachment and node.
func (g *Gatherer) wanted(ctx context.Context, o Object[*volumesv1alpha1.VolumeAttachmentIntent]) {
	intent := o.Value
	v := Volume{Intent: o, Node: intent.Spec.NodeName}
	if source := intent.Spec.Volume.PersistentVolumeClaim; source != nil {
		g.claim(ctx, &v, intent.Namespace, source.ClaimName)
	}
	if !v.Volume.Asked() {
		g.volume(ctx, &v, intent.Status.VolumeName) // the intent keeps to it, whatever has become of its claim
	}
	g.kept(ctx, &v)
	if source := intent.Spec.Volume.PodVolume; source != nil {
		g.facts.Pod = get[corev1.Pod](ctx, g, KindPod, intent.Namespace, source.PodName)
	}
	g.attachment(ctx, &v)
	g.users(ctx, &v)
	g.facts.Volumes = append(g.facts.Volumes, v)
	g.node(ctx, v.Node)
}

// ofNode reads a node. A Node that is gone is a subject too, as long as its node state or its Lease is left.
func (g *Gatherer) ofNode(ctx context.Context, ref Ref) error {
	g.node(ctx, ref.Name)
	n, _ := g.facts.NodeOf(ref.Name)
	if !n.Node.Found && !n.State.Found && !n.Lease.Found {
		return n.Node.Err
	}
	if g.facts.Installed {
		g.facts.NodeIntents = g.intents(ctx, "intents on "+ref.String(), client.MatchingFields{"spec.nodeName": ref.Name})
	}
	if n.State.Found {
		g.claims(ctx, n.State.Value)
	}
	if n.Node.Found && n.Node.Value.DeletionTimestamp != nil {
		g.keepers(ctx)
	}
	pods, err := list[corev1.PodList](ctx, g, "pending pods on "+ref.String(),
		client.MatchingFields{"spec.nodeName": ref.Name, "status.phase": string(corev1.PodPending)})
	g.facts.NodePods = List[corev1.Pod]{Items: pods.Items, Err: err}
	return nil
}
