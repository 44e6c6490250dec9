/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package relocate

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// Plan is what a move of a claim, or a drain of a node, would do and meet.
type Plan struct {
	// Subject is the claim or the node.
	Subject string `json:"subject"`
	Volume  string `json:"volume,omitempty"`
	Driver  string `json:"driver,omitempty"`
	To      string `json:"to,omitempty"`
	// Intents that leave, each with what it needs.
	Intents []Leaving `json:"intents"`
	// Checks of what all of them need.
	Checks []Check `json:"checks"`
	// Arrived are intents that are where they shall be, and may still wait.
	Arrived []string `json:"arrived,omitempty"`

	arrived []*volumesv1alpha1.VolumeAttachmentIntent
}

// Leaving is one intent that leaves its node.
type Leaving struct {
	Intent string `json:"intent"`
	Node   string `json:"node"`
	// Replacement is the intent on the other node; empty for none.
	Replacement string  `json:"replacement,omitempty"`
	Next        Step    `json:"next"`
	Checks      []Check `json:"checks,omitempty"`

	// Progress is the state of the intent, and Want the replacement to create; nil if there shall be none.
	Progress Progress                                `json:"-"`
	Want     *volumesv1alpha1.VolumeAttachmentIntent `json:"-"`
}

// Movable reports whether nothing stands against the move. A move that has begun goes on in any case.
func (l *Leaving) Movable() bool { return l.Begun() || Findings(l.Checks) == 0 }

// Begun reports whether the source is released already.
func (l *Leaving) Begun() bool {
	p := l.Progress
	return p.Source != nil && p.Source.DeletionTimestamp != nil && (p.Drop || p.Replacement != nil)
}

// Findings counts what a person has to look at.
func (p *Plan) Findings() int {
	n := Findings(p.Checks)
	for i := range p.Intents {
		n += Findings(p.Intents[i].Checks)
	}
	return n
}

// Waiting are the intents that have arrived.
func (p *Plan) Waiting() []*volumesv1alpha1.VolumeAttachmentIntent { return p.arrived }

// Move plans the move of a claim to a node. From limits it to the intents of one node; empty is all nodes, which is an
// error if there are several. Name is that of the replacement; empty is one made of the name of the intent.
func Move(r *facts.Relocation, from, name string) (*Plan, error) {
	v := &r.Volumes[0]
	p := &Plan{Subject: r.Subject.String(), Volume: v.Volume.Ref.Name, Driver: v.Driver, To: r.To,
		Intents: []Leaving{}, Checks: []Check{}}
	sources, err := sourcesOf(r, from)
	if err != nil {
		return nil, err
	}
	if name != "" && len(sources) > 1 {
		return nil, fmt.Errorf("--name is for one intent, and %d would be moved", len(sources))
	}
	taken := map[string]bool{}
	for _, source := range sources {
		leaving, err := leave(r, source, r.To, name, taken)
		if err != nil {
			return nil, err
		}
		p.Intents = append(p.Intents, *leaving)
	}
	p.arrivals(r, taken)
	all := &checker{r: r, checks: p.Checks}
	all.claim(p)
	p.Checks = all.checks
	return p, nil
}

// arrivals are the intents on the target that are not the replacement of a source that is left.
func (p *Plan) arrivals(r *facts.Relocation, taken map[string]bool) {
	for i := range r.Intents {
		intent := &r.Intents[i]
		if intent.Spec.NodeName == r.To && !taken[string(intent.UID)] && intent.DeletionTimestamp == nil &&
			ManagerOf(intent) == nil {
			p.arrived = append(p.arrived, intent)
			p.Arrived = append(p.Arrived, facts.Key(intent))
		}
	}
}

// sourcesOf are the intents to move.
func sourcesOf(r *facts.Relocation, from string) ([]*volumesv1alpha1.VolumeAttachmentIntent, error) {
	var sources []*volumesv1alpha1.VolumeAttachmentIntent
	var nodes []string
	for i := range r.Intents {
		intent := &r.Intents[i]
		if intent.Spec.NodeName == r.To || from != "" && intent.Spec.NodeName != from {
			continue
		}
		sources = append(sources, intent)
		if !slices.Contains(nodes, intent.Spec.NodeName) {
			nodes = append(nodes, intent.Spec.NodeName)
		}
	}
	if len(nodes) > 1 {
		return nil, fmt.Errorf("%s is wanted on nodes %s: choose one with --from", r.Subject, strings.Join(nodes, ", "))
	}
	return sources, nil
}

