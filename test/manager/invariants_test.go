/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/handshake"
)

// snapshot is the content of the API at one version.
type snapshot struct {
	states map[string]*volumesv1alpha1.NodeVolumeState
	nodes  map[string]*corev1.Node
	// attachments by UID.
	attachments map[types.UID]*storagev1.VolumeAttachment
	// locks by the name of their ConfigMap and the volume.
	locks map[string]map[string]exclusive.Lock
	// detached are the attachments that were Detaching once.
	detached map[types.UID]bool
}

func newSnapshot() *snapshot {
	return &snapshot{
		map[string]*volumesv1alpha1.NodeVolumeState{}, map[string]*corev1.Node{}, map[types.UID]*storagev1.VolumeAttachment{},
		map[string]map[string]exclusive.Lock{}, map[types.UID]bool{},
	}
}

func set[K comparable, V any](m map[K]V, key K, value V, gone bool) {
	if gone {
		delete(m, key)
		return
	}
	m[key] = value
}

// apply applies a change, and returns the rules that it breaks.
func (p *snapshot) apply(h apiChange) []string {
	var wrong []string
	switch o := h.object.(type) {
	case *volumesv1alpha1.NodeVolumeState:
		set(p.states, o.Name, o, h.deleted)
		for _, e := range o.Spec.Attachments {
			if e.State == volumesv1alpha1.AttachmentDetaching {
				p.detached[e.AttachmentUID] = true
			} else if p.detached[e.AttachmentUID] {
				wrong = append(wrong, fmt.Sprintf("Detaching of %s on %s was taken back", short(e.VolumeName), o.Name))
			}
		}
	case *corev1.Node:
		set(p.nodes, o.Name, o, h.deleted)
	case *storagev1.VolumeAttachment:
		before := p.attachments[o.UID]
		deleted := h.deleted || o.DeletionTimestamp != nil
		if deleted && before != nil && before.DeletionTimestamp == nil {
			wrong = append(wrong, p.checkDeletion(o)...)
		}
		set(p.attachments, o.UID, o, h.deleted)
	case *corev1.ConfigMap:
		locks, err := exclusive.Locks(o)
		if err != nil {
			wrong = append(wrong, err.Error())
		}
		set(p.locks, o.Name, locks, h.deleted)
	}
	return append(wrong, p.violations()...)
}

// checkDeletion: nothing is deleted that its node uses, or that is not Detaching.
func (p *snapshot) checkDeletion(va *storagev1.VolumeAttachment) []string {
	var wrong []string
	nvs := p.states[va.Spec.NodeName]
	if nvs == nil {
		return nil
	}
	detaching := false
	for _, e := range nvs.Spec.Attachments {
		if e.AttachmentUID != va.UID {
			continue
		}
		detaching = detaching || e.State == volumesv1alpha1.AttachmentDetaching
		if e.Evidence != nil && e.Evidence.Type != volumesv1alpha1.EvidenceAgentReleased {
			continue
		}
		if line := handshake.VolumeOf(nvs, e.VolumeName); line != nil && line.InUse {
			wrong = append(wrong, fmt.Sprintf("the attachment of %s to %s is deleted while %s uses it", short(e.VolumeName),
				nvs.Name, line.PublishedBy))
		}
	}
	if !detaching {
		wrong = append(wrong, fmt.Sprintf("attachment %s to %s is deleted without Detaching", va.UID, nvs.Name))
	}
	return wrong
}

