/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package doctor

import (
	"time"

	"github.com/hawser-io/hawser/internal/explain/facts"
)

// How long something may last before it is a finding. docs/doctor.md has the same.
const (
	// podWaits is how long a kubelet waits for volumes before it reports that.
	podWaits = 2 * time.Minute
	// settles is how long components need to see a change of another one: a taint, a driver that starts again.
	settles = 2 * time.Minute
	// stepTakes is how long a program may need for one step: to provision, to attach, to detach.
	stepTakes = 5 * time.Minute
	// nodeDead is how long a node is not Ready before Kubernetes detaches by force.
	nodeDead = 6 * time.Minute
	// unused is how long an attachment may have no user.
	unused = facts.UnusedFor
	// resizeTakes is how long an expansion may need.
	resizeTakes = 15 * time.Minute
)
