/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/explain/live"
	"github.com/hawser-io/hawser/internal/relocate"
)

// mover moves intents. It changes intents only; the controllers release and attach the volumes.
type mover struct {
	*options
	client   client.WithWatch
	gatherer *facts.Gatherer
	plan     *relocate.Plan
	accept   bool

	followers []*live.Follower
	moves     []*movement
}

// movement is one intent that leaves its node, or that has arrived and is not Ready yet.
type movement struct {
	outcome
	// source is nil for an intent that has arrived.
	source *volumesv1alpha1.VolumeAttachmentIntent
	// want is the replacement, and replacement its UID once it exists.
	want        *volumesv1alpha1.VolumeAttachmentIntent
	replacement types.UID
	drop        bool
	// done is what was just done, until the watch shows it.
	done  relocate.Step
	ended bool
}

// run moves what can be moved, reports, and returns the exit code's error.
func (m *mover) run(ctx context.Context, name string, scopes []scope) error {
	m.load()
	err := m.move(ctx, scopes)
	findings := 0
	if len(m.moves) == 0 {
		findings = relocate.Findings(m.plan.Checks)
	}
	items := make([]outcome, len(m.moves))
	for i, v := range m.moves {
		items[i] = v.outcome
		if v.State == stays || v.State == relocate.Failed {
			findings++
		}
	}
	r := listed(name+"Result", items, findings, func(w io.Writer) { m.write(w, items) })
	for _, item := range items {
		r.intent(cmp.Or(item.Replacement, item.Intent))
	}
	return m.finish(r, err)
}

