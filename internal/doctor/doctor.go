/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package doctor judges the volumes of a whole cluster: attachments, claims, drivers, nodes, pods that wait, and
// Hawser's own objects where it is installed.
//
// It is pure. Package doctor/read reads, package cli prints. What concerns one pod, claim, intent or node alone is
// explained by package explain, which reads from the memory of the cluster here and costs no request.
//
// A finding is refuted by every object that shows otherwise. What may be a transient is left out until it is older than
// the time that its kind has: see ages.go. A check whose objects could not be read makes no finding, and is named as
// left out.
package doctor

import (
	"cmp"
	"slices"
	"time"

	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// Severity of a finding. Reports begin with the worst.
type Severity string

const (
	// Danger means that data can be lost or damaged.
	Danger Severity = "Danger"
	// Outage means that something waits or works no more.
	Outage Severity = "Outage"
	// Risk means that a later step will fail: the next pod, the next release, the next deletion.
	Risk Severity = "Risk"
	// Notice means that something is left over or unknown, and harms nothing now.
	Notice Severity = "Notice"
)

// severities, the worst first.
var severities = []Severity{Danger, Outage, Risk, Notice}

// mostNamed is how many more objects of a finding, or users that wait, are named. All are counted.
const mostNamed = 20

// Finding is one thing that was found, about one object or about several of one kind.
type Finding struct {
	Severity Severity `json:"severity"`
	explain.Finding
	// Claim of the volume that the finding is about.
	Claim *facts.Ref `json:"claim,omitempty"`
	// Count is how many objects have it. Others are some of them, beside Object.
	Count  int     `json:"count"`
	Others []Other `json:"others,omitempty"`
	// Waiting counts the pods and intents that wait for it. Waiters are some of them, the oldest first.
	Waiting int         `json:"waiting,omitempty"`
	Waiters []facts.Ref `json:"waiters,omitempty"`

	// objects are all that have it.
	objects map[facts.Ref]bool
	// group is equal for findings that are reported as one.
	group string
	// namespaces that the finding concerns; none for one about the cluster.
	namespaces map[string]bool
}

// Other is one more object that has a finding.
type Other struct {
	facts.Ref
	// Claim of the volume that the object is, or attaches.
	Claim *facts.Ref `json:"claim,omitempty"`
}

// LeftOut is a kind of object that could not be read, and what is not known without it.
type LeftOut struct {
	Kind string `json:"kind"`
	// Forbidden is true if the user has no right to list it.
	Forbidden bool   `json:"forbidden"`
	Error     string `json:"error"`
	// Findings that are left out, or that lack something.
	Findings []string `json:"findings"`
}

// Report about a cluster.
type Report struct {
	// Namespace that was examined; empty for all.
	Namespace string `json:"namespace,omitempty"`
	// Installed is true if Hawser is installed.
	Installed bool `json:"hawserInstalled"`
	// Findings, the worst first.
	Findings []Finding `json:"findings"`
	LeftOut  []LeftOut `json:"leftOut,omitempty"`
	// New counts the pods and intents that have waited for less than two minutes. They are not examined yet.
	New int `json:"new,omitempty"`
	// Time is when the cluster was read.
	Time time.Time `json:"time"`
}

// check finds one kind of thing.
type check struct {
	// about is what is left out where an object that it needs cannot be read.
	about string
	needs []string
	run   func(*examination)
	// helps are kinds without which it finds less.
	helps []string
}

// Examine judges the cluster.
func Examine(c *Cluster, now time.Time) *Report {
	r := &Report{Namespace: c.Namespace, Installed: c.Installed, Findings: []Finding{}, Time: now}
	x := newExamination(c, now)
	lacking := map[string][]string{}
	for _, k := range checks {
		missing := x.unread(k.needs)
		for _, kind := range missing {
			lacking[kind] = append(lacking[kind], k.about)
		}
		if len(missing) > 0 {
			continue
		}
		for _, kind := range x.unread(k.helps) {
			lacking[kind] = append(lacking[kind], k.about+" (in part)")
		}
		k.run(x)
	}
	x.oneDriver()
	r.Findings, r.New = append(r.Findings, x.findings()...), x.waitShortly
	for _, kind := range c.kinds() {
		if err := x.errs[kind]; err != nil && !facts.NoKind(err) {
			r.LeftOut = append(r.LeftOut, LeftOut{Kind: kind, Forbidden: facts.Denied(err), Error: err.Error(),
				Findings: lacking[kind]})
		}
	}
	return r
}

// findings are those that concern the namespace that was asked for, those of one group as one, the worst first.
func (x *examination) findings() []Finding {
	var list []Finding
	at := map[string]int{}
	slices.SortStableFunc(x.found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(min(a.Waiting, 1), min(b.Waiting, 1)), byAge(a, b))
	})
	for i := range x.found {
		f := &x.found[i]
		if !x.concerned(f) {
			continue
		}
		key := f.Code + " " + f.group
		if first, known := at[key]; known {
			list[first].merge(f)
			continue
		}
		at[key] = len(list)
		list = append(list, *f)
	}
	slices.SortStableFunc(list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity)),
			cmp.Compare(b.Waiting, a.Waiting), byAge(a, b), cmp.Compare(a.Code, b.Code),
			cmp.Compare(a.Object.String(), b.Object.String()))
	})
	return list
}

// byAge has the oldest first, and what has no age last.
func byAge(a, b Finding) int {
	switch {
	case a.Since == nil && b.Since == nil:
		return 0
	case a.Since == nil:
		return 1
	case b.Since == nil:
		return -1
	}
	return a.Since.Compare(*b.Since)
}

// merge adds a finding of the same group.
func (f *Finding) merge(other *Finding) {
	if slices.Index(severities, other.Severity) < slices.Index(severities, f.Severity) {
		f.Severity = other.Severity
	}
	if f.objects == nil {
		f.objects = map[facts.Ref]bool{f.Object: true}
	}
	if !f.objects[other.Object] {
		f.objects[other.Object] = true
		f.Count += other.Count
		f.Others = named(f.Others, Other{other.Object, other.Claim})
	}
	f.Waiting += other.Waiting
	f.Waiters = named(f.Waiters, other.Waiters...)
}

// named adds objects as long as there are few.
func named[T any](list []T, more ...T) []T {
	list = append(list, more...)
	return list[:min(len(list), mostNamed)]
}

// concerned reports whether a finding concerns the namespace that was asked for. A volume without a claim concerns
// none.
func (x *examination) concerned(f *Finding) bool {
	if x.c.Namespace == "" || f.namespaces[x.c.Namespace] {
		return true
	}
	return len(f.namespaces) == 0 && f.Object.Kind != facts.KindAttachment && f.Object.Kind != facts.KindVolume
}
