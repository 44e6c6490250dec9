/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package explain turns facts about a subject, such as a pod or a claim, into a report: the chain of objects between
// the subject and its storage, and findings that name what is waited for, since when, and what must act.
//
// It is pure. Package facts reads, package catalog has the sentences, package cli prints.
package explain

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// Finding is one thing that was found about one object.
type Finding struct {
	Code   string        `json:"code"`
	Reason string        `json:"reason"`
	Level  catalog.Level `json:"level"`
	// Says is the sentence of the catalog, with names where it may have them. Detail what the object itself reports.
	Says   string    `json:"says"`
	Detail string    `json:"detail,omitempty"`
	Object facts.Ref `json:"object"`
	// Since is when it began, as far as objects record it.
	Since *time.Time    `json:"since,omitempty"`
	Acts  catalog.Actor `json:"acts,omitempty"`
	Way   string        `json:"way,omitempty"`
	Run   []string      `json:"run,omitempty"`
	// Remarks are when to run a command, or what it is for, by the command.
	Remarks map[string]string `json:"remarks,omitempty"`
	URL     string            `json:"url"`

	depth catalog.Depth
}

// State of a link of the chain.
type State string

const (
	// Good means that the link is as it should be.
	Good State = "Good"
	// Waits means that the link waits for a component.
	Waits State = "Waits"
	// Bad means that an actor has to do something.
	Bad State = "Bad"
	// Unknown means that the link could not be read.
	Unknown State = "Unknown"
)

// Link is one object of the chain.
type Link struct {
	Object facts.Ref `json:"object"`
	State  State     `json:"state"`
	Text   string    `json:"text"`
	// Since is when it came into this state, as far as the object records it.
	Since *time.Time `json:"since,omitempty"`
	// Depth is how far it is indented: a link explains the one before that has a smaller depth.
	Depth int `json:"depth"`
}

// Report about one subject.
type Report struct {
	Subject facts.Ref `json:"subject"`
	// Fine is true if nothing is waited for.
	Fine bool `json:"fine"`
	// Verdict is one sentence.
	Verdict string `json:"verdict"`
	// Findings, the cause first. Notes are not findings.
	Findings []Finding `json:"findings"`
	Notes    []Finding `json:"notes,omitempty"`
	Chain    []Link    `json:"chain"`
	// Timeline of a pod with volumes that Hawser attaches for it.
	Timeline []Moment `json:"timeline,omitempty"`
	// Since is when the facts were read.
	Time time.Time `json:"time"`
}

// has reports whether there is a finding of a reason.
func (r *Report) has(reason string) bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Reason == reason })
}

// found reports whether there is a finding about an object.
func (r *Report) found(object facts.Ref) bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Object == object })
}

// notes reports whether a note has the reason.
func (r *Report) notes(reason string) bool {
	return slices.ContainsFunc(r.Notes, func(f Finding) bool { return f.Reason == reason })
}

// builder builds a report.
type builder struct {
	f      *facts.Facts
	report *Report
	known  known
	depth  int
}

func newBuilder(f *facts.Facts) *builder {
	return &builder{f: f, known: knownOf(f),
		report: &Report{Subject: f.Subject, Time: f.Now, Findings: []Finding{}, Chain: []Link{}}}
}

// walk goes from the subject to its storage. nodes and claims have the parts about them.
type walk struct {
	*builder
	nodes
	claims
}

// Explain makes the report about the facts.
func Explain(f *facts.Facts) *Report {
	b := newBuilder(f)
	w := &walk{b, nodes{b}, claims{b}}
	if f.FromFile {
		w.find(about{object: f.Subject, reason: catalog.FileNew})
	}
	switch f.Subject.Kind {
	case facts.KindPod:
		w.pod()
	case facts.KindClaim:
		w.claimSubject()
	case facts.KindVolume:
		w.volumeSubject()
	case facts.KindIntent:
		w.intentSubject()
	case facts.KindSet:
		w.setSubject()
	case facts.KindAttachment:
		w.attachmentSubject()
	case facts.KindManager:
		w.managerSubject()
	default:
		w.nodeSubject()
	}
	w.system()
	w.conclude()
	return w.report
}

// conclude sorts the findings, the cause first, and writes the verdict.
func (b *builder) conclude() {
	r := b.report
	b.symptomsLast()
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(rank(b.Level), rank(a.Level)), cmp.Compare(b.depth, a.depth))
	})
	r.Findings = b.withoutConsequences()
	b.agree()
	r.Fine = len(r.Findings) == 0
	r.Verdict = "Nothing is waited for."
	if r.Fine {
		return
	}
	cause := r.Findings[0]
	r.Verdict = cause.Says
	if cause.Object != r.Subject {
		r.Verdict = cause.Object.String() + ": " + cause.Says
	}
}

// symptoms are what events and the scheduler report of a wait without its cause. They are older than the objects.
var symptoms = map[string]bool{catalog.MountWaits: true, catalog.PodUnboundClaims: true, catalog.AttachEvent: true,
	catalog.MultiAttach: true}

// symptomsLast lets what an object shows be the cause, a component that works on it too.
func (b *builder) symptomsLast() {
	findings := b.report.Findings
	if !slices.ContainsFunc(findings, func(f Finding) bool {
		return !symptoms[f.Reason] && f.Reason != catalog.AttachmentMissing
	}) {
		return
	}
	for i := range findings {
		if symptoms[findings[i].Reason] {
			findings[i].Level = catalog.Waiting
		}
	}
}

