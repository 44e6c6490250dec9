/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	identity "github.com/hawser-io/hawser/internal/machine"
)

// Machines of one node name. The driver knows all of them by that name: what it opens for the node, each of them
// reaches.

// identityFile is on the machine's disk, as the firmware and the host's installation have it elsewhere.
func (m *machine) identityFile() string { return filepath.Join(m.dir, "machine-identity") }

// identify the machine: two that differ in hardware are two, whatever is on their disks.
func (m *machine) identify(hardware, installation int) {
	m.hardware, m.installation = hardware, installation
	uuid, id := m.identifiers()
	m.world.must(os.WriteFile(m.identityFile(), []byte(uuid+"\n"+id+"\n"), 0o600))
}

func (m *machine) identifiers() (systemUUID, machineID string) {
	return fmt.Sprintf("%032x", 0xabcde0+m.hardware), fmt.Sprintf("%032x", 0xfedcb0+m.installation)
}

// register the machine as the one of its Node.
func (w *World) register(m *machine) {
	node := w.nodeLocked(m.name).DeepCopy()
	node.Status.NodeInfo.SystemUUID, node.Status.NodeInfo.MachineID = m.identifiers()
	w.by = "the kubelet"
	_, err := w.api.update(node, true)
	w.must(err)
}

// all machines that are on: those that act for their nodes, and those that were cut off or replaced and go on.
func (w *World) all() []*machine {
	var all []*machine
	for _, name := range slices.Sorted(keys(w.nodes)) {
		all = append(all, w.nodes[name])
	}
	return append(all, w.away...)
}

// open the volume for the node.
func (w *World) open(node, handle string, uid types.UID) {
	for _, m := range w.all() {
		if d, there := m.devices[handle]; m.name == node && (!there || d.uid != uid) {
			m.devices[handle] = m.newDevice(uid)
		}
	}
}

// succeed has another machine, or another installation, come under the node's name.
func (w *World) succeed(node string) {
	kinds := []fault{partitioned, partitioned, replaced, reinstalled}
	kind := kinds[w.chance.draw("wish", "machine").IntN(len(kinds))]
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.nodes[node]
	if old.agent == nil || old.silent || len(w.nodeLocked(node).Spec.Taints) > 0 || w.isFenced(node) || w.takenFrom(node) {
		return // what an administrator has said of the node would be said of a machine that goes on
	}
	w.chance.reach(kind)
	w.logLocked("another machine comes under the name %s: %s", node, kind)
	w.installations++
	dir := fmt.Sprintf("%s-%d", node, w.installations)
	if kind == reinstalled { // paths stay what they were
		dir = filepath.Base(old.dir)
		w.must(os.Rename(old.dir, fmt.Sprintf("%s-before-%d", old.dir, w.installations)))
	}
	m := w.machineIn(node, dir)
	m.identify(w.installations, w.installations)
	for handle, d := range old.devices {
		m.devices[handle] = m.newDevice(d.uid)
	}
	w.nodes[node] = m
	switch kind {
	case reinstalled:
		m.identify(old.hardware, w.installations)
		old.powerOff()
	case replaced:
		old.powerOff()
	default:
		w.away = append(w.away, old)
		if w.chance.draw("wish", "cut off").IntN(2) == 0 {
			old.silent = true
			old.life++
			old.agent.kill()
		}
		w.later(w.chance.between(node, time.Minute, 4*time.Minute), func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			old.powerOff()
			w.check()
		})
	}
	w.register(m)
	w.check()
	go m.launchAfter(w.chance.between(node, time.Second, time.Minute))
}

// takenFrom: something was taken away from the node without the word of its agent.
func (w *World) takenFrom(node string) bool {
	state := w.state(node)
	return len(state.Annotations) > 0 || slices.ContainsFunc(state.Spec.Attachments,
		func(e volumesv1alpha1.NodeAttachment) bool { return w.forced[e.AttachmentUID] })
}

// powerOff the machine for good.
func (m *machine) powerOff() {
	m.world.logLocked("a machine of the name %s is powered off", m.name)
	m.silent = true
	m.life++
	m.agent.kill()
	m.kubelet.kill()
	m.mounts, m.devices, m.busy = nil, map[string]device{}, map[string]*call{}
	m.world.away = slices.DeleteFunc(m.world.away, func(o *machine) bool { return o == m })
}

// powerOffShown is what an administrator does before a word about the whole node: it is about the machine that the node
// state shows. That one may be cut off while its successor has not reported yet.
func (w *World) powerOffShown(node string) {
	shown := w.state(node).Status.Machine
	for _, m := range slices.Clone(w.away) {
		own, err := identity.Read(m.identityFile())
		w.must(err)
		if m.name == node && identity.Compare(shown, own) != identity.Other {
			m.powerOff()
		}
	}
}

// endOthers has an administrator declare released what machines use that are off by now, again and again.
func (w *World) endOthers() {
	w.mu.Lock()
	for _, node := range slices.Sorted(keys(w.nodes)) {
		if !slices.ContainsFunc(w.away, func(m *machine) bool { return m.name == node }) {
			w.declareOthers(node)
		}
	}
	w.mu.Unlock()
	w.later(30*time.Second, w.endOthers)
}

// declareOthers declares what other machines of the node's name use: its agent names them.
func (w *World) declareOthers(node string) {
	state := w.state(node).DeepCopy()
	changed := false
	for _, line := range state.Status.Volumes {
		key := volumesv1alpha1.DeclaredReleasedPrefix + string(line.AttachmentUID)
		if line.Machine == nil || state.Annotations[key] != "" {
			continue
		}
		w.chance.reach(othersDeclared)
		w.logLocked("somebody declares %s of another machine of the name %s released", line.AttachmentUID, node)
		metav1.SetMetaDataAnnotation(&state.ObjectMeta, key, "powered off")
		changed = true
	}
	if !changed {
		return
	}
	w.by = "somebody"
	_, err := w.api.update(state, false)
	w.must(err)
}