// leave plans how one intent leaves its node.
func leave(r *facts.Relocation, source *volumesv1alpha1.VolumeAttachmentIntent, to, name string, taken map[string]bool,
) (*Leaving, error) {
	l := &Leaving{Intent: facts.Key(source), Node: source.Spec.NodeName, Progress: Progress{Source: source}}
	c := &checker{r: r}
	if !c.managed(source) {
		var err error
		if l.Want, err = Replacement(source, to, name); err != nil {
			return nil, err
		}
		if match := Match(source, to, name, r.Intents, taken); match != nil {
			taken[string(match.UID)] = true
			l.Progress.Replacement, l.Want = match, match
		}
		l.Replacement = facts.Key(l.Want)
		c.sameClaim(source)
		c.source(source)
	}
	l.Checks = c.checks
	l.Next, _ = l.Progress.Next()
	return l, nil
}

// claim checks what concerns the claim as a whole: its volume, the target, and who else has it.
func (c *checker) claim(p *Plan) {
	v := &c.r.Volumes[0]
	if len(p.Intents) == 0 && len(p.Arrived) == 0 {
		c.add(Refused, p.Subject, "no intent wants it, so there is none to move%s", followed(c.r)).Run =
			[]string{"kubectl hawser why pvc " + v.Claim.Ref.Name + " -n " + v.Claim.Ref.Namespace}
	}
	c.manager()
	mounted := sets.New[string]()
	for i := range p.Intents {
		mounted.Insert(agentDriver(p.Intents[i].Progress.Source, v.Driver))
	}
	c.target(p.To, mounted)
	switch {
	case v.Volume.Found:
		c.fits(v.Volume.Value, v.Driver, p.To, v.NeedsAttach(), 0)
	case v.Volume.Err != nil:
		c.add(Unknown, "volume", "PersistentVolume %s cannot be read: %v", v.Volume.Ref.Name, v.Volume.Err)
	default:
		c.add(Note, "volume", "the claim is not bound yet")
	}
	c.holders(p, v)
}

// followed names the pods that a volume without intents follows.
func followed(r *facts.Relocation) string {
	var pods []string
	for i := range r.Users.Items {
		pods = append(pods, r.Users.Items[i].Name)
	}
	if len(pods) == 0 {
		return "; create an intent for the node"
	}
	return "; the volume follows its pods: " + strings.Join(pods, ", ")
}

// holders checks who has an exclusive volume, beside the nodes that release it by this move.
func (c *checker) holders(p *Plan, v *facts.Volume) {
	if !v.Exclusive {
		if v.Volume.Found {
			c.add(OK, "holder", "several nodes may use the volume at once")
		}
		return
	}
	leaving := []string{p.To}
	for i := range p.Intents {
		leaving = append(leaving, p.Intents[i].Node)
	}
	held := []string{}
	if v.Elsewhere.Err != nil {
		c.add(Unknown, "holder", "the VolumeAttachments cannot be read: %v", v.Elsewhere.Err)
	}
	for i := range v.Elsewhere.Items {
		held = append(held, v.Elsewhere.Items[i].Spec.NodeName)
	}
	if v.Lock.Value.Holder != "" {
		held = append(held, v.Lock.Value.Holder)
	}
	slices.Sort(held)
	for _, node := range slices.Compact(held) {
		if slices.Contains(leaving, node) {
			c.add(OK, "holder", "node %s holds the volume", node)
			continue
		}
		c.add(Hangs, "holder", "node %s holds the volume too, and no intent that is moved is there", node).Run =
			[]string{"kubectl hawser why node " + node}
	}
	switch {
	case len(held) > 0 || v.Elsewhere.Err != nil:
	case v.Lock.Err != nil && !facts.Absent(v.Lock.Err):
		c.add(Unknown, "holder", "the lock of the volume cannot be read: %v", v.Lock.Err)
	default:
		c.add(OK, "holder", "no node holds the volume")
	}
}
