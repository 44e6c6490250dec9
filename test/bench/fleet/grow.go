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

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/bench/attach/judge"
	"github.com/hawser-io/hawser/test/bench/attach/process"
	"github.com/hawser-io/hawser/test/bench/attach/stage"
)

// grow attaches the volumes, and measures one change beside each number of them.
func (b *bench) grow(ctx context.Context) error {
	first, attached := alone{}, 0
	for _, point := range b.points() {
		byNode, next := inTurn(b.many[attached:point])
		if err := b.attachAll(ctx, byNode, "node by node"); err != nil {
			return err
		}
		if err := b.attachAll(ctx, next, "in no order"); err != nil {
			return err
		}
		attached = point
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

// attachAll attaches the volumes, whose intents come in that order.
func (b *bench) attachAll(ctx context.Context, volumes []*stage.Volume, order string) error {
	return b.mass(ctx, volumes, fmt.Sprintf("attach %d at once, %s", len(volumes), order), b.attach)
}

// mass measures what is done to all volumes at once.
func (b *bench) mass(ctx context.Context, volumes []*stage.Volume, name string,
	do func(context.Context, []*stage.Volume) (judge.Result, error)) error {
	if len(volumes) == 0 {
		return nil
	}
	mark, err := b.cluster.Mark()
	if err != nil {
		return err
	}
	result, err := do(ctx, volumes)
	if err != nil {
		return err
	}
	writes, each, err := b.writes(mark)
	if err != nil {
		return err
	}
	b.add(name, "%.0f/s, p50 %s, p99 %s, %.2f writes each (%s)", result.PerSecond, show(result.Latency.P50),
		show(result.Latency.P99), float64(writes)/float64(len(volumes)), each)
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

// most is how many volumes come and go in no order.
const most = 100 * few

// inTurn returns the most volumes in no order, and the others node by node, as when a pool of nodes gets its pods. A
// node's state is then written less often, which leaves time for the other measurements.
func inTurn(volumes []*stage.Volume) (byNode, noOrder []*stage.Volume) {
	order := rand.New(rand.NewPCG(1, 1)).Perm(len(volumes))
	chosen := order[:min(most, len(order))]
	for _, i := range chosen {
		noOrder = append(noOrder, volumes[i])
	}
	slices.Sort(chosen)
	for i, v := range volumes {
		if _, found := slices.BinarySearch(chosen, i); !found {
			byNode = append(byNode, v)
		}
	}
	return byNode, noOrder
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

// memoryOfNodes is what the manager holds of nodes without volumes, once it has created their states.
func (b *bench) memoryOfNodes(ctx context.Context) error {
	if _, _, err := b.calm(ctx); err != nil {
		return err
	}
	states := &volumesv1alpha1.NodeVolumeStateList{}
	if err := b.load.List(ctx, states); err != nil {
		return fmt.Errorf("listing the states of the nodes: %w", err)
	}
	if len(states.Items) != b.nodes {
		return fmt.Errorf("%d nodes have %d states, want all", b.nodes, len(states.Items))
	}
	live, err := b.live(ctx, "heap-nodes")
	b.add("live heap of the manager for each node", "%.1f KiB, beside %d without volumes",
		float64(live-b.base)/float64(b.nodes)/1024, b.nodes)
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

// shrink deletes the intents: first the most that come in no order, then the rest.
func (b *bench) shrink(ctx context.Context) error {
	byNode, first := inTurn(b.many)
	for _, part := range []struct {
		order   string
		volumes []*stage.Volume
	}{{"in no order", first}, {"node by node", byNode}} {
		name := fmt.Sprintf("delete %d intents at once, %s", len(part.volumes), part.order)
		if err := b.mass(ctx, part.volumes, name, b.detach); err != nil {
			return err
		}
	}
	return nil
}
