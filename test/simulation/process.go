/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// errOver ends what still hangs in a dead process when its world ends.
var errOver = errors.New("the world has ended")

// process is an agent, a manager or a kubelet. Wherever it asks something of the world it passes a gate, where it takes
// time and may be killed. A dead process hangs there until its world ends: nothing that comes after in its code
// happens.
type process struct {
	world *World
	name  string
	// mortal is the fault by which it is killed at a gate.
	mortal fault
	died   func()
	// begun is closed once it can be killed; nil is from the start.
	begun <-chan struct{}

	// prompt: what it writes arrives before it gives up, or never.
	prompt bool

	once sync.Once
	dead chan struct{}

	// held are the fences that it has read to hold, by node. The world's lock guards it.
	held map[string]heldFence

	// tired: it is to fall asleep.
	tired atomic.Pointer[nap]
	// death, if set, is the step before which it is killed.
	death atomic.Pointer[death]

	mu     sync.Mutex
	asleep time.Time
}

// nap is for when a process falls asleep: before a request with this in its name. Then something happens.
type nap struct {
	before string
	then   func()
	// sleep so long; the seed has it where it is zero.
	sleep time.Duration
}

func (w *World) process(name string, mortal fault, died func()) *process {
	return &process{world: w, name: name, mortal: mortal, died: died, dead: make(chan struct{}),
		held: map[string]heldFence{}}
}

// kill the process; a machine that was started just now has none.
func (p *process) kill() {
	if p != nil {
		p.once.Do(func() { close(p.dead) })
	}
}

func (p *process) isDead() bool {
	select {
	case <-p.dead:
		return true
	default:
		return false
	}
}

func (p *process) hasBegun() bool {
	if p.begun == nil {
		return true
	}
	select {
	case <-p.begun:
		return true
	default:
		return false
	}
}

func (p *process) happens(f fault) bool { return p.world.chance.happens(p.name, f) }

func (p *process) between(least, most time.Duration) time.Duration {
	return p.world.chance.between(p.name, least, most)
}

// pass a gate.
func (p *process) pass(ctx context.Context, what string) error {
	if err := sleep(ctx, p.world.chance.latency(p.name)); err != nil && !p.isDead() {
		return err
	}
	if !p.isDead() && p.hasBegun() {
		d := p.death.Load()
		comes := d.comes(what)
		if comes || p.happens(p.mortal) {
			p.world.log("%s is killed before: %s", p.name, what)
			p.kill()
			p.died()
		}
		if comes && d.then != nil {
			d.then()
		}
	}
	return p.hang()
}

// hang for ever if the process is dead.
func (p *process) hang() error {
	if p.isDead() {
		<-p.world.ctx.Done()
		return errOver
	}
	return nil
}

// request passes the gate on the way to the API server.
func (p *process) request(ctx context.Context, what string) error {
	if err := p.pass(ctx, what); err != nil {
		return err
	}
	if p.happens(slowRequest) {
		if err := sleep(ctx, p.between(time.Second, 20*time.Second)); err != nil {
			return err
		}
	}
	if p.happens(refused) {
		return timeout(what)
	}
	return p.doze(what)
}

// doze is a process that is not run for minutes, between a decision and the request that carries it out. Another one
// takes its place meanwhile, and it ends after that request.
func (p *process) doze(what string) error {
	p.mu.Lock()
	if p.asleep.IsZero() && p.mortal == managerKilled && p.hasBegun() {
		if d, asleep := p.falls(what); asleep {
			p.asleep = time.Now().Add(d)
			p.world.log("%s falls asleep before: %s", p.name, what)
			p.died()
		}
	}
	until := p.asleep
	p.mu.Unlock()
	if until.IsZero() {
		return nil
	}
	if !time.Now().Before(until) {
		p.kill()
		return p.hang()
	}
	if err := sleep(p.world.ctx, time.Until(until)+p.between(0, time.Second)); err != nil {
		return err
	}
	p.kill()
	return nil // this one still goes out
}

// falls says whether it falls asleep now, and for how long.
func (p *process) falls(before string) (time.Duration, bool) {
	n := p.tired.Load()
	if n == nil || !strings.Contains(before, n.before) || !p.tired.CompareAndSwap(n, nil) {
		return p.between(10*time.Second, 3*time.Minute), p.happens(managerAsleep)
	}
	p.world.chance.reach(managerAsleep)
	n.then()
	return cmp.Or(n.sleep, p.between(10*time.Second, 3*time.Minute)), true
}

// answer passes the gate on the way back.
func (p *process) answer(ctx context.Context) error { return p.pass(ctx, "taking an answer") }

// sleep until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
