/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package manager tests the manager with all its controllers against a real API server. Nodes, agents, kubelets and
// the external-attacher are fakes that use the same API.
//
// # The harness
//
//	world_test.go       world: one API server; creates nodes, claims, volumes and intents in it
//	manager_test.go     starts a manager in the world, with options
//	await_test.go       until, gone, reason: wait by watch for what has to come about
//	clock_test.go       stepClock, offsetClock: clocks that a test sets
//	attacher_test.go    attacher: the driver's external-attacher
//	agent_test.go       agent: an agent that reports what its node uses, and its Lease
//	host_test.go        host: a node with an agent and a kubelet that mount and unmount; both follow the rules
//
// Faults between a manager and the API server:
//
//	requests_test.go    requestCounter: counts requests, and can refuse all
//	transport_test.go   blocker: keeps resources from a manager until it is opened
//	                    conflicts: another client writes just before each write of the manager
//	                    gate: stops one request until it is opened
//	                    watchPause: a manager sees no changes of a resource for a while
//	                    refusals: refuses one kind of write
//	                    killSwitch: the manager's process dies at a certain write
//	delays_test.go      delays: requests of two leaders arrive late
//
// Checkers, which decide whether something happened that must not:
//
//	history_test.go     recorder: records every change of the objects that the handshake uses, in order
//	invariants_test.go  checkHistory: applies the rules of the handshake to each change of a history
//	mounts_test.go      mountChecker: what drivers have published and nodes have mounted, checked at each change
//	checkers_test.go    tests that the checkers find what they are made for
//
// # The tests
//
// removal_test.go runs operator and manager together: operated, serve.
//
// TestController runs the scenarios of mode Coexist, TestReplace those of mode Replace, TestPodIntents those of pods.
// The other files are named after what they test. TestFaults runs faults in both modes, and TestTwoLeaders two managers
// at once. TestPlacement runs those of gated pods, and scheduler_test.go the scheduler of Kubernetes with them.
package manager
