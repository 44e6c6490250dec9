/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attach

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/test/bench/attach/feed"
	"github.com/hawser-io/hawser/test/bench/attach/judge"
	"github.com/hawser-io/hawser/test/bench/attach/process"
	"github.com/hawser-io/hawser/test/bench/attach/stage"
)

// arena is one contender while it is measured, with the stubs and the judge.
type arena struct {
	contender
	feed *feed.Feed
	load client.Client
	// names of the volumes, by their unique names and by their attachments.
	names map[string]string
	// attaching and detaching are the present races.
	attaching, detaching atomic.Pointer[judge.Race]
	// pids are the processes whose CPU time is counted.
	pids pids
}

// pids of the processes that work during a measurement.
type pids struct{ contender, apiServer, etcd, bench int }

// measure one contender from its start to its end. The first round also measures values that no round changes.
func (b *bench) measure(ctx context.Context, c contender, round int) error {
	b.say("%s", c.name)
	enterCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	a, leave, err := b.enter(enterCtx, c)
	if err != nil {
		return err
	}
	turn := Turn{Name: c.name}
	if err = b.warmUp(ctx, a); err == nil && round == 0 {
		err = b.measureAll(ctx, a, &turn)
	} else if err == nil {
		err = b.mass(ctx, a, &turn, func() error { return nil })
	}
	leave()
	cancel()
	if err != nil {
		return err
	}
	if turn.Swept, err = b.stage.Sweep(ctx, b.manager); err != nil {
		return err
	}
	b.report.add(turn)
	return nil
}

// enter starts the stubs, the judge and the contender.
func (b *bench) enter(ctx context.Context, c contender) (*arena, func(), error) {
	a := &arena{contender: c, load: b.load, names: map[string]string{}}
	var err error
	if a.feed, err = feed.New(b.cluster.Instruments()); err != nil {
		return nil, nil, err
	}
	for _, v := range b.stage.Volumes {
		a.names[v.Unique], a.names[v.Attachment] = v.Name, v.Name
	}
	a.attaching.Store(judge.NewRace(0, 1))
	a.detaching.Store(judge.NewRace(0, 1))
	if err := b.stubs(ctx, a); err != nil {
		return nil, nil, err
	}
	if err := a.listen(ctx); err != nil {
		return nil, nil, err
	}
	a.pids.bench = os.Getpid()
	for name, pid := range map[string]*int{"kube-apiserver": &a.pids.apiServer, "etcd": &a.pids.etcd} {
		if *pid, err = process.Child(name); err != nil {
			return nil, nil, err
		}
	}
	var leave func()
	if a.pids.contender, leave, err = c.enter(ctx, a); err != nil {
		return nil, nil, err
	}
	return a, leave, a.feed.Start(ctx)
}

// measureAll runs the measurements of all contenders.
func (b *bench) measureAll(ctx context.Context, a *arena, turn *Turn) error {
	nextTo := func(existing int) error {
		point, err := b.oneByOne(ctx, a, existing)
		turn.OneByOne = append(turn.OneByOne, point)
		return err
	}
	if err := nextTo(0); err != nil {
		return err
	}
	// An idle minute with all volumes attached, and one more volume next to them.
	if err := b.mass(ctx, a, turn, func() (err error) {
		if turn.Idle, err = b.idleRequests(ctx, a); err != nil {
			return err
		}
		return nextTo(b.volumes)
	}); err != nil {
		return err
	}
	for _, existing := range b.curve {
		if existing >= b.volumes {
			continue
		}
		volumes := b.nextTo(existing)
		if _, err := b.attach(ctx, a, volumes); err != nil {
			return err
		}
		if err := nextTo(existing); err != nil {
			return err
		}
		if _, err := b.detach(ctx, a, volumes); err != nil {
			return err
		}
	}
	return nil
}

// warmUp ends when one volume was attached and detached: the contender has filled its caches.
func (b *bench) warmUp(ctx context.Context, a *arena) error {
	last := b.single[len(b.single)-1:]
	for _, phase := range []func(context.Context, *arena, []*stage.Volume) (Phase, error){b.attach, b.detach} {
		result, err := phase(ctx, a, last)
		if err != nil {
			return err
		}
		if result.LeftBehind > 0 {
			return fmt.Errorf("not even one volume was attached and detached in %s", b.stallTimeout)
		}
	}
	return nil
}

// mass attaches and detaches many volumes at once, and calls meanwhile while all of them are attached.
func (b *bench) mass(ctx context.Context, a *arena, turn *Turn, meanwhile func() error) error {
	var err error
	if turn.Attach, err = b.attach(ctx, a, b.many); err != nil {
		return err
	}
	b.say("  attach: %s", turn.Attach)
	if err := meanwhile(); err != nil {
		return err
	}
	if turn.Detach, err = b.detach(ctx, a, b.many); err != nil {
		return err
	}
	b.say("  detach: %s", turn.Detach)
	turn.Memory, err = process.MemoryOf(a.pids.contender)
	return err
}

func (b *bench) attach(ctx context.Context, a *arena, volumes []*stage.Volume) (Phase, error) {
	if len(volumes) == b.volumes {
		defer b.profiles(ctx, a, "attach")()
	}
	return b.phase(ctx, a, &a.attaching, judge.NewRace(len(volumes), 1), volumes, a.come)
}

func (b *bench) detach(ctx context.Context, a *arena, volumes []*stage.Volume) (Phase, error) {
	if len(volumes) == b.volumes {
		defer b.profiles(ctx, a, "detach")()
	}
	return b.phase(ctx, a, &a.detaching, judge.NewRace(len(volumes), a.wish.toDetach), volumes, a.leave)
}

