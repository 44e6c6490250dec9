/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"

	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/agent/report"
)

// wire makes the parts of the agent. Each one gets what was made before it. What remains are circles, because the parts
// answer each other: they are closed at the end, before anything runs.
//
//	queue, holders    call the agent back
//	state             writes the node state
//	observer          has its observations reported by state
//	node              asks the observer for what it reports
//	session           begins and ends what state relies on
//	steps             use all of these
//	pods, plugin      show to pods what the steps publish, and the steps withdraw it there
//
// A part that needs the records gets them by useStore. One that makes calls which outlive the agent's own context gets
// theirs by liveFor.
func (a *Agent) wire() {
	o := a.Options
	a.queue = newDispatcher(o.Clock, o.Log, a.reconcileKey)
	a.queue.added = a.noteRequeue
	a.holders = operation.NewHolders(o.Log, a.holderEnded)
	a.state = report.NewWriter(o.Clock, o.Log)
	a.state.Machine = a.machine
	a.observer = kubelet.NewObserver(kubelet.ObserverOptions{
		Paths: a.paths, BootID: a.bootID, Mounts: o.Mounts, Reports: a.state, Volumes: hooks{a}, Clock: o.Clock,
		Log: o.Log,
	})
	a.node = report.NewNode(a.bootID, o.Version, a.machine, o.Registry.Drivers, a.observer)
	a.intents = report.NewIntentWriter(o.Live, o.Clock, a.step)
	a.session = report.NewSession(report.SessionOptions{
		NodeName: o.NodeName, Machine: a.machine, Live: o.Live, Writer: a.state, Clock: o.Clock, Log: o.Log,
		RequeueAll: a.queueAll, Waits: func(other *report.OtherMachineError) { reportOtherMachine(o, other) },
	})
	a.pods = record.NewPodBinds(record.PodBindStore{Dir: a.paths.PodBinds(), Replace: o.Host.ReplaceFile})
	a.plugin = a.newPodPlugin()
	a.steps = &operation.Environment{Options: operation.Options{
		NodeName: o.NodeName, Paths: a.paths, DriverTimeout: o.DriverTimeout, Clock: o.Clock, Now: a.now,
		Mounts: o.Mounts, Registry: o.Registry, Filesystems: o.Filesystems, Calls: o.Calls,
		Live: o.Live, Secrets: o.Secrets, Recorder: o.Recorder, Log: o.Log,
		State: a.state, Node: a.node, Intents: a.intents, Observer: a.observer, Holders: a.holders,
		Pods: a.pods, Directories: a.plugin,
		Gather: a.gather, Requeue: a.queue.add, ExamineAgain: a.examineAgain, Step: a.step,
	}}

	a.state.Read, a.state.Write = a.session.ReadState, a.session.WriteState
	a.state.Render, a.state.Written = a.node.Render, a.observer.Reported
	a.node.Directories, a.pods.DirectoriesChanged = a.pods.CountDirectories, a.state.ReportSoon
	if o.Connections != nil {
		o.Connections.OnLost(a.state.EndSession)
	}
}

// useStore gives the records to what reads or writes them. No other agent has them then.
func (a *Agent) useStore(store *record.Store) {
	a.store, a.steps.Store, a.observer.Store, a.session.Store = store, store, store, store
}

// liveFor has calls end with this context, which goes on for a while after that of the agent.
func (a *Agent) liveFor(lifetime context.Context) {
	a.steps.Lifetime, a.observer.Lifetime = lifetime, lifetime
	a.holders.Lifetime, a.plugin.holders.Lifetime = lifetime, lifetime
}
