/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package controller starts everything that the manager runs. It has no logic of its own.
//
// Controllers, each with a queue of its own:
//
//	attachment       one volume on all nodes: create, confirm and delete its VolumeAttachments
//	intent           one intent: resolve it, set its finalizer, report Ready
//	intentset        one set: an intent for each node that it selects; the labels of Nodes where sets are Ready
//	pod              one pod: create and delete its intents
//	placement        one pod with inline volumes: narrow its node affinity, lift its gate
//	claim            one PersistentVolumeClaim: its finalizer, its size after an expansion
//	node             one Node: its node state and the agent's Lease; declarations of administrators
//	nodehealth       one NodeVolumeState: the conditions about its attachments
//	secretaccess     one Node: which Secrets its agent may read
//
// Other packages that run in the manager:
//
//	liveness         follows the Leases and reports which agents are unreachable
//	policy           compares the admission policies with what is shipped; without them nothing new is attached
//	metrics          exports metrics for Prometheus
//
// Writers, which combine the changes of many volumes into one update:
//
//	nodestate        NodeVolumeState.spec
//	exclusive        the ConfigMaps with the locks of exclusive volumes
//	volumesattached  Node.status.volumesAttached, in attach mode Replace
//	intentstatus     status and events of intents
//	batch            the group commit that the first three use
//	inflight         how much work may run at once, and the queues
//
// Helpers:
//
//	attachment/decision   decides on the facts of a volume; pure, without a client
//	attachment/capacity   how many volumes of a driver a node can take
//	resolve               from an intent to its volume; pure
//	volume                names and properties that follow from a PersistentVolume
//	outage                for how long a node has been absent or not Ready
//	backoff               how long controllers wait after an error
//	cached, index         what the manager's cache keeps, and its field indexes
//	controllertest        an API server for quick tests of a single controller
//
// The tests of all of them together, against a real API server, are in test/manager.
package controller
