/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package relocate

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// Drain plans how the intents leave a node: to another one, by a delete (drop), or, with neither, not at all.
func Drain(r *facts.Relocation, drop bool) (*Plan, error) {
	p := &Plan{Subject: r.Subject.String(), To: r.To, Intents: []Leaving{}, Checks: []Check{}}
	d := &drain{checker: checker{r: r}, drop: drop, taken: map[string]bool{}, coming: map[string]map[string]bool{},
		mounted: sets.New[string]()}
	for i := range r.Intents {
		l, err := d.leave(&r.Intents[i])
		if err != nil {
			return nil, err
		}
		p.Intents = append(p.Intents, *l)
	}
	d.manager()
	if r.To != "" {
		d.target(r.To, d.mounted)
	}
	if n, _ := r.NodeOf(r.Subject.Name); n.Node.Found && !n.Node.Value.Spec.Unschedulable {
		d.add(Note, r.Subject.String(), "it is not cordoned: pods that use volumes may still come").Run =
			[]string{"kubectl drain " + r.Subject.Name + " --ignore-daemonsets"}
	}
	p.Checks = append(p.Checks, d.checks...)
	return p, nil
}

type drain struct {
	checker
	drop  bool
	taken map[string]bool
	// coming are the PersistentVolumes of each driver that come to the target.
	coming map[string]map[string]bool
	// mounted are the drivers that the agent of the target needs.
	mounted sets.Set[string]
}

func (d *drain) leave(source *volumesv1alpha1.VolumeAttachmentIntent) (*Leaving, error) {
	l := &Leaving{Intent: facts.Key(source), Node: source.Spec.NodeName, Progress: Progress{Source: source, Drop: true}}
	l.Next, _ = l.Progress.Next()
	c := &checker{r: d.r}
	switch m := ManagerOf(source); {
	case source.DeletionTimestamp != nil && (m != nil || d.match(source) == nil):
		c.data(source)
		c.source(source) // it leaves, and whoever deleted it wants no replacement
	case m != nil:
		c.managed(source)
	case d.r.To != "":
		if err := d.move(l, source, c); err != nil {
			return nil, err
		}
	case d.drop:
		c.data(source)
		c.source(source)
	default:
		c.add(Refused, "intent "+l.Intent, "it is lost with the node unless it goes to another node (--to) or is not needed "+
			"any more (--delete-intents)")
	}
	l.Checks = c.checks
	return l, nil
}

// move plans one intent's way to the target.
func (d *drain) move(l *Leaving, source *volumesv1alpha1.VolumeAttachmentIntent, c *checker) error {
	l.Progress.Drop = false
	var err error
	if l.Want, err = Replacement(source, d.r.To, ""); err != nil {
		return err
	}
	if match := d.match(source); match != nil {
		d.taken[string(match.UID)] = true
		l.Progress.Replacement, l.Want = match, match
	}
	l.Replacement = facts.Key(l.Want)
	l.Next, _ = l.Progress.Next()
	if pv := d.r.Persistent[l.Intent]; pv.Found {
		driver := driverOf(pv.Value)
		if d.coming[driver] == nil {
			d.coming[driver] = map[string]bool{}
		}
		c.fits(pv.Value, driver, d.r.To, true, len(d.coming[driver]))
		d.coming[driver][pv.Value.Name] = true
		d.mounted.Insert(agentDriver(source, driver))
	} else if pv.Err != nil {
		c.add(Unknown, "volume", "PersistentVolume %s cannot be read: %v", pv.Ref.Name, pv.Err)
	}
	c.sameClaim(source)
	c.source(source)
	return nil
}

// match is the replacement of an intent that exists already.
func (d *drain) match(source *volumesv1alpha1.VolumeAttachmentIntent) *volumesv1alpha1.VolumeAttachmentIntent {
	if d.r.To == "" {
		return nil
	}
	return Match(source, d.r.To, "", d.r.OnTarget, d.taken)
}

// agentDriver returns the driver if the agent mounts the volume of the intent; otherwise it needs none.
func agentDriver(intent *volumesv1alpha1.VolumeAttachmentIntent, driver string) string {
	if intent.Spec.DesiredState == volumesv1alpha1.DesiredAttached {
		return ""
	}
	return driver
}

func driverOf(pv *corev1.PersistentVolume) string {
	translated, err := volume.Translated(pv)
	if err != nil {
		return ""
	}
	return volume.DriverOf(translated)
}
