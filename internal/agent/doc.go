/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package agent brings volumes onto one node and takes them away again, as the node's intents ask for.
//
// One reconcile of a volume gathers every fact (the controller's entry, the intents, the record on disk, the mount
// table), makes a plan from them in a pure function, carries out the first step of it, and starts again until nothing
// is left that need not wait. So there is no state between steps: what a crash leaves behind is one more set of facts.
//
//	   mark in use         stage       publish, set ownership, reference, expand
//	(none) --> record, inUse --> staged mount -------------------> published
//	(none) <-- clear in use <--            <--------------------- unpublish
//	              unstage, once no intent is left
//
// What is safe is decided by package handshake: inUse is set by a compare-and-swap while the entry is Attached, before
// the first driver call; it is cleared only when everything is known to be undone, when no earlier call can still be
// running, and when the mount table agrees. The record on disk names each driver call, with its deadline, before the
// call is made.
//
// The record on disk shows that a use has ended before the status of an intent or of the node reports it. Then the
// intent may be gone, and a use whose intent is not there stays.
//
// A volume whose attachment was taken away (Detaching, or another attachment in its place) while something of it is
// still here is stale: its filesystem is shut down, then everything is undone.
//
// Each volume is reconciled in a goroutine of its own, so a driver that hangs blocks only its own volume.
//
// The packages below, each knowing only those before it: failure (errors and their consequence), record (the node's
// disk), kubelet (what the kubelet has mounted), inline (the CSI node plugin for pods), plan (facts to steps), report
// (what the API shows) and operation (the steps). This package runs them: it queues, gathers, reconciles and recovers.
package agent
