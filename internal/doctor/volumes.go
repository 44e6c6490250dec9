/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// sharedHandles finds PersistentVolumes that are one volume of the driver.
func sharedHandles(x *examination) {
	for name, all := range x.sameVolume {
		volumes := slices.DeleteFunc(slices.Clone(all), func(pv *corev1.PersistentVolume) bool {
			return pv.DeletionTimestamp != nil
		})
		if len(volumes) > 1 {
			x.sharedHandle(name, volumes)
		}
	}
}

func (x *examination) sharedHandle(name string, volumes []*corev1.PersistentVolume) {
	slices.SortStableFunc(volumes, func(a, b *corev1.PersistentVolume) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	driver, handle := volume.Split(name)
	nodes, owners, exclusive := sets.New[string](), 0, false
	var namespaces []string
	for _, pv := range volumes {
		for _, va := range x.attachmentsOf[pv.Name] {
			nodes.Insert(va.Spec.NodeName)
		}
		for _, pod := range x.usersOf(pv) {
			if pod.Spec.NodeName != "" {
				nodes.Insert(pod.Spec.NodeName)
			}
		}
		if pv.Status.Phase == corev1.VolumeBound {
			owners++
		}
		exclusive = exclusive || volume.Exclusive(pv)
		namespaces = append(namespaces, namespaceOf(pv))
	}
	severity := Notice // as where a volume was released, and gets a new PersistentVolume
	switch {
	case exclusive && owners > 1 && nodes.Len() > 1:
		severity = Danger
	case exclusive && owners > 1:
		severity = Risk
	}
	group := driver + " " + string(severity)
	if severity == Danger {
		group = name
	}
	var names []string
	for _, pv := range volumes[:min(len(volumes), mostNamed)] {
		names = append(names, pv.Name)
	}
	// Since the second one there are several.
	f := x.find(about{severity: severity, reason: catalog.HandleShared, object: refOf(facts.KindVolume, volumes[0]),
		claim: x.claimOf(volumes[0]), since: volumes[1].CreationTimestamp.Time, namespaces: namespaces, group: group,
		places: map[string]string{"volumes": strings.Join(names, " ")},
		detail: fmt.Sprintf("volume handle %s of driver %s; also %s%s", handle, driver, namesOf(volumes[1:]),
			onNodes(nodes))})
	f.Count = len(volumes)
	for _, pv := range volumes[1:] {
		f.Others = named(f.Others, Other{refOf(facts.KindVolume, pv), x.claimOf(pv)})
	}
}

func onNodes(nodes sets.Set[string]) string {
	if nodes.Len() == 0 {
		return ""
	}
	return "; used on " + strings.Join(sets.List(nodes), ", ")
}

// failedVolumes finds PersistentVolumes that could not be deleted, and those that are deleted under their claim.
func failedVolumes(x *examination) {
	for _, pv := range x.c.Volumes.Items {
		claim := x.claimOf(pv)
		f := about{object: refOf(facts.KindVolume, pv), claim: claim, namespaces: []string{namespaceOf(pv)}}
		switch {
		case pv.Status.Phase == corev1.VolumeFailed:
			f.severity, f.reason, f.detail = Notice, catalog.VolumeFailed, pv.Status.Message
			f.since, f.group = phaseSince(pv), pv.Spec.StorageClassName
		case pv.DeletionTimestamp != nil && claim != nil && x.bound(pv):
			f.severity, f.reason, f.since = Risk, catalog.VolumeDeleting, pv.DeletionTimestamp.Time
			f.detail = "reclaim policy " + string(pv.Spec.PersistentVolumeReclaimPolicy)
		default:
			continue
		}
		if x.old(f.since, stepTakes) {
			x.find(f)
		}
	}
}

// bound reports whether the claim of a PersistentVolume exists and is not being deleted.
func (x *examination) bound(pv *corev1.PersistentVolume) bool {
	claim := x.claims[keyOf(x.claimOf(pv))]
	return claim != nil && claim.DeletionTimestamp == nil && claim.Spec.VolumeName == pv.Name
}

// phaseSince is when a PersistentVolume came into its phase; zero if that is not known.
func phaseSince(pv *corev1.PersistentVolume) time.Time {
	if t := pv.Status.LastPhaseTransitionTime; t != nil {
		return t.Time
	}
	return time.Time{}
}
