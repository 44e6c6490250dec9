/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package catalog

import "slices"

// Retain is the reclaim policy Retain of the volume: Present if it has that, Gone if it has Delete.
const Retain = "the reclaim policy Retain"

// retain keeps the data of a volume whose claim is deleted.
const retain = `kubectl patch pv {volume} -p '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'` +
	"   # to keep the data"

// keeping completes the way out of a claim that is being deleted by what becomes of its data.
func (e Entry) keeping(policy State) Entry {
	switch policy {
	case Present:
		e.Way += " The data stays: the reclaim policy of the volume is Retain."
	case Gone:
		e.Way = "The data is deleted with the claim, because the reclaim policy of the volume is Delete. To keep the data, " +
			"set Retain before anything else. " + e.Way
		e.Run = slices.Concat([]string{retain}, e.Run)
	default:
		e.Way += " The data is deleted with the claim, unless the reclaim policy of the volume is Retain."
	}
	return e
}
