/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"fmt"
)

// Limit is how many volumes of a driver a node can have, as its CSINode says, and how many it has.
type Limit struct {
	// Known: there is a limit, and the volume would count against it.
	Known bool
	Max   int
	// Used counts the attachments to the node that are not gone, including those of others, and those that are about to
	// be made.
	Used int
	// Ahead are the volumes that have waited for longer.
	Ahead int
}

// Reached reports whether the node can take no further volume of the driver.
func (l Limit) Reached() bool { return l.Known && l.Used+l.Ahead >= l.Max }

// Message counts those ahead as there: there is room for them and they are on their way.
func (l Limit) Message(node, driver string) string {
	return fmt.Sprintf("node %s has %d of %d volumes of driver %s", node, max(l.Used, l.Max), l.Max, driver)
}
