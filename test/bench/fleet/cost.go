/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/bench/attach/cluster"
	"github.com/hawser-io/hawser/test/bench/attach/judge"
	"github.com/hawser-io/hawser/test/bench/attach/process"
	"github.com/hawser-io/hawser/test/bench/attach/stage"
	"github.com/hawser-io/hawser/test/system"
)

// cost is the CPU time of the manager and of the API server.
type cost struct{ manager, apiServer time.Duration }

func (b *bench) cost() (cost, error) {
	var c cost
	apiServer, err := process.Child("kube-apiserver")
	if err != nil {
		return c, err
	}
	if c.manager, err = process.CPU(b.manager.PID); err != nil {
		return c, err
	}
	c.apiServer, err = process.CPU(apiServer)
	return c, err
}

// between is the pause between two single volumes.
const between = 137 * time.Millisecond

// single volumes, attached and detached one at a time.
type alone struct {
	attach, detach judge.Latency
	// cost of one attach or detach, with the pause after it.
	cost cost
}

// background is how long the cost of what goes on without changes is measured.
const background = 5 * time.Second

// calm waits until manager and API server have little to do, and returns the cost before and after the last pause. It
// polls because nothing signals that.
func (b *bench) calm(ctx context.Context) (before, after cost, err error) {
	for begin := time.Now(); err == nil; before = after {
		if after, err = b.cost(); err != nil {
			break
		}
		if before != (cost{}) && (after.manager-before.manager < background/20 &&
			after.apiServer-before.apiServer < background/3 || time.Since(begin) > stalled) {
			break
		}
		err = stage.Pause(ctx, background)
	}
	return before, after, err
}

// oneByOne attaches and detaches volumes one at a time, once the manager has little else to do. What goes on anyway,
// such as the renewals of Leases, is not part of their cost.
func (b *bench) oneByOne(ctx context.Context, volumes []*stage.Volume) (alone, error) {
	idle, before, err := b.calm(ctx)
	if err != nil {
		return alone{}, err
	}
	begin := time.Now()
	a, err := b.latencies(ctx, volumes, once)
	if err != nil {
		return a, err
	}
	after, err := b.cost()
	n, took := float64(2*len(volumes)), float64(time.Since(begin))/float64(background)
	each := func(idle, before, after time.Duration) time.Duration {
		return time.Duration((float64(after-before) - took*float64(before-idle)) / n)
	}
	a.cost.manager = each(idle.manager, before.manager, after.manager)
	a.cost.apiServer = each(idle.apiServer, before.apiServer, after.apiServer)
	return a, err
}

// latencies of volumes that are attached and detached one at a time: each once, and then in turn for as long as there
// is more to measure.
func (b *bench) latencies(ctx context.Context, volumes []*stage.Volume, more func() bool) (alone, error) {
	var a alone
	var up, down []time.Duration
	for i := 0; i < len(volumes) || more(); i++ {
		v := volumes[i%len(volumes)]
		for _, way := range []struct {
			do    func(context.Context, []*stage.Volume) (judge.Result, error)
			times *[]time.Duration
		}{{b.attach, &up}, {b.detach, &down}} {
			result, err := way.do(ctx, []*stage.Volume{v})
			if err != nil {
				return a, fmt.Errorf("volume %s, alone: %w", v.Name, err)
			}
			*way.times = append(*way.times, result.Latency.Max)
			if err := stage.Pause(ctx, between); err != nil {
				return a, err
			}
		}
	}
	a.attach, a.detach = judge.Of(up), judge.Of(down)
	return a, nil
}

func once() bool { return false }

// writes of the manager since mark, by verb and resource, without events.
func (b *bench) writes(mark system.AuditMark) (total int, each string, err error) {
	requests, err := b.cluster.Requests(mark)
	if err != nil {
		return 0, "", err
	}
	counts := map[string]int{}
	for _, r := range requests {
		if r.User.Username == system.ManagerUser && r.IsWrite() && r.ObjectRef.Resource != "events" {
			counts[r.Verb+" "+r.What()]++
			total++
		}
	}
	var lines []string
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		lines = append(lines, fmt.Sprintf("%d %s", counts[what], what))
	}
	return total, strings.Join(lines, ", "), nil
}

// requests of the manager since mark, without watches that began.
func (b *bench) requests(mark system.AuditMark) (int, error) {
	all, err := b.cluster.Requests(mark)
	n := 0
	for _, r := range all {
		if r.User.Username == system.ManagerUser && r.Verb != "watch" {
			n++
		}
	}
	return n, err
}

