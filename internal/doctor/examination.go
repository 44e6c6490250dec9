/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package doctor

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// examination is one pass over a cluster.
type examination struct {
	*index
	now      time.Time
	gatherer *facts.Gatherer
	found    []Finding
	// once has the codes that were found of a node, which several objects may show.
	once map[string]bool
	// waitShortly counts what waits too short to be examined.
	waitShortly int
}

func newExamination(c *Cluster, now time.Time) *examination {
	i := newIndex(c)
	return &examination{index: i, now: now, once: map[string]bool{}, gatherer: &facts.Gatherer{Reader: newMemory(i),
		System: c.System, Now: func() time.Time { return now }, OnlyVolumes: true}}
}

// unread are the kinds among some that could not be read. What the API server does not serve has no objects.
func (x *examination) unread(needs []string) []string {
	var missing []string
	for _, kind := range needs {
		if x.errs[kind] != nil && !facts.NoKind(x.errs[kind]) {
			missing = append(missing, kind)
		}
	}
	return missing
}

// report explains one object from memory; nil if it is not there any more.
func (x *examination) report(ref facts.Ref) (*facts.Facts, *explain.Report) {
	f, err := x.gatherer.Gather(context.Background(), ref)
	if err != nil {
		return nil, nil
	}
	return f, explain.Explain(f)
}

// about is what is to be found.
type about struct {
	severity Severity
	reason   string
	object   facts.Ref
	detail   string
	// since is when it began; zero if that is not known.
	since time.Time
	// claim of the volume; nil for none.
	claim *facts.Ref
	// places beside those of object and claim.
	places map[string]string
	// states beside those of the objects that places name.
	states catalog.States
	// group of findings that are reported as one; empty for one of its own.
	group string
	// namespaces that it concerns, beside that of object and claim.
	namespaces []string
}

// find adds a finding.
func (x *examination) find(a about) *Finding {
	refs := []facts.Ref{a.object}
	if a.claim != nil {
		refs = append(refs, *a.claim)
	}
	places := explain.Places(refs...)
	places["system"] = x.c.System
	maps.Copy(places, a.places)
	states := explain.Named(places, x.state)
	maps.Copy(states, a.states)
	if !x.c.Installed {
		states[catalog.Installation] = catalog.Gone
	}
	e := catalog.OfReason(a.reason).For(states)
	run, remarks := catalog.Separate(slices.DeleteFunc(e.Commands(places), func(command string) bool {
		return !x.c.Installed && catalog.OfHawser(command)
	}))
	f := Finding{Severity: a.severity, Claim: a.claim, Count: 1, namespaces: map[string]bool{},
		group: cmp.Or(a.group, a.object.String()),
		Finding: explain.Finding{Code: e.Code, Reason: a.reason, Level: catalog.Problem, Says: e.Says, Detail: a.detail,
			Object: a.object, Acts: e.Acts, Way: e.Way, Run: run, Remarks: remarks, URL: e.URL()}}
	if !a.since.IsZero() {
		since := a.since.UTC()
		f.Since = &since
	}
	for _, namespace := range append(a.namespaces, places["namespace"]) {
		if namespace != "" {
			f.namespaces[namespace] = true
		}
	}
	x.found = append(x.found, f)
	return &x.found[len(x.found)-1]
}

// first reports whether a code was not found for a node before, and remembers it.
func (x *examination) first(reason, node string) bool {
	key := reason + " " + node
	defer func() { x.once[key] = true }()
	return !x.once[key]
}

// old reports whether something has lasted long enough. What began at an unknown time has.
func (x *examination) old(since time.Time, age time.Duration) bool { return x.now.Sub(since) >= age }

// claimOf names the claim of a PersistentVolume; nil for none, and where another claim has its name.
func (x *examination) claimOf(pv *corev1.PersistentVolume) *facts.Ref {
	if pv == nil || pv.Spec.ClaimRef == nil {
		return nil
	}
	ref := &facts.Ref{Kind: facts.KindClaim, Namespace: pv.Spec.ClaimRef.Namespace, Name: pv.Spec.ClaimRef.Name}
	if claim := x.claims[keyOf(ref)]; claim != nil && !facts.Owns(claim, pv) {
		return nil
	}
	return ref
}

// usersOf are the pods that may use a PersistentVolume by its claim. Where another claim has the name, they are those
// that may be older than it.
func (x *examination) usersOf(pv *corev1.PersistentVolume) []*corev1.Pod {
	if pv.Spec.ClaimRef == nil {
		return nil
	}
	key := client.ObjectKey{Namespace: pv.Spec.ClaimRef.Namespace, Name: pv.Spec.ClaimRef.Name}
	claim := x.claims[key]
	if claim == nil || facts.Owns(claim, pv) {
		return x.podsOf[key]
	}
	return slices.DeleteFunc(slices.Clone(x.podsOf[key]), func(pod *corev1.Pod) bool {
		return !facts.MayPrecede(pod, claim)
	})
}

func keyOf(ref *facts.Ref) client.ObjectKey {
	if ref == nil {
		return client.ObjectKey{}
	}
	return client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
}

// refOf names an object.
func refOf(kind string, o client.Object) facts.Ref {
	return facts.Ref{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()}
}

// later is the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// namespaceOf is the namespace that a PersistentVolume belongs to, also where another claim has the name of its claim;
// empty for none.
func namespaceOf(pv *corev1.PersistentVolume) string {
	if pv == nil || pv.Spec.ClaimRef == nil {
		return ""
	}
	return pv.Spec.ClaimRef.Namespace
}
