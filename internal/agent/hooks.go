/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/mount"
)

// hooks are what the observer of the kubelet needs of the agent's volumes.
type hooks struct{ agent *Agent }

var _ kubelet.Volumes = hooks{}

// Changed requeues the volume: what waits for the mount table tries again.
func (h hooks) Changed(volume string) { h.agent.requeue(volume, operation.MountsChanged) }

// Inherit has the agent's own release ask about the devices too.
func (h hooks) Inherit(volume string, devices []mount.Device) {
	h.agent.volume(volume).Inherit(devices)
}

// NoteMountTableRelease notes that the mount table alone shows the end of the volume's use.
func (h hooks) NoteMountTableRelease(volume string, attachment types.UID) {
	h.agent.node.NoteMountTableRelease(volume, attachment)
}

// AwaitHolder requeues the volume once the first process that holds its device has ended.
func (h hooks) AwaitHolder(volume string, held *mount.HeldError) { h.agent.holders.Await(volume, held) }

// holderEnded takes in that a process has ended which held the devices of volumes.
func (a *Agent) holderEnded(volumes []string) {
	a.observer.ObserveSoon()
	for _, name := range volumes {
		a.requeue(name, operation.HolderEnded)
	}
}

// requeue has the volume reconciled, and what waits for the change tried again.
func (a *Agent) requeue(volume string, changed operation.ChangeKind) {
	a.volume(volume).NoteChange(changed)
	a.queue.add(volume)
}
