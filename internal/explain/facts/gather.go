/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package facts

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// Reader reads from an API server.
type Reader interface {
	client.Reader
	// Installed reports whether the API server serves Hawser's kinds.
	Installed(ctx context.Context) (bool, error)
	// Attachments are all VolumeAttachments in short. The API server cannot select those of a volume or a node.
	Attachments(ctx context.Context) ([]Attachment, error)
}

// Attachment is a VolumeAttachment in short.
type Attachment struct {
	Name, Driver, Node string
	// Volume is the name of the PersistentVolume.
	Volume string
	// Attached is what the driver's attacher has reported.
	Attached bool
}

// page is how many objects of a list are read at once, and statePage how many node states: one may have a megabyte.
const (
	page      = 500
	statePage = 100
)

// mostHolders is how many holders of one volume are read.
const mostHolders = 8

// Gatherer reads the facts about one subject. It reads each object once.
type Gatherer struct {
	Reader Reader
	// System is Hawser's namespace. It is found if it is empty.
	System string
	Now    func() time.Time
	// OnlyVolumes is true if the Reader has no pods but those with volumes.
	OnlyVolumes bool
	// Progress is called with what is read next; nil for no progress.
	Progress func(what string)

	known map[Ref]any
	facts *Facts
	// attachments are read once for a subject.
	attachments func(context.Context) ([]Attachment, error)
}

// ErrSubject means that the subject itself cannot be read.
type ErrSubject struct {
	Ref Ref
	Err error
}

func (e *ErrSubject) Error() string { return e.Ref.String() + ": " + e.Err.Error() }

func (e *ErrSubject) Unwrap() error { return e.Err }

// Missing is why there is no node state.
func (n Node) Missing() *ErrSubject {
	if n.State.Err == nil {
		return &ErrSubject{Ref{Kind: KindState, Name: n.Name}, &meta.NoKindMatchError{
			GroupKind: volumesv1alpha1.GroupVersion.WithKind(KindState).GroupKind()}}
	}
	return &ErrSubject{n.State.Ref, n.State.Err}
}

// begin prepares the facts about one subject.
func (g *Gatherer) begin(ctx context.Context, subject Ref) error {
	installed, err := g.Reader.Installed(ctx)
	if err != nil {
		return err
	}
	g.known, g.attachments = map[Ref]any{}, once(g.Reader.Attachments)
	g.findSystem(ctx, installed)
	g.facts = &Facts{Now: g.Now(), Subject: subject, Installed: installed, System: g.System}
	return nil
}

// once remembers the first answer.
func once(read func(context.Context) ([]Attachment, error)) func(context.Context) ([]Attachment, error) {
	var all []Attachment
	var err error
	asked := false
	return func(ctx context.Context) ([]Attachment, error) {
		if !asked {
			all, err = read(ctx)
			asked = true
		}
		return all, err
	}
}

func (g *Gatherer) progress(what string) {
	if g.Progress != nil {
		g.Progress(what)
	}
}

// get reads one object, unless it was read before.
func get[T any, P interface {
	*T
	client.Object
}](ctx context.Context, g *Gatherer, kind, namespace, name string) Object[P] {
	ref := Ref{kind, namespace, name}
	if name == "" {
		return Object[P]{Ref: ref}
	}
	if known, ok := g.known[ref]; ok {
		return known.(Object[P])
	}
	g.progress(ref.String())
	o := Object[P]{Ref: ref, Value: P(new(T))}
	o.Err = g.Reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o.Value)
	if o.Found = o.Err == nil; !o.Found {
		o.Value = nil
	}
	if g.known == nil {
		g.known = map[Ref]any{}
	}
	g.known[ref] = o
	return o
}

// list reads all of a list, in pages: an object that is left out may be the one that matters.
func list[L any, P interface {
	*L
	client.ObjectList
}](ctx context.Context, g *Gatherer, what string, options ...client.ListOption) (*L, error) {
	options = append([]client.ListOption{client.Limit(page)}, options...)
	var all []runtime.Object
	for next := ""; ; {
		g.progress(what)
		found := P(new(L)) // each page has its own memory
		err := g.Reader.List(ctx, found, append(slices.Clip(options), client.Continue(next))...)
		if err != nil {
			return new(L), err
		}
		items, err := meta.ExtractList(found)
		if err != nil {
			return new(L), err
		}
		all = append(all, items...)
		if next = found.GetContinue(); next == "" {
			return (*L)(found), meta.SetList(found, all)
		}
	}
}

// events are those about one object, the newest last.
func (g *Gatherer) events(ctx context.Context, namespace string, uid types.UID) List[Event] {
	if uid == "" {
		return List[Event]{}
	}
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	found, err := list[corev1.EventList](ctx, g, "events", client.InNamespace(namespace), client.MatchingFieldsSelector{
		Selector: fields.OneTermEqualSelector("involvedObject.uid", string(uid))})
	items := make([]*corev1.Event, len(found.Items))
	for i := range found.Items {
		items[i] = &found.Items[i]
	}
	return List[Event]{Err: err, Items: Events(items)}
}

// Events are what a report needs of events, the newest last.
func Events(found []*corev1.Event) []Event {
	var events []Event
	for _, e := range found {
		events = append(events, eventOf(e))
	}
	slices.SortStableFunc(events, func(a, b Event) int { return a.Last.Compare(b.Last) })
	return events
}

// eventOf reads both forms of an event: with a count, and with a series.
func eventOf(e *corev1.Event) Event {
	event := Event{Reason: e.Reason, Message: strings.TrimSpace(e.Message), Warning: e.Type == corev1.EventTypeWarning,
		Count: max(1, e.Count)}
	times := []time.Time{e.CreationTimestamp.Time, e.EventTime.Time, e.FirstTimestamp.Time, e.LastTimestamp.Time}
	if e.Series != nil {
		event.Count = max(event.Count, e.Series.Count)
		times = append(times, e.Series.LastObservedTime.Time)
	}
	for _, t := range times {
		if t.IsZero() {
			continue
		}
		if event.First.IsZero() || t.Before(event.First) {
			event.First = t
		}
		if t.After(event.Last) {
			event.Last = t
		}
	}
	return event
}

// Absent reports whether an error means that there is no such object.
func Absent(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// NoKind reports whether an error means that the API server does not serve the kind.
func NoKind(err error) bool {
	return meta.IsNoMatchError(err) ||
		apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// Denied reports whether the user may not read it.
func Denied(err error) bool { return apierrors.IsForbidden(err) }