// live is the heap that the manager holds after a garbage collection, which the profile that is written shows.
func (b *bench) live(ctx context.Context, profile string) (int64, error) {
	data, err := cluster.Get(ctx, pprof, "/debug/pprof/heap?gc=1")
	if err != nil {
		return 0, err
	}
	if err := b.keep(profile, data); err != nil {
		return 0, err
	}
	if data, err = cluster.Get(ctx, pprof, "/debug/pprof/heap?debug=1"); err != nil {
		return 0, err
	}
	found := heapAlloc.FindSubmatch(data)
	if found == nil {
		return 0, errors.New("the manager's heap profile has no HeapAlloc")
	}
	return strconv.ParseInt(string(found[1]), 10, 64)
}

// pprof is the manager's endpoint.
var pprof = &rest.Config{Host: "http://" + pprofAddress}

// keep a profile beside the logs.
func (b *bench) keep(name string, data []byte) error {
	if err := os.WriteFile(filepath.Join(b.cluster.Dir(), name+".pprof"), data, 0o600); err != nil {
		return fmt.Errorf("writing the profile: %w", err)
	}
	return nil
}

// profile of the manager's processor time, from as soon as the manager serves it. Nothing signals that.
func (b *bench) profile(ctx context.Context, name string) error {
	for begin := time.Now(); ; {
		data, err := cluster.Get(ctx, pprof, "/debug/pprof/profile?seconds=15")
		switch {
		case err == nil:
			return b.keep(name, data)
		case time.Since(begin) > time.Minute:
			return err
		}
		if err := stage.Pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

var heapAlloc = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

// metric sums a metric of the API server over all its labels that match.
func (b *bench) metric(ctx context.Context, name string, matches func(labels map[string]string) bool) (float64, error) {
	data, err := cluster.Get(ctx, b.cluster.Instruments(), "/metrics")
	if err != nil {
		return 0, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(data)))
	if err != nil {
		return 0, fmt.Errorf("parsing the API server's metrics: %w", err)
	}
	sum := 0.0
	for _, m := range families[name].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if matches(labels) {
			sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetHistogram().GetSampleSum()
		}
	}
	return sum, nil
}

func all(map[string]string) bool { return true }

// sample is of how many objects the size is measured.
const sample = 100

// stored is how many bytes one object of each kind has, encoded as etcd has it: built-in kinds in protobuf, custom
// resources in JSON.
func (b *bench) stored(ctx context.Context) (string, error) {
	var all []string
	const protobuf, plain = "application/vnd.kubernetes.protobuf", "application/json"
	for _, kind := range []struct {
		path, accept string
		count        int
	}{
		{"/api/v1/persistentvolumes", protobuf, sample},
		{"/api/v1/persistentvolumeclaims", protobuf, sample},
		{"/apis/storage.k8s.io/v1/volumeattachments", protobuf, sample},
		{"/apis/volumes.hawser.io/v1alpha1/volumeattachmentintents", plain, sample},
		{"/apis/volumes.hawser.io/v1alpha1/nodevolumestates", plain, min(sample, b.nodes)},
		{"/api/v1/namespaces/" + volumesv1alpha1.InstallNamespace + "/configmaps", protobuf, sample},
		{"/apis/coordination.k8s.io/v1/namespaces/" + volumesv1alpha1.InstallNamespace + "/leases", protobuf,
			min(sample, b.nodes)},
	} {
		config := b.cluster.Instruments()
		config.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
			return accepting{next, kind.accept}
		}
		data, err := cluster.Get(ctx, config, fmt.Sprintf("%s?limit=%d", kind.path, sample))
		if err != nil {
			return "", err
		}
		size := fmt.Sprintf("%s %d", filepath.Base(kind.path), len(data)/kind.count)
		if kind.accept == plain {
			managed, err := managedFields(data)
			if err != nil {
				return "", fmt.Errorf("reading %s: %w", kind.path, err)
			}
			size += fmt.Sprintf(" (managedFields %d)", managed/kind.count)
		}
		all = append(all, size)
	}
	return strings.Join(all, ", "), nil
}

// managedFields is how many bytes of a list they are.
func managedFields(list []byte) (int, error) {
	var objects struct {
		Items []struct {
			Metadata struct {
				ManagedFields json.RawMessage `json:"managedFields"`
			} `json:"metadata"`
		} `json:"items"`
	}
	err := json.Unmarshal(list, &objects)
	n := 0
	for _, o := range objects.Items {
		n += len(o.Metadata.ManagedFields)
	}
	return n, err
}

// accepting asks for one encoding.
type accepting struct {
	next   http.RoundTripper
	accept string
}

func (a accepting) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Accept", a.accept)
	return a.next.RoundTrip(r)
}
