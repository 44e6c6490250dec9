/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package placement

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
)

// decision is what there is to do for one gated pod.
type decision struct {
	// lift the gate. Otherwise the pod waits.
	lift bool
	// terms that the pod's required node affinity gets; nil if it has none.
	terms []term
	// constrained: each volume restricts the nodes by itself.
	constrained bool
	// first are the keys of the claims that the pod becomes the first user of, and that only one pod at a time may be
	// placed for.
	first []string
	// reason and message are those of the condition. They are empty for a pod that is placed and has nothing to say.
	reason, message string
}

// waiting is why a pod stays gated.
type waiting struct{ reason, message string }

func waitFor(reason, format string, args ...any) *waiting {
	return &waiting{reason, fmt.Sprintf(format, args...)}
}

// decide on a pod that has no other gate. A node that is full or out of capacity is excluded; everything else about
// room is the scheduler's.
func decide(f facts) decision {
	allowed := anyNode()
	var first []string
	constrained := true
	for i := range f.volumes {
		v := &f.volumes[i]
		nodes, w := v.allowed(f.pod.Namespace)
		if w != nil {
			return w.of(v)
		}
		nodes = nodes.and(f.ofZones(v))
		if allowed = allowed.and(nodes); len(allowed) == 0 {
			return contradiction().of(v)
		}
		constrained = constrained && !nodes.unrestricted()
		if v.single() {
			first = append(first, index.ClaimKey(f.pod.Namespace, v.claimName))
		}
	}
	for i := range f.volumes {
		v := &f.volumes[i]
		nodes, w := v.besideOthers(func() []*corev1.Node { return f.candidates(allowed) })
		if w != nil {
			return w.of(v)
		}
		allowed = allowed.and(nodes)
	}
	result, possible := narrow(f.pod, allowed, f.nodes)
	if !possible || nowhere(f.pod, result.terms, f.nodes) {
		return contradiction().of(nil)
	}
	d := f.place(result)
	d.first, d.constrained = first, constrained
	return d
}

// candidates are the nodes of today that the pod and its volumes allow.
func (f facts) candidates(allowed alternatives) []*corev1.Node {
	result, _ := narrow(f.pod, allowed, f.nodes)
	return matching(f.pod, result.terms, f.nodes)
}

// place excludes the nodes that cannot take the volumes now. If that leaves no node, not even one that is added, the
// pod keeps its gate: its affinity could not be changed once there is room.
func (f facts) place(result narrowed) decision {
	candidates := matching(f.pod, result.terms, f.nodes)
	excluded := slices.DeleteFunc(slices.Clone(candidates), f.hasRoom)
	full := len(excluded) > 0 && len(excluded) == len(candidates)
	if full && onlyOn(f.pod, result.terms, excluded) {
		return noRoom(excluded).of(nil)
	}
	d := decision{lift: true, terms: without(result.terms, excluded, f.nodes)}
	switch {
	case full:
		d.reason = volumesv1alpha1.ReasonEveryNodeFull
		d.message = fmt.Sprintf("no node of today that the volumes allow has room for them (limit of the driver, or storage "+
			"capacity): %s. The pod runs on a node that is added; once there is room on one of these, create the pod again",
			names(excluded))
	case result.chosen != "":
		d.reason, d.message = volumesv1alpha1.ReasonAlternativeChosen, result.chosen
	}
	return d
}

// nowhere reports whether each term names a node, and none of these can take the pod.
func nowhere(pod *corev1.Pod, terms []term, nodes []*corev1.Node) bool {
	return len(terms) > 0 && !slices.ContainsFunc(terms, func(t term) bool { return !empty(t) && !pinned(t) }) &&
		len(matching(pod, terms, nodes)) == 0
}

func contradiction() *waiting {
	return waitFor(volumesv1alpha1.ReasonConstraintsContradict, "no node can have all volumes of the pod and satisfy the "+
		"pod's own node selector and node affinity. Change the pod, or move a volume")
}

func noRoom(nodes []*corev1.Node) *waiting {
	return waitFor(volumesv1alpha1.ReasonNodeLimitReached, "the pod can run on no other node than %s, which has no room "+
		"for its volumes (limit of the driver, or storage capacity). The pod is placed once there is room, for example "+
		"because a volume is detached there", names(nodes))
}

// of names the pod's volume in the message; v may be nil.
func (w *waiting) of(v *volumeFacts) decision {
	d := decision{reason: w.reason, message: w.message}
	if v != nil {
		d.message = fmt.Sprintf("volume %s: %s", v.name, w.message)
	}
	return d
}

const namedNodes = 5

func names(nodes []*corev1.Node) string {
	var list []string
	for i, node := range nodes {
		if i == namedNodes {
			list = append(list, fmt.Sprintf("%d more", len(nodes)-namedNodes))
			break
		}
		list = append(list, node.Name)
	}
	return strings.Join(list, ", ")
}
