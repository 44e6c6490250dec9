/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package facts

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// Ending is whether the data of a PersistentVolume is deleted once nothing uses it any more.
type Ending struct {
	// Why it is deleted; empty if it stays, or if that is not known.
	Why string
	// Unread is why that is not known.
	Unread string
}

// Endings reads the claims of PersistentVolumes with the reclaim policy Delete, which their data ends with. What is not
// among them stays.
func (g *Gatherer) Endings(ctx context.Context, volumes map[string]*corev1.PersistentVolume) map[string]Ending {
	owners := map[string]Ref{}
	for name, pv := range volumes {
		owner := pv.Spec.ClaimRef
		if pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete && owner != nil && owner.UID != "" {
			owners[name] = Ref{KindClaim, owner.Namespace, owner.Name}
		}
	}
	endings := map[string]Ending{}
	if len(owners) <= fewVolumes {
		for name, owner := range owners {
			claim := get[corev1.PersistentVolumeClaim](ctx, g, KindClaim, owner.Namespace, owner.Name)
			endings[name] = Ending{Unread: claim.Unread()}
			if claim.Unread() == "" {
				endings[name] = ending(volumes[name], claim.Value)
			}
		}
		return endings
	}
	all, err := list[corev1.PersistentVolumeClaimList](ctx, g, "claims")
	claims := map[Ref]*corev1.PersistentVolumeClaim{}
	for i := range all.Items {
		claims[Ref{KindClaim, all.Items[i].Namespace, all.Items[i].Name}] = &all.Items[i]
	}
	for name, owner := range owners {
		endings[name] = ending(volumes[name], claims[owner])
		if err != nil {
			endings[name] = Ending{Unread: owner.String() + " cannot be read: " + err.Error()}
		}
	}
	return endings
}

// ending of a PersistentVolume with the reclaim policy Delete. claim is the one of the name that it belongs to; nil if
// there is none.
func ending(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) Ending {
	var what string
	switch {
	case Stays(claim, pv):
		return Ending{}
	case claim == nil || claim.UID != pv.Spec.ClaimRef.UID:
		what = " is gone"
	case claim.DeletionTimestamp != nil:
		what = " is being deleted"
	default:
		what = " has another volume"
	}
	return Ending{Why: "claim " + ClaimName(pv) + what + ", and the data is deleted once nothing uses the volume " +
		"(reclaim policy Delete)"}
}

// Stays reports whether the claim of a PersistentVolume stays, and the data with it. claim may be nil, or another one
// of its name.
func Stays(claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) bool {
	return claim != nil && claim.DeletionTimestamp == nil && claim.Spec.VolumeName == pv.Name &&
		pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.UID == claim.UID
}
