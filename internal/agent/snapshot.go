/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"k8s.io/apimachinery/pkg/api/resource"
)

// figures of one volume, as its driver told them last.
type figures struct {
	used, available    *resource.Quantity
	inodes, inodesUsed *int64
	abnormal           string
}

// snapshot is what the process knows of a volume beside the facts when it reports.
type snapshot struct {
	name     string
	record   *Record
	failures failures
	// unprotected: a mount of an attachment that was taken away could not be shut down.
	unprotected bool
	// slow names a driver call that takes long; empty where none does.
	slow string
	// figures of the volume; nil where none were read.
	figures *figures
	// lost are the mounts that were reported as removed.
	lost []string
}
