/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"context"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/explain/live"
	"github.com/hawser-io/hawser/internal/relocate"
)

// carrier moves intents. It changes intents only; the controllers release and attach the volumes.
type carrier struct {
	*options
	client client.WithWatch
	plan   *relocate.Plan
	accept bool

	followers []*live.Follower
	trips     []*trip
}

// trip is one intent on its way.
type trip struct {
	outcome
	// source and replacement are the UIDs; empty for none.
	source, replacement types.UID
	want                *volumesv1alpha1.VolumeAttachmentIntent
	drop                bool
	// created and deleted hold until the watch shows the same.
	created *volumesv1alpha1.VolumeAttachmentIntent
	deleted bool
	ended   bool
}

// run moves what can be moved, reports, and returns the exit code's error.
func (c *carrier) run(ctx context.Context, name string, scopes []scope) error {
	c.load()
	err := c.carry(ctx, scopes)
	findings := 0
	if len(c.trips) == 0 {
		findings = relocate.Findings(c.plan.Checks)
	}
	items := make([]outcome, len(c.trips))
	for i, t := range c.trips {
		items[i] = t.outcome
		if t.State == stays || t.State == relocate.Failed {
			findings++
		}
	}
	return c.finish(listed(name+"Result", items, findings, func(w io.Writer) {
		for _, check := range c.plan.Checks {
			if check.Finding() {
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", check.Verdict, check.About, cell(check.Text))
			}
		}
		for _, item := range items {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", item.State, arrow(item), cell(item.Why))
		}
		if len(items) == 0 {
			_, _ = fmt.Fprintln(w, "There is nothing to move.")
		}
	}), err)
}

func arrow(o outcome) string {
	if o.Replacement == "" || o.Replacement == o.Intent {
		return o.Intent
	}
	return o.Intent + " -> " + o.Replacement
}

// load turns the plan into trips. What the plan found against an intent keeps it where it is.
func (c *carrier) load() {
	against := c.against(c.plan.Checks)
	for i := range c.plan.Intents {
		l := &c.plan.Intents[i]
		t := &trip{outcome: outcome{Intent: l.Intent, Replacement: l.Replacement, State: l.Next},
			source: l.Hop.Source.UID, want: l.Want, drop: l.Hop.Drop}
		if l.Hop.Replacement != nil {
			t.replacement = l.Hop.Replacement.UID
		}
		why := against
		if own := c.against(l.Checks); own != "" {
			why = own
		}
		if why != "" && !l.Begun() {
			t.State, t.Why, t.ended = stays, why, true
		}
		c.trips = append(c.trips, t)
	}
	for _, intent := range c.plan.Waiting() {
		c.trips = append(c.trips, &trip{outcome: outcome{Intent: facts.Key(intent), Replacement: facts.Key(intent),
			State: relocate.AwaitReady}, replacement: intent.UID, want: intent})
	}
}

// against is the first check that keeps an intent from its move.
func (c *carrier) against(checks []relocate.Check) string {
	for _, check := range checks {
		if check.Finding() && !(c.accept && check.Verdict == relocate.Unknown) {
			return check.About + ": " + check.Text
		}
	}
	return ""
}

// carry goes on until each trip has ended. It wakes up when an intent changes.
func (c *carrier) carry(ctx context.Context, scopes []scope) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changed := make(chan struct{}, 1)
	for _, s := range scopes {
		options := (&client.ListOptions{}).ApplyOptions(s)
		f := live.Follow(watching, c.client, newIntents(), *options, func() {
			select {
			case changed <- struct{}{}:
			default: // a change is announced already
			}
		})
		if err := f.Wait(ctx); err != nil {
			return unfinished(ctx)
		}
		if err := f.Refused(); err != nil {
			return fmt.Errorf("watching intents: %w", err)
		}
		c.followers = append(c.followers, f)
	}
	for c.advance(ctx) {
		select {
		case <-ctx.Done():
			return unfinished(ctx)
		case <-changed:
		}
		for _, f := range c.followers {
			if err := f.Refused(); err != nil {
				return fmt.Errorf("watching intents: %w; %w", err, errInterrupted)
			}
		}
	}
	if ctx.Err() != nil {
		return unfinished(ctx)
	}
	return nil
}

