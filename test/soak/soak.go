/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/controller"
	"github.com/hawser-io/hawser/test/system"
)

// soak is one run. One goroutine selects the next action from the seed and the earlier actions, never from the state of
// the system. The same seed therefore gives the same actions.
type soak struct {
	Options
	sys *system.System
	// out is the log of all actions.
	out    io.Writer
	random *rand.Rand
	judge  *judge

	claims []*claim
	// crowded is the claim of the tenant that fills a node.
	crowded *claim
	// wishes that exist, in order of creation.
	wishes []client.Object
	count  int
	hosts  map[string]*host
	// trouble that is in progress, which ends by itself.
	trouble sync.WaitGroup
	// busy are the processes and nodes in trouble.
	busy []string

	// done counts the actions by name.
	done map[string]int

	mu     sync.Mutex
	failed []error
}

func newSoak(o Options, sys *system.System, out io.Writer) (*soak, error) {
	s := &soak{Options: o, sys: sys, out: out, random: rand.New(rand.NewPCG(o.Seed, 0)), hosts: map[string]*host{},
		done: map[string]int{}}
	var w *observer
	if o.Mode == controller.Coexist {
		w = newObserver(sys)
	}
	s.judge = newJudge(sys, w)
	for i, node := range sys.Nodes {
		h, err := newHost(s, node, uint64(i))
		if err != nil {
			return nil, err
		}
		s.hosts[node] = h
	}
	return s, nil
}

func (s *soak) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.out, "%s %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...)) // progress only
}

// progress prints a line for the waiting user.
func (s *soak) progress(format string, args ...any) {
	fmt.Printf("%s %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

// fail records a violation.
func (s *soak) fail(err error) {
	if err == nil {
		return
	}
	s.say("WRONG: %v", err)
	s.progress("WRONG: %v", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = append(s.failed, err)
}

// action is one action, with the weight of its probability.
type action struct {
	weight int
	name   string
	do     func(context.Context) error
}

func (s *soak) actions() []action {
	return []action{
		{16, "create an intent", s.createIntent},
		{16, "create a pod", s.createPod},
		{12, "delete a wish", s.deleteWish},
		{4, "change an intent", s.changeIntent},
		{5, "let the driver fail", s.fault},
		{2, "kill an agent", s.killAgent},
		{2, "kill the controller", s.killManager},
		{1, "run two controllers", s.twoManagers},
		{1, "kill the attacher", s.killAttacher},
		{1, "kill a driver", s.killDriver},
		{1, "kill upstream", s.killUpstream},
		{2, "restart a kubelet", s.restartKubelet},
		{1, "lose a node", s.loseNode},
		{1, "taint a node that runs", s.taintWrongly},
		{1, "replace a machine", s.replaceMachine},
		{1, "fill a node", s.fillNode},
	}
}

// run plays until the time has passed, ends all trouble, deletes everything, and judges.
func (s *soak) run(ctx context.Context) error {
	if err := s.prepare(ctx); err != nil {
		return err
	}
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	if err := s.judge.start(watching, s.fail); err != nil {
		return err
	}
	for _, h := range s.hosts {
		h.startKubelet(ctx)
	}
	s.play(ctx)
	s.say("the trouble has ended")
	s.progress("the trouble has ended; everything is being deleted")
	s.trouble.Wait()
	s.fail(s.end(ctx))
	stopWatching()
	s.judge.check(s.fail)
	s.judge.reportRisks(s.progress)
	for _, h := range s.hosts {
		h.stopKubelet()
	}
	for _, found := range s.sys.Raced() {
		s.fail(errors.New(found))
	}
	return errors.Join(s.failed...)
}

// summary of the actions and of the judge.
func (s *soak) summary() string {
	total := 0
	for _, n := range s.done {
		total += n
	}
	return fmt.Sprintf("%s, %d actions, %s, no violation, and nothing is left", s.Mode, total, s.judge.summary())
}

// play runs one action after the other while there is to be trouble.
func (s *soak) play(ctx context.Context) {
	begin := time.Now()
	over := time.NewTimer(time.Duration(s.Minutes * float64(time.Minute)))
	defer over.Stop()
	judge := time.NewTicker(15 * time.Second)
	defer judge.Stop()
	actions := s.actions()
	for {
		pause := time.NewTimer(time.Duration(s.random.ExpFloat64() * float64(s.Pace)))
		select {
		case <-ctx.Done():
			return
		case <-over.C:
			return
		case <-judge.C:
			s.judge.check(s.fail)
			s.progress("%s of %g min, %d wishes; %s", time.Since(begin).Round(time.Second), s.Minutes, len(s.wishes),
				s.judge.summary())
			<-pause.C
		case <-pause.C:
		}
		a := s.choose(actions)
		s.done[a.name]++
		if err := a.do(ctx); err != nil && ctx.Err() == nil {
			// The control plane is not under test, but readers of the log need the error.
			s.say("could not %s: %v", a.name, err)
		}
	}
}

func (s *soak) choose(actions []action) action {
	total := 0
	for _, a := range actions {
		total += a.weight
	}
	n := s.random.IntN(total)
	at := slices.IndexFunc(actions, func(a action) bool { n -= a.weight; return n < 0 })
	return actions[at]
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// meanwhile runs an action that takes time on parts that are not in trouble yet. It does nothing if one of them is.
func (s *soak) meanwhile(what []string, do func() error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(what, func(w string) bool { return slices.Contains(s.busy, w) }) {
		return false
	}
	s.busy = append(s.busy, what...)
	s.trouble.Go(func() {
		s.fail(do())
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy = slices.DeleteFunc(s.busy, func(w string) bool { return slices.Contains(what, w) })
	})
	return true
}