// agree shows in the chain which object has a problem, though what else it reports is as it should be.
func (b *builder) agree() {
	for i := range b.report.Chain {
		l := &b.report.Chain[i]
		for _, f := range b.report.Findings {
			if f.Object == l.Object && f.Level == catalog.Problem && l.State == Good {
				l.State, l.Text, l.Since = Bad, l.Text+", but "+f.Reason, f.Since
			}
		}
	}
}

// withoutConsequences drops an attachment that does not exist yet where a problem, or a detach elsewhere, is the cause.
func (b *builder) withoutConsequences() []Finding {
	findings := b.report.Findings
	if len(findings) == 0 || findings[0].Level != catalog.Problem && findings[0].Reason != catalog.DetachPending {
		return findings
	}
	return slices.DeleteFunc(findings, func(f Finding) bool { return f.Reason == catalog.AttachmentMissing })
}

func rank(l catalog.Level) int {
	return slices.Index([]catalog.Level{catalog.Fine, catalog.Note, catalog.Waiting, catalog.Problem}, l)
}

// about is what is to be found.
type about struct {
	object facts.Ref
	reason string
	detail string
	since  time.Time
	// level and depth replace those of the catalog, if they are not zero.
	level  catalog.Level
	depth  catalog.Depth
	places map[string]string
	// says is the sentence with names, in place of that of the catalog.
	says string
}

// find adds a finding, unless the report has it already.
func (b *builder) find(a about) {
	places := b.places(a)
	e := catalog.OfReason(a.reason).For(b.states(places))
	run, remarks := catalog.Separate(b.commands(e, places))
	finding := Finding{Code: e.Code, Reason: a.reason, Level: cmp.Or(a.level, e.Level), Says: cmp.Or(a.says, e.Says),
		Detail: a.detail, Object: a.object, Since: timeOf(a.since), Acts: e.Acts, Way: e.Way, Run: run,
		Remarks: remarks, URL: e.URL(), depth: max(a.depth, e.Depth)}
	finding.Way += b.ended(finding.Run, places[e.Off]) + warned(a)
	if rank(finding.Level) < rank(catalog.Waiting) {
		if finding.Level == catalog.Note {
			b.report.Notes = add(b.report.Notes, finding)
		}
		return
	}
	b.report.Findings = add(b.report.Findings, finding)
}

// commands leaves out the one that makes the same report again, and those about kinds that are not installed.
func (b *builder) commands(e catalog.Entry, places map[string]string) []string {
	names := map[string]string{facts.KindPod: "pod", facts.KindClaim: "pvc", facts.KindVolume: "pv",
		facts.KindIntent: "intent", facts.KindNode: "node", facts.KindSet: "set",
		facts.KindAttachment: "volumeattachment", facts.KindManager: "volumemanager"}
	same := "kubectl hawser why " + names[b.f.Subject.Kind] + " " + b.f.Subject.Name
	return slices.DeleteFunc(e.Commands(places), func(command string) bool {
		return !b.f.Installed && catalog.OfHawser(command) || command == same || command == same+" -n "+b.f.Subject.Namespace
	})
}

// add merges findings of one kind about one object. Two objects may also show one thing: that an object is missing, and
// the condition that waits for it.
func add(findings []Finding, finding Finding) []Finding {
	for i := range findings {
		f := &findings[i]
		if f.Code != finding.Code || f.Object != finding.Object && (f.Detail == "") == (finding.Detail == "") {
			continue
		}
		if f.Detail == "" {
			f.Detail, f.Since = finding.Detail, cmp.Or(f.Since, finding.Since)
		}
		return findings
	}
	return append(findings, finding)
}

// places are the values that commands may name.
func (b *builder) places(a about) map[string]string {
	places := map[string]string{"namespace": b.f.Subject.Namespace, "system": b.f.System}
	maps.Copy(places, Places(b.f.Subject, a.object))
	for name, value := range a.places {
		if value != "" {
			places[name] = value
		}
	}
	return places
}

// placeOf is what commands call an object of a kind.
var placeOf = map[string]string{facts.KindPod: "pod", facts.KindClaim: "claim", facts.KindVolume: "volume",
	facts.KindIntent: "intent", facts.KindSet: "set", facts.KindNode: "node", facts.KindState: "node",
	facts.KindCSINode:    "node",
	facts.KindAttachment: "attachment", facts.KindClass: "class", facts.KindCSIDriver: "driver"}

// Places are the values by which commands may name some objects. The last of a kind counts.
func Places(refs ...facts.Ref) map[string]string {
	places := map[string]string{}
	for _, ref := range refs {
		if name, ok := placeOf[ref.Kind]; ok {
			places[name] = ref.Name
		}
		if ref.Namespace != "" {
			places["namespace"] = ref.Namespace
		}
	}
	return places
}

// link adds an object to the chain.
func (b *builder) link(object facts.Ref, state State, text string, since time.Time) {
	b.report.Chain = append(b.report.Chain,
		Link{Object: object, State: state, Text: text, Since: timeOf(since), Depth: b.depth})
}

// under adds what f adds one step below the last link.
func (b *builder) under(f func()) {
	b.depth++
	f()
	b.depth--
}

func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
