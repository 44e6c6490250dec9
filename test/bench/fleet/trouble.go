/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package fleet

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/test/bench/attach/judge"
	"github.com/hawser-io/hawser/test/bench/attach/process"
	"github.com/hawser-io/hawser/test/bench/attach/stage"
	"github.com/hawser-io/hawser/test/bench/attach/stub"
)

// restart stops the manager and starts it again. Meanwhile an intent came.
func (b *bench) restart(ctx context.Context) error {
	b.manager.Stop()
	before, err := b.listed(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	b.manager, err = b.start(ctx, "restarted", "--leader-elect=false", "--pprof-bind-address="+pprofAddress)
	if err != nil {
		return err
	}
	var profile errgroup.Group
	profile.Go(func() error { return b.profile(ctx, "restart") })
	if err := b.first(ctx); err != nil {
		return err
	}
	took := time.Since(begin)
	if err := profile.Wait(); err != nil {
		return err
	}
	after, err := b.listed(ctx)
	if err != nil {
		return err
	}
	memory, err := process.MemoryOf(b.manager.PID)
	if err != nil {
		return err
	}
	b.add("restart of the manager", "%s read from the API server, peak memory %s", mebibytes(int64(after-before)),
		mebibytes(memory.Peak))
	b.goal("restart of the manager until its first volume is attached", "<= 20 s at 100,000", show(took))
	_, err = b.detach(ctx, b.single[:1])
	return err
}

// listed is how much the API server has sent in answer to lists, and as events of watches, lists that are streamed
// included.
func (b *bench) listed(ctx context.Context) (float64, error) {
	lists, err := b.metric(ctx, "apiserver_response_sizes", func(labels map[string]string) bool {
		return labels["verb"] == "LIST"
	})
	if err != nil {
		return 0, err
	}
	watches, err := b.metric(ctx, "apiserver_watch_events_sizes", all)
	return lists + watches, err
}

// first attaches one volume while the agents renew their Leases as real ones do. A manager counts on no agent that it
// has not heard.
func (b *bench) first(ctx context.Context) error {
	renewing, stop := context.WithCancel(ctx)
	defer stop()
	go b.agents.RenewEvery(renewing, stub.LeaseInterval, nil)
	_, err := b.attach(ctx, b.single[:1])
	return err
}

// loseLeader kills the leader of two managers.
func (b *bench) loseLeader(ctx context.Context) error {
	b.manager.Stop()
	leader, err := b.start(ctx, "leader", "--leader-elect")
	if err != nil {
		return err
	}
	b.manager = leader
	if err := b.first(ctx); err != nil {
		return err
	}
	if _, err := b.detach(ctx, b.single[:1]); err != nil {
		return err
	}
	if b.manager, err = b.start(ctx, "follower", "--leader-elect", "--pprof-bind-address="+pprofAddress); err != nil {
		return err
	}
	// The follower has filled its caches and heard the agents by the time of its second look at the Lease.
	if err := stage.Pause(ctx, liveness.DefaultDuration); err != nil {
		return err
	}
	begin := time.Now()
	if err := leader.Kill(); err != nil {
		return err
	}
	if err := b.first(ctx); err != nil {
		return err
	}
	b.add("the leader of two managers is killed", "the other one has attached the next volume %s later",
		show(time.Since(begin)))
	_, err = b.detach(ctx, b.single[:1])
	return err
}

// zone is the last tenth of the nodes.
func (b *bench) zone() []string { return b.stage.Nodes[b.nodes-b.nodes/10:] }

func (b *bench) inZone(node string) bool { return slices.Contains(b.zone(), node) }

// silence has a zone go silent and come back, and meanwhile measures volumes elsewhere.
func (b *bench) silence(ctx context.Context) error {
	mark, err := b.cluster.Mark()
	if err != nil {
		return err
	}
	var intents []*stage.Volume
	for _, v := range b.many {
		if b.inZone(v.Node) {
			intents = append(intents, v)
		}
	}
	marked, unknown := judge.NewRace(len(b.zone()), 1), judge.NewRace(len(intents), 1)
	for _, node := range b.zone() {
		marked.Begin(node)
	}
	for _, v := range intents {
		unknown.Begin(v.Name)
	}
	b.marked.Store(marked)
	b.unknown.Store(unknown)
	if err := b.agents.Silence(ctx, b.zone()); err != nil {
		return err
	}
	// All are heard until then.
	if err := stage.Pause(ctx, liveness.DefaultDuration); err != nil {
		return err
	}
	begin := time.Now()
	elsewhere, err := b.latencies(ctx, b.single[:len(b.single)/2], func() bool {
		return unknown.Result().LeftBehind > 0 && time.Since(begin) < stalled
	})
	if err != nil {
		return err
	}
	marks, err := b.finish(ctx, marked, nil)
	if err != nil {
		return err
	}
	told, err := b.finish(ctx, unknown, nil)
	if err != nil {
		return err
	}
	writes, each, err := b.writes(mark)
	if err != nil {
		return err
	}
	b.add(fmt.Sprintf("%d nodes with %d intents go silent", len(b.zone()), len(intents)),
		"%d writes (%s); intents Unknown after p50 %s, max %s; elsewhere attach p50 %s, max %s, detach p50 %s, max %s",
		writes, each, since(told.Latency.P50), since(told.Latency.Max), show(elsewhere.attach.P50),
		show(elsewhere.attach.Max), show(elsewhere.detach.P50), show(elsewhere.detach.Max))
	b.goal("states of nodes that went silent", "<= 10 s", since(marks.Latency.Max))
	b.goal("detach elsewhere meanwhile", "delayed by <= 1 s", "p50 "+show(elsewhere.detach.P50)+", max "+
		show(elsewhere.detach.Max))
	return b.comeBack(ctx, intents)
}

// since the Leases have expired.
func since(d time.Duration) string { return show(d - liveness.DefaultDuration) }

// comeBack has the zone's agents report again. They write what is theirs to write of their intents.
func (b *bench) comeBack(ctx context.Context, intents []*stage.Volume) error {
	mark, err := b.cluster.Mark()
	if err != nil {
		return err
	}
	if err := b.agents.Return(ctx, b.zone()); err != nil {
		return err
	}
	if err := stage.Each(ctx, intents, b.takeBack); err != nil {
		return err
	}
	if err := stage.Pause(ctx, settle); err != nil {
		return err
	}
	writes, each, err := b.writes(mark)
	b.add("they come back", "%d writes of the manager (%s)", writes, each)
	return err
}

// takeBack reports an intent as its agent would.
func (b *bench) takeBack(ctx context.Context, v *stage.Volume) error {
	i := &volumesv1alpha1.VolumeAttachmentIntent{}
	if err := b.load.Get(ctx, v.Key(), i); err != nil {
		return fmt.Errorf("reading intent %s: %w", v.Name, err)
	}
	patch := client.MergeFrom(i.DeepCopy())
	meta.SetStatusCondition(&i.Status.Conditions, metav1.Condition{
		Type: volumesv1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: volumesv1alpha1.ReasonReady,
		ObservedGeneration: i.Generation,
	})
	if err := b.load.Status().Patch(ctx, i, patch); err != nil {
		return fmt.Errorf("reporting intent %s: %w", v.Name, err)
	}
	return nil
}

// breakDriver attaches volumes whose driver fails.
func (b *bench) breakDriver(ctx context.Context) error {
	result, err := b.attach(ctx, b.broken)
	if err != nil {
		return err
	}
	mark, err := b.cluster.Mark()
	if err != nil {
		return err
	}
	elsewhere, err := b.latencies(ctx, b.single[:len(b.single)/2], once)
	if err != nil {
		return err
	}
	if err := stage.Pause(ctx, b.idle); err != nil {
		return err
	}
	writes, each, err := b.writes(mark)
	if err != nil {
		return err
	}
	b.add(fmt.Sprintf("the driver fails for %d volumes", len(b.broken)),
		"said after p50 %s, max %s; afterwards in %s %d writes (%s); elsewhere attach p50 %s, detach p50 %s",
		show(result.Latency.P50), show(result.Latency.Max), b.idle, writes, each, show(elsewhere.attach.P50),
		show(elsewhere.detach.P50))
	_, err = b.detach(ctx, b.broken)
	return err
}
