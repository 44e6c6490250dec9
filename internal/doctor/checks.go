/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package doctor

import "github.com/hawser-io/hawser/internal/explain/facts"

// Kinds in short.
const (
	pods        = facts.KindPod
	claims      = facts.KindClaim
	volumes     = facts.KindVolume
	attachments = facts.KindAttachment
	nodes       = facts.KindNode
	csiNodes    = facts.KindCSINode
	drivers     = facts.KindCSIDriver
	classes     = facts.KindClass
	intents     = facts.KindIntent
	states      = facts.KindState
	leases      = facts.KindLease
)

// explains are the kinds that package explain reads of what waits.
var explains = []string{claims, volumes, attachments, nodes, csiNodes, drivers, classes, KindEvent}

// checks of a cluster, in this order: a later one may leave out what an earlier one has found.
var checks = []check{
	{about: "attachments that nothing uses", run: unusedAttachments,
		needs: []string{attachments, volumes, pods, claims, nodes, intents}, helps: []string{states}},
	{about: "attachments without a node or a volume", run: lostAttachments,
		needs: []string{attachments, volumes, nodes}, helps: []string{KindEvent}},
	{about: "attachments whose deletion does not end", run: terminatingAttachments,
		needs: []string{attachments, drivers, csiNodes}},
	{about: "attachments that were refused", run: refusedAttachments, needs: []string{attachments, intents}},
	{about: "exclusive volumes on several nodes", run: exclusiveTwice, needs: []string{attachments, volumes}},
	{about: "nodes with another CSI ID", run: otherIDs, needs: []string{attachments, csiNodes}},
	{about: "dead nodes", run: deadNodes, needs: []string{nodes, attachments}},
	{about: "restores from a backup", run: restores, needs: []string{states, leases, nodes}},
	{about: "what agents report", run: nodeStates, needs: []string{states, leases, nodes}},
	{about: "out-of-service taints", run: taintedNodes, needs: []string{nodes}},
	{about: "attach limits", run: attachLimits, needs: []string{csiNodes, nodes, attachments},
		helps: []string{pods, claims, volumes}},
	{about: "drivers missing on nodes", run: missingDrivers, needs: []string{csiNodes, nodes, attachments},
		helps: []string{pods, claims, volumes}},
	{about: "CSIDrivers and attachments", run: unhandledAttachments, needs: []string{drivers, attachments}},
	{about: "CSIDrivers and PersistentVolumes", run: contradictedDrivers, needs: []string{drivers, volumes}},
	{about: "storage that drivers report as sick", run: sickStorage, needs: []string{csiNodes}},
	{about: "shared volume handles", run: sharedHandles, needs: []string{volumes, attachments},
		helps: []string{pods}},
	{about: "PersistentVolumes that failed or are being deleted", run: failedVolumes,
		needs: []string{volumes, claims}},
	{about: "claims that are being deleted", run: deletedClaims, needs: []string{claims, pods, intents}},
	{about: "claims that count as unused", run: countedUnused, needs: []string{claims, intents}},
	{about: "expansions", run: expansions, needs: []string{claims, pods, intents}, helps: []string{KindEvent}},
	{about: "SELinux labels", run: selinuxConflicts, needs: []string{drivers, volumes, pods}},
	{about: "the manager and the installation", run: managers, needs: []string{leases, facts.KindManager}},
	{about: "admission policies", run: policies, needs: []string{KindPolicy}},
	{about: "forced detaches", run: forcedDetaches, needs: []string{states}},
	{about: "why pods wait", run: waitingPods, needs: []string{pods}, helps: explains},
	{about: "why intents wait", run: waitingIntents, needs: []string{intents}, helps: explains},
	{about: "why claims wait", run: pendingClaims, needs: []string{claims, pods, intents, classes},
		helps: []string{KindEvent}},
}
