/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package agent brings volumes onto one node and takes them away again, as the node's intents ask for.
//
// One look at a volume gathers every fact (the controller's entry, the intents, the record on disk, the mount
// table), makes a plan from them in a pure function, carries out the first step of it, and starts again
// until nothing is left that need not wait. So there is no state between steps: what a crash leaves behind is
// one more set of facts.
//
//	      take             stage             publish, refer, expand
//	(none) --> record, inUse --> staged mount -------------------> published
//	(none) <-- clear        <--            <--------------------- unpublish
//	              unstage, once no intent is left
//
// What is safe is decided by package handshake: inUse is set by a compare-and-swap while the entry is Attached,
// before the first driver call; it is cleared only when everything is known to be undone, when no earlier call can
// still be running, and when the mount table agrees. Each driver call stands in the record on disk,
// with its deadline, before it is made.
//
// That a use has ended is on disk before an intent or the node's state tells it: then the intent may be gone, and a
// use whose intent is not there stays.
//
// A volume whose attachment was taken away (Detaching, or another attachment in its place) while something of it is
// still here is stale: its filesystem is shut down, then everything is undone.
//
// Each volume that is looked at has a goroutine of its own, so a driver that hangs keeps only its own volume waiting.
package agent
