/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

// The worlds. Those of one node have everything that can happen to an agent, those of two what concerns the lock.
var (
	agentWorld = world{
		name: "one node, all that befalls an agent", nodes: 1, leaders: 2, cuts: true,
		calls: true, crash: true, late: true, reboot: true, hand: true, force: true,
	}
	liarWorld = world{
		name: "one node, a driver that lies about unstaging", nodes: 1, leaders: 2, cuts: true,
		calls: true, crash: true, late: true, reboot: true, lies: true,
	}
	uncutWorld = world{
		name: "one node, a driver that does not cut access", nodes: 1, leaders: 2,
		calls: true, crash: true, late: true, reboot: true, hand: true, force: true,
	}
	lostWorld = world{
		name: "one node, objects deleted by strangers", nodes: 1, leaders: 1,
		calls: true, crash: true, late: true, reboot: true, force: true, stranger: true, lost: true,
	}
	intentWorld = world{
		name: "one node, an intent from creation to end", nodes: 1, leaders: 2, cuts: true,
		crash: true, late: true, reboot: true, intents: true,
	}
	lostIntentWorld = world{
		name: "one node, an intent and a state that are lost", nodes: 1, leaders: 1, cuts: true,
		crash: true, late: true, reboot: true, force: true, intents: true, lost: true,
	}
	agentlessWorld = world{
		name: "one node without an agent, an intent and a state that are lost", nodes: 1, leaders: 1, cuts: true,
		crash: true, intents: true, lost: true, agentless: true,
	}

	kubeletWorld = world{name: "one node, the kubelet publishes", nodes: 1, leaders: 2,
		cuts: true, kubelet: true}
	kubeletUnregisteredWorld = world{
		name: "one node, the kubelet publishes, its Node is deleted", nodes: 1, leaders: 1, cuts: true, kubelet: true,
		force: true, unregisters: true,
	}
	kubeletForceWorld = world{name: "one node, the kubelet publishes, forced detaches", nodes: 1, leaders: 2, cuts: true,
		kubelet: true, force: true}

	sharedWorld    = world{name: "two nodes, shared volume", nodes: 2, leaders: 2, cuts: true, force: true}
	exclusiveWorld = world{name: "two nodes, exclusive volume", nodes: 2, leaders: 2, cuts: true, exclusive: true}
	strangerWorld  = world{
		name: "two nodes, exclusive volume, attachments deleted by strangers", nodes: 2, leaders: 1, exclusive: true,
		stranger: true,
	}
	crashWorld = world{
		name: "two nodes, exclusive volume, agents that crash", nodes: 2, leaders: 2, cuts: true,
		exclusive: true, crash: true,
	}
	forceWorld = world{
		name: "two nodes, exclusive volume, forced detaches", nodes: 2, leaders: 2, cuts: true, exclusive: true, force: true,
	}
	collectWorld = world{
		name: "two nodes, exclusive volume, locks collected", nodes: 2, leaders: 2, cuts: true,
		exclusive: true, collect: true,
	}
	collectForceWorld = world{
		name: "two nodes, exclusive volume, locks collected, forced detaches", nodes: 2, leaders: 1, cuts: true,
		exclusive: true,
		collect:   true, force: true,
	}

	rebootWorld = world{
		name: "one node, the kubelet publishes, reboots with a pod that waits", nodes: 1, leaders: 1, cuts: true,
		kubelet: true, force: true, reboot: true,
	}

	worlds = []world{
		machineWorld, machineCrashWorld, agentWorld, liarWorld, uncutWorld, lostWorld, intentWorld, lostIntentWorld,
		kubeletWorld, kubeletForceWorld, kubeletUnregisteredWorld, exclusiveWorld, strangerWorld, declareWorld,
		declareUncutWorld,
		deadKubeletWorld, rebootWorld,
		restoreWorld, restoreExclusiveWorld, restoreExcusedWorld, sharedWorld, crashWorld, forceWorld, collectWorld,
		collectForceWorld,
		declareLostWorld, declareIntentWorld, declareKubeletWorld, declareExclusiveWorld, deadExclusiveWorld,
		cutWorld, cutMachineWorld, cutExclusiveWorld, cutKubeletWorld,
		assertWorld, assertExclusiveWorld, restoreAssertWorld, agentlessWorld, agentlessRestoreWorld,
	}
)

// The worlds with an administrator. Where the administrator may be wrong, what was declared is excused and all else
// must hold; where only the truth is declared, of machines that never come back, that has to be a way out of
// everything.
var (
	declareWorld = world{
		name: "one node, declarations, also wrong ones", nodes: 1, leaders: 2, cuts: true, declare: true,
		calls: true, crash: true, late: true, reboot: true, hand: true, force: true, dies: true, replaced: true,
	}
	declareUncutWorld = world{
		name: "one node, declarations, a driver that does not cut access", nodes: 1, leaders: 2, declare: true,
		crash: true, late: true, reboot: true, force: true, dies: true, replaced: true,
	}
	declareLostWorld = world{
		name: "one node, declarations, objects deleted by strangers", nodes: 1, leaders: 1, declare: true,
		crash: true, late: true, reboot: true, force: true, stranger: true, lost: true, dies: true, replaced: true,
	}
	declareIntentWorld = world{
		name: "one node, declarations, an intent", nodes: 1, leaders: 1, cuts: true, declare: true,
		crash: true, reboot: true, intents: true, dies: true, replaced: true,
	}
	declareKubeletWorld = world{
		name: "one node, declarations, the kubelet publishes", nodes: 1, leaders: 1, cuts: true, declare: true, once: true,
		kubelet: true, dies: true, replaced: true, removed: true,
	}
	declareExclusiveWorld = world{
		name: "two nodes, declarations, exclusive volume", nodes: 2, leaders: 1, cuts: true, declare: true, first: true,
		exclusive: true,
	}
	deadKubeletWorld = world{
		name: "one node that never comes back, the kubelet publishes", nodes: 1, leaders: 1, cuts: true,
		declare: true, truth: true,
		kubelet: true, dies: true,
	}
	deadExclusiveWorld = world{
		name: "two nodes, one that never comes back, exclusive volume", nodes: 2, leaders: 1, cuts: true, declare: true,
		truth: true, first: true,
		exclusive: true, unreported: true, dies: true, replaced: true, removed: true,
	}
)