func (m *mover) write(w io.Writer, items []outcome) {
	for _, check := range m.plan.Checks {
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
}

func arrow(o outcome) string {
	if o.Replacement == "" || o.Replacement == o.Intent {
		return o.Intent
	}
	return o.Intent + " -> " + o.Replacement
}

// load turns the plan into movements. What the plan found against an intent keeps it where it is.
func (m *mover) load() {
	against := m.against(m.plan.Checks)
	for i := range m.plan.Intents {
		l := &m.plan.Intents[i]
		v := &movement{outcome: outcome{Intent: l.Intent, Replacement: l.Replacement, State: l.Next},
			source: l.Progress.Source, want: l.Want, drop: l.Progress.Drop}
		if l.Progress.Replacement != nil {
			v.replacement = l.Progress.Replacement.UID
		}
		if why := cmp.Or(m.against(l.Checks), against); why != "" && !l.Begun() {
			v.State, v.Why, v.ended = stays, why, true
		}
		m.moves = append(m.moves, v)
	}
	for _, intent := range m.plan.Waiting() {
		m.moves = append(m.moves, &movement{outcome: outcome{Intent: facts.Key(intent), Replacement: facts.Key(intent),
			State: relocate.AwaitReady}, replacement: intent.UID, want: intent})
	}
}

// against is the first check that keeps an intent from its move.
func (m *mover) against(checks []relocate.Check) string {
	for _, check := range checks {
		if check.Finding() && !(m.accept && check.Verdict == relocate.Unknown) {
			return check.About + ": " + check.Text
		}
	}
	return ""
}

// move goes on until each movement has ended. It wakes up when an intent changes.
func (m *mover) move(ctx context.Context, scopes []scope) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changed := make(chan struct{}, 1)
	for _, s := range scopes {
		options := (&client.ListOptions{}).ApplyOptions(s)
		f := live.Follow(watching, m.client, newIntents(), *options, func() {
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
		m.followers = append(m.followers, f)
	}
	for m.advance(ctx) {
		select {
		case <-ctx.Done():
			return unfinished(ctx)
		case <-changed:
		}
		for _, f := range m.followers {
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

// advance does what can be done now. It returns false once every movement has ended.
func (m *mover) advance(ctx context.Context) bool {
	present := map[types.UID]*volumesv1alpha1.VolumeAttachmentIntent{}
	for _, f := range m.followers {
		for _, object := range f.Objects() {
			present[object.GetUID()] = object.(*volumesv1alpha1.VolumeAttachmentIntent)
		}
	}
	going := false
	for _, v := range m.moves {
		if !v.ended {
			m.step(ctx, v, present)
		}
		going = going || !v.ended
	}
	return going
}

// step takes the next step of a movement. A step that changes something is done once: then the watch shows the change.
func (m *mover) step(ctx context.Context, v *movement, present map[types.UID]*volumesv1alpha1.VolumeAttachmentIntent) {
	p := relocate.Progress{Replacement: present[v.replacement], Drop: v.drop}
	if v.source != nil {
		p.Source = present[v.source.UID]
	}
	step, why := p.Next()
	if step == v.done {
		return
	}
	v.done = ""
	m.progressOf(v, step, why)
	var err error
	switch step {
	case relocate.Create:
		err = m.create(ctx, v)
	case relocate.Delete:
		err = m.delete(ctx, v)
	case relocate.Done, relocate.Failed:
		v.ended = true
		return
	default: // it waits for a change
		return
	}
	if err != nil {
		v.State, v.Why, v.ended = relocate.Failed, err.Error(), true
	}
	v.done = step
}

func (m *mover) create(ctx context.Context, v *movement) error {
	created := v.want.DeepCopy()
	if err := m.client.Create(ctx, created); err != nil {
		return fmt.Errorf("creating intent %s: %w; intent %s was not deleted", v.Replacement, err, v.Intent)
	}
	v.replacement = created.UID
	m.say("created intent %s", v.Replacement)
	return nil
}

// delete deletes the very source that the plan was made about. Right before, it reads the replacement, because a move
// the other way may have begun to delete it, and both nodes, whose agents may have ended since the plan. That of the
// source comes last: once that intent is deleted, its policy may force the detach from a machine that still writes.
func (m *mover) delete(ctx context.Context, v *movement) error {
	if !v.drop {
		replacement := &volumesv1alpha1.VolumeAttachmentIntent{}
		err := m.client.Get(ctx, client.ObjectKeyFromObject(v.want), replacement)
		if err != nil {
			return fmt.Errorf("reading intent %s: %w; intent %s was not deleted", v.Replacement, err, v.Intent)
		}
		if replacement.UID != v.replacement || replacement.DeletionTimestamp != nil {
			return fmt.Errorf("intent %s is being deleted, so intent %s was not deleted", v.Replacement, v.Intent)
		}
		if err := m.arrives(ctx, replacement); err != nil {
			return notDeleted(v, err)
		}
	}
	if err := m.acts(ctx, v.source.Spec.NodeName, explain.CannotRelease); err != nil {
		return notDeleted(v, err)
	}
	err := m.client.Delete(ctx, v.source.DeepCopy(), client.Preconditions{UID: &v.source.UID})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting intent %s: %w", v.Intent, err)
	}
	m.say("deleted intent %s; its node releases the volume", v.Intent)
	return nil
}

// notDeleted is why a source was not deleted.
func notDeleted(v *movement, why error) error {
	return fmt.Errorf("%w; intent %s was not deleted, and the same command goes on from here", why, v.Intent)
}

// arrives checks that the volume of an intent can arrive on its node.
func (m *mover) arrives(ctx context.Context, intent *volumesv1alpha1.VolumeAttachmentIntent) error {
	driver, _ := volume.Split(intent.Status.UniqueVolumeName)
	return m.acts(ctx, intent.Spec.NodeName, func(f *facts.Facts, node string) string {
		return explain.CannotArrive(f, node, driver)
	})
}

// acts checks that a manager acts, and that nothing keeps a node from what it has to do. What cannot be read has to be
// accepted.
func (m *mover) acts(ctx context.Context, node string, cannot func(f *facts.Facts, node string) string) error {
	f, err := m.gatherer.NodeNow(ctx, node)
	if err != nil {
		return fmt.Errorf("reading node %s: %w", node, err)
	}
	if explain.ManagerSilent(f) {
		return errors.New("no manager renews its Lease")
	}
	if why := cannot(f, node); why != "" {
		return errors.New(why)
	}
	if why := relocate.Unread(f, node); why != "" && !m.accept {
		return errors.New(why)
	}
	return nil
}

// progressOf reports a step once.
func (m *mover) progressOf(v *movement, step relocate.Step, why string) {
	if step == v.State && why == v.Why {
		return
	}
	v.State, v.Why = step, why
	switch step {
	case relocate.AwaitResolved, relocate.AwaitTarget, relocate.AwaitReady:
		m.say("intent %s waits: %s", v.Replacement, why)
	case relocate.AwaitReleased:
		m.say("intent %s waits for its node: %s", v.Intent, why)
	case relocate.Done:
		m.say("done: %s", arrow(v.outcome))
	case relocate.Failed:
		m.say("failed: %s: %s", arrow(v.outcome), why)
	default: // the act itself is reported
	}
}

func (m *mover) say(format string, args ...any) {
	_, _ = fmt.Fprintln(m.ErrOut, cell(fmt.Sprintf(format, args...)))
}