// violations returns the rules that the present content breaks.
func (p *snapshot) violations() []string {
	var wrong []string
	usable := map[string][]string{}
	for _, node := range slices.Sorted(maps.Keys(p.states)) {
		nvs := p.states[node]
		wrong = append(wrong, listedTwice(nvs)...)
		for i := range nvs.Spec.Attachments {
			e := &nvs.Spec.Attachments[i]
			wrong = append(wrong, p.checkEntry(node, e)...)
			line := handshake.VolumeOf(nvs, e.VolumeName)
			if p.isLive(e) && line != nil && line.InUse && line.AttachmentUID == e.AttachmentUID {
				usable[e.VolumeName] = append(usable[e.VolumeName], node)
			}
		}
	}
	for _, volume := range slices.Sorted(maps.Keys(usable)) {
		if nodes := usable[volume]; len(nodes) > 1 {
			wrong = append(wrong, fmt.Sprintf("%s is usable on %q", short(volume), nodes))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.nodes)) {
		for _, v := range p.nodes[name].Status.VolumesAttached {
			if nvs := p.states[name]; nvs == nil || handshake.AttachmentOf(nvs, string(v.Name)) == nil {
				wrong = append(wrong,
					fmt.Sprintf("%s is listed in volumesAttached of %s, and has no entry there", short(string(v.Name)), name))
			}
		}
	}
	return wrong
}

// listedTwice: the schema does not keep a volume from being listed twice, so the writers have to.
func listedTwice(nvs *volumesv1alpha1.NodeVolumeState) []string {
	var wrong []string
	entries, lines := map[string]bool{}, map[string]bool{}
	for i := range nvs.Spec.Attachments {
		name := nvs.Spec.Attachments[i].VolumeName
		if entries[name] {
			wrong = append(wrong, fmt.Sprintf("%s has two entries on %s", short(name), nvs.Name))
		}
		entries[name] = true
	}
	for i := range nvs.Status.Volumes {
		name := nvs.Status.Volumes[i].VolumeName
		if lines[name] {
			wrong = append(wrong, fmt.Sprintf("%s has two lines on %s", short(name), nvs.Name))
		}
		lines[name] = true
	}
	return wrong
}

func (p *snapshot) isLive(e *volumesv1alpha1.NodeAttachment) bool {
	va := p.attachments[e.AttachmentUID]
	return e.State == volumesv1alpha1.AttachmentAttached && va != nil && va.Status.Attached && va.DeletionTimestamp == nil
}

// checkEntry: one that is Attached has a live attachment and the lock; one that is unlisted is not listed.
func (p *snapshot) checkEntry(node string, e *volumesv1alpha1.NodeAttachment) []string {
	var wrong []string
	add := func(what string) { wrong = append(wrong, fmt.Sprintf("%s on %s %s", short(e.VolumeName), node, what)) }
	if e.State == volumesv1alpha1.AttachmentAttached {
		if !p.isLive(e) {
			add("is Attached without a live attachment")
		}
		lock := p.locks[exclusive.Key(e.VolumeName).Name][e.VolumeName]
		if lock.Holder != node && lock.MovedFrom != node {
			add(fmt.Sprintf("is Attached while the lock is %+v", lock))
		}
	}
	if n := p.nodes[node]; n != nil && e.Protocol.UnlistedGeneration > 0 && listsVolume(n, e.VolumeName) {
		add("is marked as unlisted and is listed")
	}
	return wrong
}

func listsVolume(n *corev1.Node, volume string) bool {
	return slices.ContainsFunc(n.Status.VolumesAttached, func(v corev1.AttachedVolume) bool {
		return string(v.Name) == volume
	})
}

// checkHistory applies a history change by change and reports each rule that is broken, once for as long as it stays
// broken. To the first it adds the changes before it.
func checkHistory(history []apiChange) []string {
	p := newSnapshot()
	var broken []string
	before := map[string]bool{}
	for at, h := range history {
		now, found := map[string]bool{}, p.apply(h)
		if h.initial {
			continue // the objects come one by one, and all of them are one state
		}
		for _, wrong := range found {
			if !before[wrong] {
				broken = append(broken, fmt.Sprintf("at %d: %s", h.version, wrong))
				if len(broken) == 1 {
					broken[0] += "\n" + formatHistory(history[max(0, at-40):at+1])
				}
			}
			now[wrong] = true
		}
		before = now
	}
	return broken
}
