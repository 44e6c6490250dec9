/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/test/csiloop/faults"
	"github.com/hawser-io/hawser/test/system"
)

// shortWhile is how long something stays down.
func shortWhile(r *rand.Rand) time.Duration {
	return time.Duration(r.ExpFloat64() * float64(2*time.Second))
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// restart kills a process, and starts it again after a while.
func (s *soak) restart(ctx context.Context, name string) error {
	down := shortWhile(s.random)
	s.meanwhile([]string{name}, func() error {
		s.say("%s is killed for %s", name, down.Round(time.Millisecond))
		if err := kill(s.sys.Dir, name); err != nil {
			return err
		}
		wait(ctx, down)
		return s.sys.StartAgain(context.WithoutCancel(ctx), name)
	})
	return nil
}

func (s *soak) killAgent(ctx context.Context) error {
	return s.restart(ctx, system.Agent(pick(s.random, s.sys.Nodes)))
}

func (s *soak) killManager(ctx context.Context) error { return s.restart(ctx, system.Manager) }

// killUpstream kills kube-controller-manager, in Coexist with its attach/detach controller.
func (s *soak) killUpstream(ctx context.Context) error {
	return s.restart(ctx, system.ControllerManager)
}

// killDriver kills the driver's controller, or its plugin on a node.
func (s *soak) killDriver(ctx context.Context) error {
	names := []string{system.ControllerDriver}
	for _, node := range s.sys.Nodes {
		names = append(names, system.NodeDriver(node))
	}
	return s.restart(ctx, pick(s.random, names))
}

// killAttacher kills the program of a supervisor, which starts it again.
func (s *soak) killAttacher(context.Context) error {
	s.say("%s is killed", system.Attacher)
	return killChildren(s.sys.Dir, system.Attacher)
}

// restartKubelet restarts a kubelet, which forgets the volumes that it used.
func (s *soak) restartKubelet(ctx context.Context) error {
	node, down := pick(s.random, s.sys.Nodes), shortWhile(s.random)
	what := "kubelet-" + node
	s.meanwhile([]string{what}, func() error {
		s.say("%s is restarted, after %s", what, down.Round(time.Millisecond))
		s.hosts[node].stopKubelet()
		wait(ctx, down)
		s.hosts[node].startKubelet(ctx)
		return nil
	})
	return nil
}

// twoManagers runs a second controller for a while, without coordination. Then one of them is killed.
func (s *soak) twoManagers(ctx context.Context) error {
	both, first := shortWhile(s.random), s.random.IntN(2) == 0
	s.meanwhile([]string{system.Manager}, func() error {
		s.say("two controllers, for %s", both.Round(time.Millisecond))
		second, err := s.startSecondManager()
		if err != nil {
			return err
		}
		wait(ctx, both)
		if first {
			if err := kill(s.sys.Dir, system.Manager); err != nil {
				return err
			}
			wait(ctx, both)
			if err := s.sys.StartAgain(context.WithoutCancel(ctx), system.Manager); err != nil {
				return err
			}
		}
		if err := second.Process.Kill(); err != nil {
			return fmt.Errorf("killing the second controller: %w", err)
		}
		_ = second.Wait() // it was killed
		return nil
	})
	return nil
}

func (s *soak) startSecondManager() (*exec.Cmd, error) {
	log, err := os.OpenFile(filepath.Join(s.Dir, "logs", "manager-2.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the second controller's log: %w", err)
	}
	defer func() { _ = log.Close() }() // the child has its own descriptor
	cmd := exec.Command(filepath.Join(s.sys.Bin, "manager"), append([]string{
		"--kubeconfig=" + filepath.Join(s.sys.Dir, "manager.kubeconfig"), "--leader-elect=false",
		"--metrics-bind-address=0", "--health-probe-bind-address=0"}, s.sys.ManagerArgs...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a second controller: %w", err)
	}
	return cmd, nil
}

var (
	controllerMethods = []string{"ControllerPublishVolume", "ControllerUnpublishVolume"}
	nodeMethods       = []string{"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"}
	answers           = []codes.Code{codes.Internal, codes.Unavailable, codes.Aborted, codes.DeadlineExceeded,
		codes.ResourceExhausted, codes.FailedPrecondition}
)

// fault makes the driver fail with one volume for a while: it answers with an error, waits, hangs, or dies.
func (s *soak) fault(ctx context.Context) error {
	f := faults.Fault{
		Method: pick(s.random, slices.Concat(controllerMethods, nodeMethods)), Volume: pick(s.random, s.claims).handle,
		Node:  pick(s.random, s.sys.Nodes),
		Count: 1 + s.random.IntN(3), When: pick(s.random, []faults.Moment{faults.Before, faults.After}),
		Action: pick(s.random, []faults.Action{faults.Error, faults.Error, faults.Wait, faults.Hang, faults.Die}),
		Code:   pick(s.random, answers), Message: "injected by the soak", Delay: shortWhile(s.random),
		IgnoreCancel: s.random.IntN(2) == 0,
	}
	lasts := 5 * shortWhile(s.random)
	process := system.NodeDriver(f.Node)
	if slices.Contains(controllerMethods, f.Method) {
		process = system.ControllerDriver
	}
	// A process that may die has to be started again.
	var busy []string
	if f.Action == faults.Die {
		busy = append(busy, process)
	}
	s.meanwhile(busy, func() error {
		s.say("%s of %s on %s: %s %s, %s %s, for %s", f.Method, f.Volume, f.Node, f.Action, f.When, f.Code,
			f.Delay.Round(time.Millisecond), lasts.Round(time.Millisecond))
		id, err := faults.Add(s.sys.BackingDir(), f)
		if err != nil {
			return err
		}
		wait(ctx, lasts)
		if err := faults.Remove(s.sys.BackingDir(), id); err != nil || f.Action != faults.Die {
			return err
		}
		// A process that runs is not restarted.
		return s.sys.StartAgain(context.WithoutCancel(ctx), process)
	})
	return nil
}

// loseNode makes a node silent, with its agent and kubelet. It puts the node out of service, and deletes its
// pods by force. Then it brings the node back, sometimes as it was, sometimes rebooted.
func (s *soak) loseNode(ctx context.Context) error {
	l := &loss{
		soak: s, node: pick(s.random, s.sys.Nodes), taint: s.random.IntN(3) > 0, reboot: s.random.IntN(2) == 0,
		before: 5 * shortWhile(s.random), after: 10*time.Second + 5*shortWhile(s.random),
		leftover: 5 * shortWhile(s.random),
	}
	if l.taint {
		// The taint counts once the agent's Lease has expired.
		l.after += liveness.DefaultDuration
	}
	// One at a time: two of three nodes must stay.
	busy := []string{"a node is lost", system.Agent(l.node), "kubelet-" + l.node, system.NodeDriver(l.node)}
	s.meanwhile(busy, func() error { return l.run(ctx) })
	return nil
}

// loss of one node.
type loss struct {
	*soak
	node          string
	taint, reboot bool
	// before is the time until it is put out of service, after the time from then on. leftover is how long the taint
	// stays once the node is back.
	before, after, leftover time.Duration
}

func (l *loss) run(ctx context.Context) error {
	l.say("%s falls silent", l.node)
	if err := kill(l.sys.Dir, system.Agent(l.node)); err != nil {
		return err
	}
	l.judge.lost(l.node)
	l.hosts[l.node].stopKubelet()
	if err := l.sys.SetSilent(l.node, true); err != nil {
		return err
	}
	wait(ctx, l.before)
	if l.taint {
		l.say("%s is put out of service", l.node)
		if err := l.sys.SetOutOfService(ctx, l.node, true); err != nil {
			return err
		}
		if err := l.deletePods(ctx); err != nil {
			return err
		}
	}
	wait(ctx, l.after)
	return l.back(context.WithoutCancel(ctx), ctx)
}

// back brings the node back. running is the context of its processes.
func (l *loss) back(ctx, running context.Context) error {
	if l.reboot {
		if err := l.rebootNode(ctx); err != nil {
			return err
		}
	}
	l.say("%s is back, rebooted: %t", l.node, l.reboot)
	if err := l.sys.SetSilent(l.node, false); err != nil {
		return err
	}
	if err := l.sys.StartAgain(ctx, system.Agent(l.node)); err != nil {
		return err
	}
	l.hosts[l.node].startKubelet(running)
	if !l.taint {
		return nil
	}
	// Administrators forget it.
	wait(running, l.leftover)
	return l.sys.SetOutOfService(ctx, l.node, false)
}

// taintWrongly puts a node out of service whose machine runs, as an administrator does who takes one node for another.
func (s *soak) taintWrongly(ctx context.Context) error {
	node, lasts := pick(s.random, s.sys.Nodes), 10*shortWhile(s.random)
	s.meanwhile([]string{"a node is lost", "the taint of " + node}, func() error {
		s.say("%s is put out of service although it runs, for %s", node, lasts.Round(time.Millisecond))
		if err := s.sys.SetOutOfService(ctx, node, true); err != nil {
			return err
		}
		wait(ctx, lasts)
		return s.sys.SetOutOfService(context.WithoutCancel(ctx), node, false)
	})
	return nil
}

// deletePods deletes the node's pods by force, as the pod garbage collector does with deleted pods.
func (l *loss) deletePods(ctx context.Context) error {
	pods := &corev1.PodList{}
	if err := l.sys.Client.List(ctx, pods, client.InNamespace(namespace),
		client.MatchingFields{"spec.nodeName": l.node}); err != nil {
		return fmt.Errorf("listing the pods of %s: %w", l.node, err)
	}
	for i := range pods.Items {
		if err := l.sys.Client.Delete(ctx, &pods.Items[i], client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting pod %s: %w", pods.Items[i].Name, err)
		}
	}
	return nil
}