// phase attaches or detaches all volumes at once.
func (b *bench) phase(ctx context.Context, a *arena, place *atomic.Pointer[judge.Race], race *judge.Race,
	volumes []*stage.Volume, each func(context.Context, *stage.Volume) error) (Phase, error) {
	var p Phase
	mark, err := b.cluster.Mark()
	if err != nil {
		return p, err
	}
	before, err := a.cpu()
	if err != nil {
		return p, err
	}
	place.Store(race)
	if err := stage.Each(ctx, volumes, each); err != nil {
		return p, err
	}
	if err := race.Wait(ctx, b.stallTimeout, 10*time.Second,
		func(through int) { b.say("  %d of %d", through, len(volumes)) }); err != nil {
		return p, err
	}
	p.Result = race.Result()
	after, err := a.cpu()
	if err != nil {
		return p, err
	}
	p.CPU = after.minus(before)
	if err := b.quiet(ctx, a); err != nil {
		return p, err
	}
	requests, err := b.cluster.Requests(mark)
	if err != nil {
		return p, err
	}
	p.count(requests, a.user, len(volumes))
	return p, nil
}

const (
	// silence is how long a contender must write nothing to count as finished.
	silence = 1500 * time.Millisecond
	// noise limits the wait for silence.
	noise = time.Minute
)

// quiet returns when the contender has written nothing for a while. Its later writes belong to the volumes too.
// It polls because the audit log signals nothing.
func (b *bench) quiet(ctx context.Context, a *arena) error {
	for deadline := time.Now().Add(noise); time.Now().Before(deadline); {
		mark, err := b.cluster.Mark()
		if err != nil {
			return err
		}
		if err := stage.Pause(ctx, silence); err != nil {
			return err
		}
		requests, err := b.cluster.Requests(mark)
		if err != nil {
			return err
		}
		writes := func(r request) bool { return r.User.Username == a.user && r.IsWrite() }
		if !slices.ContainsFunc(requests, writes) {
			return nil
		}
	}
	return nil
}

// idleRequests are the contender's requests while nothing changes.
func (b *bench) idleRequests(ctx context.Context, a *arena) ([]Count, error) {
	b.say("  idle for %s", b.idle)
	mark, err := b.cluster.Mark()
	if err != nil {
		return nil, err
	}
	if err := stage.Pause(ctx, b.idle); err != nil {
		return nil, err
	}
	requests, err := b.cluster.Requests(mark)
	if err != nil {
		return nil, err
	}
	return counts(requests, a.user, b.idle.Minutes()), nil
}

// between is the pause between two single volumes. It is not a multiple of any period of upstream's.
const between = 137 * time.Millisecond

// oneByOne measures volumes that are attached and detached one at a time, next to others that are attached.
func (b *bench) oneByOne(ctx context.Context, a *arena, existing int) (Point, error) {
	point := Point{Existing: existing}
	before, err := a.cpu()
	if err != nil {
		return point, err
	}
	var up, down []time.Duration
	for _, v := range b.single[:b.repetitions] {
		a.attaching.Store(judge.NewRace(1, 1))
		a.detaching.Store(judge.NewRace(1, a.wish.toDetach))
		for _, way := range []struct {
			send  func(context.Context, *stage.Volume) error
			race  *judge.Race
			times *[]time.Duration
		}{{a.come, a.attaching.Load(), &up}, {a.leave, a.detaching.Load(), &down}} {
			if err := way.send(ctx, v); err != nil {
				return point, err
			}
			if err := way.race.Wait(ctx, b.stallTimeout, time.Minute, func(int) {}); err != nil {
				return point, err
			}
			result := way.race.Result()
			if result.LeftBehind > 0 {
				return point, fmt.Errorf("volume %s, alone, was not attached and detached in %s", v.Name, b.stallTimeout)
			}
			*way.times = append(*way.times, result.Latency.Max)
			if err := stage.Pause(ctx, between); err != nil {
				return point, err
			}
		}
	}
	after, err := a.cpu()
	if err != nil {
		return point, err
	}
	point.Attach, point.Detach, point.CPU = judge.Of(up), judge.Of(down), after.minus(before).per(2*b.repetitions)
	b.say("  one at a time next to %d: %s", existing, point)
	return point, nil
}

// CPU time of each part.
type CPU struct {
	Contender time.Duration `json:"contenderNanoseconds"`
	APIServer time.Duration `json:"apiServerNanoseconds"`
	Etcd      time.Duration `json:"etcdNanoseconds"`
	// Bench is the CPU time of the wishes, the stubs and the judge.
	Bench time.Duration `json:"benchNanoseconds"`
}

func (a *arena) cpu() (CPU, error) {
	var c CPU
	for _, part := range []struct {
		pid  int
		time *time.Duration
	}{{a.pids.contender, &c.Contender}, {a.pids.apiServer, &c.APIServer}, {a.pids.etcd, &c.Etcd},
		{a.pids.bench, &c.Bench}} {
		var err error
		if *part.time, err = process.CPU(part.pid); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c CPU) minus(d CPU) CPU {
	return CPU{c.Contender - d.Contender, c.APIServer - d.APIServer, c.Etcd - d.Etcd, c.Bench - d.Bench}
}

func (c CPU) per(n int) CPU {
	d := time.Duration(n)
	return CPU{c.Contender / d, c.APIServer / d, c.Etcd / d, c.Bench / d}
}