// advance does what can be done now. It returns false once every trip has ended.
func (c *carrier) advance(ctx context.Context) bool {
	present := map[types.UID]*volumesv1alpha1.VolumeAttachmentIntent{}
	for _, f := range c.followers {
		for _, object := range f.Objects() {
			present[object.GetUID()] = object.(*volumesv1alpha1.VolumeAttachmentIntent)
		}
	}
	going := false
	for _, t := range c.trips {
		for again := true; again && !t.ended; {
			again = c.step(ctx, t, present)
		}
		going = going || !t.ended
	}
	return going
}

// step takes the next step of a trip. It returns true if another one may follow at once.
func (c *carrier) step(ctx context.Context, t *trip, present map[types.UID]*volumesv1alpha1.VolumeAttachmentIntent,
) bool {
	step, why := t.hop(present).Next()
	c.progressOf(t, step, why)
	switch step {
	case relocate.Create:
		return t.ends(c.create(ctx, t))
	case relocate.Delete:
		return t.ends(c.delete(ctx, t))
	case relocate.Done, relocate.Failed:
		t.ended = true
	default: // it waits for a change
	}
	return false
}

// ends ends a trip that has an error.
func (t *trip) ends(err error) bool {
	if err != nil {
		t.State, t.Why, t.ended = relocate.Failed, err.Error(), true
	}
	return err == nil
}

// hop is the state of a trip, with what this command did and the watch may not show yet.
func (t *trip) hop(present map[types.UID]*volumesv1alpha1.VolumeAttachmentIntent) relocate.Hop {
	h := relocate.Hop{Source: present[t.source], Replacement: present[t.replacement], Drop: t.drop}
	if t.created != nil {
		if h.Replacement != nil {
			t.created = nil // the watch has it; when it is gone later, it is gone
		} else {
			h.Replacement = t.created
		}
	}
	if t.deleted && h.Source != nil && h.Source.DeletionTimestamp == nil {
		h.Source = h.Source.DeepCopy()
		now := h.Source.CreationTimestamp
		h.Source.DeletionTimestamp = &now
	}
	return h
}

func (c *carrier) create(ctx context.Context, t *trip) error {
	t.created = t.want.DeepCopy()
	if err := c.client.Create(ctx, t.created); err != nil {
		return fmt.Errorf("creating intent %s: %w; intent %s was not deleted", t.Replacement, err, t.Intent)
	}
	t.replacement = t.created.UID
	c.say("created intent %s", t.Replacement)
	return nil
}

// delete deletes the very source that the plan was made about. It first reads the replacement: a move the other way may
// have begun to delete it.
func (c *carrier) delete(ctx context.Context, t *trip) error {
	if !t.drop {
		replacement := &volumesv1alpha1.VolumeAttachmentIntent{}
		err := c.client.Get(ctx, client.ObjectKeyFromObject(t.want), replacement)
		if err != nil {
			return fmt.Errorf("reading intent %s: %w; intent %s was not deleted", t.Replacement, err, t.Intent)
		}
		if replacement.UID != t.replacement || replacement.DeletionTimestamp != nil {
			return fmt.Errorf("intent %s is being deleted, so intent %s was not deleted", t.Replacement, t.Intent)
		}
	}
	source := &volumesv1alpha1.VolumeAttachmentIntent{}
	for _, l := range c.plan.Intents {
		if l.Hop.Source.UID == t.source {
			source = l.Hop.Source
		}
	}
	err := c.client.Delete(ctx, source.DeepCopy(), client.Preconditions{UID: &t.source})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting intent %s: %w", t.Intent, err)
	}
	t.deleted = true
	c.say("deleted intent %s; its node releases the volume", t.Intent)
	return nil
}

// progressOf reports a step once.
func (c *carrier) progressOf(t *trip, step relocate.Step, why string) {
	if step == t.State && why == t.Why {
		return
	}
	t.State, t.Why = step, why
	switch step {
	case relocate.AwaitResolved, relocate.AwaitTarget, relocate.AwaitReady:
		c.say("intent %s waits: %s", t.Replacement, why)
	case relocate.AwaitReleased:
		c.say("intent %s waits for its node: %s", t.Intent, why)
	case relocate.Done:
		c.say("done: %s", arrow(t.outcome))
	case relocate.Failed:
		c.say("failed: %s: %s", arrow(t.outcome), why)
	default: // the act itself is reported
	}
}

func (c *carrier) say(format string, args ...any) { _, _ = fmt.Fprintf(c.ErrOut, format+"\n", args...) }
