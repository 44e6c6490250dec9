/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// reportedWithin is how long a filesystem may be sick while an intent on it is Published: as long as the documents
// promise, and what a report may take that has to be written again.
const reportedWithin = 90*time.Second + 30*time.Second

// filesystemsFallSick now and then, until all trouble ceases. Then those that are left work again.
func (m *machine) filesystemsFallSick() {
	w := m.world
	for {
		time.Sleep(w.chance.between(m.name, 20*time.Second, 3*time.Minute))
		if w.ctx.Err() != nil || w.chance.ceased() {
			return
		}
		w.mu.Lock()
		m.sicken()
		w.mu.Unlock()
	}
}

// sicken one of the filesystems that are staged.
func (m *machine) sicken() {
	var staged []mounted
	for _, e := range m.mounts {
		if e.handle != "" && e.sick.IsZero() && strings.HasSuffix(e.Path, "/globalmount") {
			staged = append(staged, e)
		}
	}
	if len(staged) == 0 {
		return
	}
	w, e := m.world, staged[m.world.chance.draw(m.name, "sick filesystem").IntN(len(staged))]
	e.sick = time.Now()
	for i := range m.mounts {
		if m.mounts[i].seq == e.seq {
			m.mounts[i].sick = e.sick
		}
	}
	w.chance.reach(sickened)
	w.logLocked("on %s %s works no more", m.name, e.describe())
	agent, boot := m.agent, m.boot
	w.later(reportedWithin, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if m.agent == agent && !agent.isDead() && m.boot == boot && w.nodes[m.name] == m && !w.chance.ceased() {
			m.checkSick(e)
		}
	})
}

// checkSick: no intent is Published by a mount that has been sick for long.
func (m *machine) checkSick(e mounted) {
	w := m.world
	for _, i := range w.intents() {
		there, ok := m.at(i.Status.Path)
		same := ok && there.seq == e.seq && there.sick.Equal(e.sick)
		if i.Spec.NodeName != m.name || !same || !i.DeletionTimestamp.IsZero() {
			continue
		}
		if meta.IsStatusConditionTrue(i.Status.Conditions, volumesv1alpha1.ConditionPublished) {
			w.breaks("Ready is not what was true once: on %s intent %s is Published by %s, which works no more", m.name,
				i.Name, there.describe())
		}
		w.chance.reach(foundSick)
	}
}
