/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package catalog

import "cmp"

// Installation is Hawser itself: Gone in a cluster without it.
const Installation = "Hawser itself"

// withoutHawser is the entry in a cluster in which Kubernetes does what Hawser would do, and which has no intents.
func (e Entry) withoutHawser() Entry {
	e.Says, e.Way = cmp.Or(e.SaysAlone, e.Says), cmp.Or(e.WayAlone, e.Way)
	switch e.Acts {
	case Author:
		e.Acts = PodAuthor
	case Holder:
		e.Acts = PodHolder
	}
	return e
}
