/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hawser-io/hawser/test/bench/attach/process"
	"github.com/hawser-io/hawser/test/bench/attach/stage"
)

// grow attaches the volumes, and measures one change beside each number of them.
func (b *bench) grow(ctx context.Context) error {
	first, attached := alone{}, 0
	for _, point := range b.points() {
		mark, err := b.cluster.Mark()
		if err != nil {
			return err
		}
		next := shuffled(b.many[attached:point])
		result, err := b.attach(ctx, next)
		if err != nil {
			return err
		}
		attached = point
		writes, each, err := b.writes(mark)
		if err != nil {
			return err
		}
		n := float64(len(next))
		b.add(fmt.Sprintf("attach %d at once", len(next)), "%.0f/s, p50 %s, p99 %s, %.2f writes each (%s)", result.PerSecond,
			show(result.Latency.P50), show(result.Latency.P99), float64(writes)/n, each)
		if err := stage.Pause(ctx, settle); err != nil {
			return err
		}
		one, err := b.oneByOne(ctx, b.single)
		if err != nil {
			return err
		}
		b.add(fmt.Sprintf("one change beside %d", point),
			"attach p50 %s, p90 %s; detach p50 %s, p90 %s; CPU of the manager %s, of the API server %s",
			show(one.attach.P50), show(one.attach.P90), show(one.detach.P50), show(one.detach.P90),
			show(one.cost.manager), show(one.cost.apiServer))
		switch point {
		case few:
			first = one
		case b.volumes:
			b.goal(fmt.Sprintf("one change beside %d against %d", b.volumes, few), "<= 1.1x", fmt.Sprintf(
				"attach %.2fx, detach %.2fx, CPU of the manager %.2fx, of the API server %.2fx",
				ratio(one.attach.P50, first.attach.P50), ratio(one.detach.P50, first.detach.P50),
				ratio(one.cost.manager, first.cost.manager), ratio(one.cost.apiServer, first.cost.apiServer)))
		}
	}
	return nil
}

// settle is how long the last writes of a mass phase may take.
const settle = 3 * time.Second

// points are the numbers of volumes beside which one change is measured.
func (b *bench) points() []int {
	points := []int{few}
	for n := 100 * few; n < b.volumes; n *= 10 {
		points = append(points, n)
	}
	return append(points, b.volumes)
}

// shuffled spreads volumes that are listed by node over the time.
func shuffled(volumes []*stage.Volume) []*stage.Volume {
	volumes = slices.Clone(volumes)
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(volumes), func(i, j int) { volumes[i], volumes[j] = volumes[j], volumes[i] })
	return volumes
}

// memoryOfNothing is the manager's without nodes and volumes. Its caches are filled once it serves its profile.
func (b *bench) memoryOfNothing(ctx context.Context) error {
	if err := stage.Pause(ctx, 2*settle); err != nil {
		return err
	}
	memory, err := process.MemoryOf(b.manager.PID)
	if err != nil {
		return err
	}
	b.resident = memory.Resident
	b.base, err = b.live(ctx, "heap-nothing")
	return err
}

// memory of everything with all attached.
func (b *bench) memory(ctx context.Context) error {
	manager, err := process.MemoryOf(b.manager.PID)
	if err != nil {
		return err
	}
	live, err := b.live(ctx, "heap-all")
	if err != nil {
		return err
	}
	apiServer, etcd := process.Memory{}, process.Memory{}
	for name, memory := range map[string]*process.Memory{"kube-apiserver": &apiServer, "etcd": &etcd} {
		pid, err := process.Child(name)
		if err != nil {
			return err
		}
		if *memory, err = process.MemoryOf(pid); err != nil {
			return err
		}
	}
	size, err := b.metric(ctx, "apiserver_storage_size_bytes", all)
	if err != nil {
		return err
	}
	b.add(fmt.Sprintf("memory of the manager beside %d", b.volumes),
		"resident %s, peak %s, live heap %s; without any %s, live heap %s",
		mebibytes(manager.Resident), mebibytes(manager.Peak), mebibytes(live), mebibytes(b.resident), mebibytes(b.base))
	b.add("memory of API server and etcd, bytes in etcd", "%s, %s, %s", mebibytes(apiServer.Resident),
		mebibytes(etcd.Resident), mebibytes(int64(size)))
	stored, err := b.stored(ctx)
	if err != nil {
		return err
	}
	b.add("bytes of one object, as etcd has it", "%s", stored)
	each := func(bytes int64) float64 { return float64(bytes) / float64(len(b.stage.Volumes)) / 1024 }
	b.goal("memory of the manager for each volume, with its share of a node", "<= 12 KiB", fmt.Sprintf(
		"resident %.1f KiB, live heap %.1f KiB", each(manager.Resident-b.resident), each(live-b.base)))
	b.goal(fmt.Sprintf("peak memory of the manager at %d", b.volumes), "<= 1.5 GiB at 100,000", mebibytes(manager.Peak))
	return nil
}

// quiet counts the manager's requests while nothing changes.
func (b *bench) quiet(ctx context.Context) error {
	mark, err := b.cluster.Mark()
	if err != nil {
		return err
	}
	if err := stage.Pause(ctx, b.idle); err != nil {
		return err
	}
	n, err := b.requests(mark)
	b.goal("requests of the manager in an idle minute", "0", fmt.Sprintf("%.0f", float64(n)/b.idle.Minutes()))
	return err
}

// shrink deletes the intents: first 10,000 at once, then the rest.
func (b *bench) shrink(ctx context.Context) error {
	rest := shuffled(b.many)
	for len(rest) > 0 {
		n := len(rest)
		if n == b.volumes {
			n = min(n, 100*few)
		}
		mark, err := b.cluster.Mark()
		if err != nil {
			return err
		}
		result, err := b.detach(ctx, rest[:n])
		if err != nil {
			return err
		}
		writes, each, err := b.writes(mark)
		if err != nil {
			return err
		}
		rest = rest[n:]
		b.add(fmt.Sprintf("delete %d intents at once", n), "%.0f/s, p50 %s, p99 %s, %.2f writes each (%s)", result.PerSecond,
			show(result.Latency.P50), show(result.Latency.P99), float64(writes)/float64(n), each)
	}
	return nil
}
