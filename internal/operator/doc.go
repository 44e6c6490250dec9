/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package operator turns the VolumeManager into an installation of Hawser, and keeps it so.
//
// One reconcile:
//
//	watch    the kinds that may be missing, once they are there
//	fetch    the VolumeManager; make it at the first start
//	protect  it, and what is needed to release volumes, against deletion (package usage)
//	render   the objects (package render), with the agents' placement held back where volumes are in use
//	apply    what differs, by server-side apply; a difference that nobody asked for is an event
//	observe  workloads, pods and nodes
//	prune    what is not wanted any more, once no earlier program that needs it is left
//	decide   the conditions (package condition)
//	report   them
//
// Every event leads to the same key, so reconciles never run beside each other. Nothing is polled: the owned objects
// carry a label, and the cache watches them by it.
//
// When the VolumeManager is deleted:
//
//	drain    keep all of that until nothing is in use; with spec.removal Drain delete the intents. Intents that only
//	         show what upstream does are deleted without it too, once nothing else is left
//	ungate   delete the policy that gates pods, then lift the gates of all pods
//	refuse   new intents, and new pods with inline volumes
//	stop     manager and agents
//	clean    what Hawser wrote, and what the operator applied; go back if there is an intent
//
// The operator never deletes a kind or a namespace.
package operator
