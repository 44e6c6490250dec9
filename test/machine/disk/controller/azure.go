/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package controller

import (
	"path"
	"strconv"

	"github.com/hawser-io/hawser/test/machine/disk"
)

const (
	// AzureDriver is the registered name of the driver of Azure's disks. Its node plugin is the maker's own. What its
	// controller has the cloud do, this one does with disks of virtual machines.
	AzureDriver = "disk.csi.azure.com"
	// azurePath is what the IDs of its volumes begin with. The name of a disk follows.
	azurePath = "/subscriptions/test/resourceGroups/test/providers/Microsoft.Compute/disks/"
	// lunKey is the key of the disk's logical unit number in the publish context. The node plugin knows nothing else of
	// the disk.
	lunKey = "LUN"
	// gib is the unit in which the cloud sells disks.
	gib = 1 << 30
)

// azureSize is the size of the disk for so many bytes.
func azureSize(bytes int64) int64 { return (bytes + gib - 1) / gib * gib }

// diskID is the name of a volume's disk, which is also its serial number.
func diskID(volume string) string { return path.Base(volume) }

// freeLUN is the lowest logical unit number that no disk of the node has, as in the cloud.
func (c *Controller) freeLUN(node string) int {
	taken := map[int]bool{}
	for _, p := range c.plugged {
		taken[p.disk.LUN] = taken[p.disk.LUN] || p.node == node
	}
	lun := 0
	for taken[lun] {
		lun++
	}
	return lun
}

// context is the publish context of a disk that is plugged in.
func (p place) context() map[string]string {
	if p.disk.Azure {
		return map[string]string{lunKey: strconv.Itoa(p.disk.LUN)}
	}
	return map[string]string{disk.SerialKey: p.disk.ID}
}
