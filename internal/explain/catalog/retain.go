/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package catalog

import (
	"slices"
	"strings"
)

// Retain is the reclaim policy Retain of the volume: Present if it has that, Gone if it has Delete, and Unset if its
// claim stays, with which the data stays, or if the volume does not exist.
const Retain = "the reclaim policy Retain"

// setRetain keeps the data of a volume whose claim does not stay.
const (
	setRetain = `kubectl patch pv {volume} -p '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'`
	retain    = setRetain + remark + "to keep the data"
)

// SetRetain is the command that keeps the data of a PersistentVolume.
func SetRetain(name string) string { return strings.ReplaceAll(setRetain, "{volume}", name) }

// keeping completes the way out of what uses a volume without its claim by what becomes of the data.
func (e Entry) keeping(policy State) Entry {
	switch policy {
	case Unset:
	case Present:
		e.Way += " The data stays: the reclaim policy of the volume is Retain."
	case Gone:
		e.Way = "Without its claim the data is deleted once nothing uses the volume: its reclaim policy is Delete. To keep " +
			"the data, set Retain before anything else. " + e.Way
		e.Run = slices.Concat([]string{retain}, e.Run)
	default:
		e.Way += " Without its claim the data is deleted once nothing uses the volume, unless its reclaim policy is Retain."
	}
	return e
}
