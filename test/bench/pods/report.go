/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package pods

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hawser-io/hawser/test/bench/attach/judge"
	"github.com/hawser-io/hawser/test/system"
)

func times(list []time.Duration) string {
	l := judge.Of(list)
	return fmt.Sprintf("p50 %d ms, p90 %d ms, max %d ms, of %d", l.P50.Milliseconds(), l.P90.Milliseconds(),
		l.Max.Milliseconds(), len(list))
}

// apart reports whether a write is not counted: one that happens without pods too, or is the administrator's. The bench
// and the scheduler are the administrator; both write the same for each kind of pod. Reports of nodes count: by default
// a kubelet writes one every five minutes, and beside that only after a change, such as that of its volumes in use.
func apart(r system.Request) bool {
	return r.ObjectRef.Resource == "leases" || r.ObjectRef.Resource == "events" ||
		r.User.Username == "admin" || r.User.Username == "kubernetes-admin"
}

// count keeps the writes for each of the pods, by user and resource.
func (r *result) count(requests []system.Request, pods int) {
	r.counted, r.writes = map[string]float64{}, 0
	for _, request := range requests {
		if !request.IsWrite() || apart(request) {
			continue
		}
		share := 1 / float64(pods)
		r.writes += share
		user := request.User.Username[strings.LastIndex(request.User.Username, ":")+1:]
		r.counted[fmt.Sprintf("%-24s %-7s %s", user, request.Verb, request.What())] += share
	}
}

func (b *bench) writeTable(k kind) {
	r := b.of(k)
	b.say("\nwrites for each pod, %s: %.1f (without Leases and events)", k.name, r.writes)
	for _, line := range slices.SortedFunc(maps.Keys(r.counted), func(x, y string) int {
		return cmp.Or(cmp.Compare(r.counted[y], r.counted[x]), cmp.Compare(x, y))
	}) {
		b.say("  %6.2f  %s", r.counted[line], line)
	}
}

// goal is one row of the table of goals.
type goal struct {
	what, wanted, measured string
	met                    bool
}

// share compares a time with a share of another one.
func share(what string, ours, theirs time.Duration, most float64) goal {
	ratio := float64(ours) / float64(max(theirs, 1))
	return goal{what: what, wanted: fmt.Sprintf("<= %.3gx", most), met: ours > 0 && theirs > 0 && ratio <= most,
		measured: fmt.Sprintf("%.2fx (%d ms, %d ms)", ratio, ours.Milliseconds(), theirs.Milliseconds())}
}

// goals compares the kinds of the run.
func (b *bench) goals() []goal {
	p50 := func(k kind) time.Duration { return judge.Of(b.of(k).running).P50 }
	moved := func(k kind) time.Duration { return judge.Of(b.of(k).moved).P50 }
	plugged := judge.Of(b.of(hotplug).plugged).P50
	bare, most := p50(noVolume), p50(noVolume)*12/10+time.Second
	return []goal{
		share("created -> running, {claim} against upstream", p50(claimed), p50(upstream), 1.0/8),
		{"created -> running, {claim} against no volume", "<= 1.2x and 1 s",
			fmt.Sprintf("%d ms, %d ms", p50(claimed).Milliseconds(), bare.Milliseconds()), p50(claimed) <= most},
		share("{intent} published before, against no volume", p50(published), bare, 1.1),
		{"intent created -> its directory seen by the running pod that selects it", "<= 300 ms",
			fmt.Sprintf("%d ms", plugged.Milliseconds()), plugged > 0 && plugged <= 300*time.Millisecond},
		share("{intent} published before, against an emptyDir", p50(published), p50(emptyVolume), 1.1),
		share("emptyDir, against no volume: what the kubelet needs for any volume", p50(emptyVolume), bare, 1.1),
		share("pod deleted -> the next one runs on another node, {claim} against upstream", moved(claimed),
			moved(upstream), 1.0/5),
		share(fmt.Sprintf("%d pods at once, {claim} against upstream", b.mass), b.of(claimed).mass, b.of(upstream).mass,
			1.0/2),
		{"writes for each pod, {claim} against a claim in Replace", "not more",
			fmt.Sprintf("%.1f, %.1f", b.of(claimed).writes, b.of(replaced).writes),
			b.of(claimed).writes <= b.of(replaced).writes},
	}
}

func (b *bench) report() {
	b.say("\n| goal | | measured | |\n|---|---|---|---|")
	for _, g := range b.goals() {
		outcome := "missed"
		if g.met {
			outcome = "met"
		}
		b.say("| %s | %s | %s | %s |", g.what, g.wanted, g.measured, outcome)
	}
}
