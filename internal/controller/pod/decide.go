/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package pod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/ephemeral"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/cached"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/resolve"
)

// facts are all that is known of the pod of one name.
type facts struct {
	// enabled: the pod gets intents for the volumes that its kubelet mounts.
	enabled bool
	// pod that has the name now; nil when there is none.
	pod *corev1.Pod
	// node that the pod is bound to; nil when it is bound to none, or there is no such Node.
	node    *corev1.Node
	volumes []podVolume
	// intents that were made for this pod and for earlier ones of its name.
	intents []*volumesv1alpha1.VolumeAttachmentIntent
}

// podVolume is one claim that the pod names, however many of its volumes do, or one volume in the pod itself.
type podVolume struct {
	pod *corev1.Pod
	// name of the first of the pod's volumes that names the claim.
	name string
	// ephemeral: the claim has to be the pod's own.
	ephemeral bool
	// inline: it is an inline volume of Hawser, which the agent publishes.
	inline bool
	// intent as it is to be.
	intent *volumesv1alpha1.VolumeAttachmentIntent
	facts  resolve.Facts
	// attachRequired is false where the volume's driver is known to need no attach.
	attachRequired bool
}

// plan is what there is to do.
type plan struct {
	create []*podVolume
	remove []*volumesv1alpha1.VolumeAttachmentIntent
	// orphans are to be removed if their pod is gone for certain.
	orphans  []orphan
	problems []problem
}

// orphan is an intent of a pod that the cache does not show.
type orphan struct {
	intent *volumesv1alpha1.VolumeAttachmentIntent
	pod    types.UID
}

// reasonClaimNotOwned: the claim of a generic ephemeral volume is not the pod's.
const reasonClaimNotOwned = "ClaimNotOwnedByPod"

// problem keeps one of the pod's volumes out.
type problem struct {
	volume          string
	reason, message string
	// again reads it live; nil where it was found live.
	again *podVolume
}

// decide says what to do for the pod of one name. A Node that is not there is not one that releases volumes: what
// exists for it stays as long as the pod does.
func decide(f facts) plan {
	var p plan
	mine := map[string]*volumesv1alpha1.VolumeAttachmentIntent{}
	for _, intent := range f.intents {
		switch _, uid, _ := index.PodOf(intent); {
		case !f.enabled && !publishedByAgent(intent):
			p.remove = append(p.remove, intent)
		case f.pod == nil || uid != f.pod.UID:
			p.orphans = append(p.orphans, orphan{intent: intent, pod: uid})
		default:
			mine[intent.Name] = intent
		}
	}
	if f.pod != nil && index.UsesVolumes(f.pod) && !abandoned(f.pod, f.node) {
		for i := range f.volumes {
			f.want(&p, &f.volumes[i], mine)
		}
	}
	for _, intent := range f.intents {
		if mine[intent.Name] == intent {
			p.remove = append(p.remove, intent)
		}
	}
	return p
}

// abandoned reports whether the garbage collector of pods will remove the pod by force with its next round, which may
// be 20 seconds away: it is being deleted, and its Node is not Ready and out of service. Whether its volumes may be
// detached is for the evidence to show.
func abandoned(pod *corev1.Pod, node *corev1.Node) bool {
	return node != nil && !pod.DeletionTimestamp.IsZero() && !inService(node)
}

// want keeps or plans the intent of a volume that gets one. The agent attaches nothing, so it does not matter to an
// inline volume whether the kubelet of the node does.
func (f facts) want(p *plan, v *podVolume, mine map[string]*volumesv1alpha1.VolumeAttachmentIntent) {
	if v.inline || f.enabled && (f.node == nil || managed(f.node)) {
		p.want(v, mine, f.node != nil)
	}
}

// want keeps the volume's intent, which it takes out of mine, or plans it. An intent is kept although its
// claim does not resolve any more: it is held to the volume that it resolved to, and says itself what is wrong.
func (p *plan) want(v *podVolume, mine map[string]*volumesv1alpha1.VolumeAttachmentIntent, create bool) {
	if !v.attachRequired && !v.inline {
		return
	}
	if stands := mine[v.intent.Name]; stands != nil && sameWish(stands, v.intent) {
		delete(mine, v.intent.Name)
		return
	}
	if !create {
		return
	}
	if v.inline { // the intent itself reports what it waits for, and the agent reports that on the pod
		p.create = append(p.create, v)
		return
	}
	switch r := v.resolve(); {
	case r.OK:
		p.create = append(p.create, v)
	case r.Reason != volumesv1alpha1.ReasonVolumeNotSupported:
		p.problems = append(p.problems, problem{volume: v.name, reason: r.Reason, message: r.Message, again: v})
	}
}

// resolve is how the volume's intent would resolve. The claim of a generic ephemeral volume has to be the pod's own.
func (v *podVolume) resolve() resolve.Result {
	if v.ephemeral && v.facts.Claim != nil {
		if err := ephemeral.VolumeIsForPod(v.pod, v.facts.Claim); err != nil {
			return resolve.Result{Reason: reasonClaimNotOwned, Message: err.Error()}
		}
	}
	return resolve.Intent(v.facts)
}

func sameWish(a, b *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return a.Spec.NodeName == b.Spec.NodeName && equality.Semantic.DeepEqual(a.Spec.Volume, b.Spec.Volume)
}

// managed reports whether the node's kubelet leaves attaching to a controller.
func managed(node *corev1.Node) bool { return node.Annotations[cached.ManagedNodeAnnotation] == "true" }
