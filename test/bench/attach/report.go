/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attach

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/bench/attach/judge"
	"github.com/hawser-io/hawser/test/bench/attach/process"
	"github.com/hawser-io/hawser/test/bench/attach/raw"
	"github.com/hawser-io/hawser/test/system"
)

type request = system.Request

// Report contains all measurements.
type Report struct {
	Time time.Time `json:"time"`
	// CPUs of the machine, which all processes share.
	CPUs    int    `json:"cpus"`
	Kernel  string `json:"kernel"`
	Volumes int    `json:"volumes"`
	Nodes   int    `json:"nodes"`
	// Repetitions of the measurements one at a time.
	Repetitions int `json:"repetitions"`
	// AttacherFinalizer is true if the stub attacher set a finalizer, as the real one does.
	AttacherFinalizer bool   `json:"attacherFinalizer"`
	Raw               Raw    `json:"raw"`
	Turns             []Turn `json:"turns"`

	// rounds in the order of measurement.
	rounds []Turn
}

// Raw rates of the API server.
type Raw struct {
	VolumeAttachments raw.Rates `json:"volumeAttachments"`
	NodeVolumeStates  raw.Rates `json:"nodeVolumeStates"`
}

// Turn of one contender.
type Turn struct {
	Name     string  `json:"name"`
	OneByOne []Point `json:"oneByOne"`
	// Attach and Detach are from the round with the median rate; of two, the lower one.
	Attach Phase `json:"attach"`
	Detach Phase `json:"detach"`
	// Rates of all rounds, in volumes per second.
	AttachRates []float64 `json:"attachRates"`
	DetachRates []float64 `json:"detachRates"`
	// Idle requests per minute, with everything attached.
	Idle []Count `json:"idlePerMinute"`
	// Memory of the contender's process in the first round.
	Memory process.Memory `json:"memory"`
	// Swept is how many attachments were left at the end of all rounds.
	Swept int `json:"swept"`
}

// Point is the cost of one volume next to others.
type Point struct {
	// Existing is the number of other attached volumes.
	Existing int           `json:"existing"`
	Attach   judge.Latency `json:"attach"`
	Detach   judge.Latency `json:"detach"`
	// CPU of one attach or detach with the pause after it.
	CPU CPU `json:"cpu"`
}

func (p Point) String() string {
	return fmt.Sprintf(
		"attach p50 %s, p90 %s; detach p50 %s, p90 %s; CPU of the contender %.1f ms, of the API server %.1f ms",
		show(p.Attach.P50), show(p.Attach.P90), show(p.Detach.P50), show(p.Detach.P90), milliseconds(p.CPU.Contender),
		milliseconds(p.CPU.APIServer))
}

// Phase is the attach or detach of many volumes.
type Phase struct {
	judge.Result
	// WritesPerVolume and ReadsPerVolume are the contender's, without Events.
	WritesPerVolume float64 `json:"writesPerVolume"`
	ReadsPerVolume  float64 `json:"readsPerVolume"`
	EventsPerVolume float64 `json:"eventsPerVolume"`
	// Requests for each volume of all users.
	Requests []Count `json:"requestsPerVolume"`
	CPU      CPU     `json:"cpu"`
}

func (p Phase) String() string {
	left := ""
	if p.LeftBehind > 0 {
		left = fmt.Sprintf(", %d LEFT BEHIND", p.LeftBehind)
	}
	return fmt.Sprintf(
		"%.0f/s (%d in %.2f s%s); p50 %s, p90 %s, p99 %s; %.2f writes, %.2f reads, %.2f Events each; CPU contender %.1f "+
			"s, API server %.1f s, etcd %.1f s, bench %.1f s",
		p.PerSecond, p.Through, p.Seconds, left, show(p.Latency.P50), show(p.Latency.P90), show(p.Latency.P99),
		p.WritesPerVolume, p.ReadsPerVolume, p.EventsPerVolume,
		p.CPU.Contender.Seconds(), p.CPU.APIServer.Seconds(), p.CPU.Etcd.Seconds(), p.CPU.Bench.Seconds())
}

// Count of requests of one kind.
type Count struct {
	Verb     string  `json:"verb"`
	Resource string  `json:"resource"`
	Failed   bool    `json:"failed,omitempty"`
	Count    float64 `json:"count"`
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// show formats a time so that it is easy to compare.
func show(d time.Duration) string {
	if d >= 10*time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f ms", milliseconds(d))
}

// add adds a turn, or another round of a turn that exists.
func (r *Report) add(turn Turn) {
	r.rounds = append(r.rounds, turn)
	i := slices.IndexFunc(r.Turns, func(t Turn) bool { return t.Name == turn.Name })
	if i < 0 {
		i = len(r.Turns)
		r.Turns = append(r.Turns, turn)
	} else {
		r.Turns[i].Swept += turn.Swept
	}
	all := &r.Turns[i]
	all.Attach, all.AttachRates = r.median(turn.Name, attachOf)
	all.Detach, all.DetachRates = r.median(turn.Name, detachOf)
}

// median of the rounds of a contender, and the rates of all of them.
func (r *Report) median(name string, of func(Turn) Phase) (Phase, []float64) {
	var phases []Phase
	var rates []float64
	for _, turn := range r.rounds {
		if turn.Name == name {
			phases = append(phases, of(turn))
			rates = append(rates, of(turn).PerSecond)
		}
	}
	slices.SortStableFunc(phases, func(p, q Phase) int { return cmp.Compare(p.PerSecond, q.PerSecond) })
	return phases[(len(phases)-1)/2], rates
}

// count records how many requests the contender's user made for each volume.
func (p *Phase) count(requests []request, user string, volumes int) {
	p.Requests = counts(requests, user, float64(volumes))
	for _, c := range p.Requests {
		switch {
		case c.Verb == "watch":
		case c.Resource == "events":
			p.EventsPerVolume += c.Count
		case c.isWrite():
			p.WritesPerVolume += c.Count
		default:
			p.ReadsPerVolume += c.Count
		}
	}
}

func (c Count) isWrite() bool { return request{Verb: c.Verb}.IsWrite() }

// counts requests of one user by kind, divided by divisor.
func counts(requests []request, user string, divisor float64) []Count {
	sorts := map[Count]int{}
	for _, r := range requests {
		if r.User.Username == user {
			sorts[Count{Verb: r.Verb, Resource: resource(r), Failed: r.ResponseStatus.Code >= 400}]++
		}
	}
	var all []Count
	for c, n := range sorts {
		c.Count = float64(n) / divisor
		all = append(all, c)
	}
	slices.SortFunc(all, func(x, y Count) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.Resource+x.Verb, y.Resource+y.Verb))
	})
	return all
}

// resource names the request's resource. It separates the locks of exclusive volumes from other ConfigMaps.
func resource(r request) string {
	if r.ObjectRef.Resource == "configmaps" && strings.HasPrefix(r.ObjectRef.Name, volumesv1alpha1.ExclusiveLocksPrefix) {
		return "configmaps (locks)"
	}
	return r.What()
}

// publish prints the report and writes it to its file.
func (b *bench) publish() error {
	r := &b.report
	r.Time, r.CPUs, r.Volumes, r.Nodes, r.Repetitions, r.AttacherFinalizer = time.Now().UTC(), runtime.NumCPU(), b.volumes,
		b.nodes, b.repetitions, b.finalizer
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil { // otherwise the kernel stays empty
		r.Kernel = strings.TrimSpace(string(release))
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the report: %w", err)
	}
	path := b.json
	if path == "" {
		path = b.cluster.Dir() + "-report.json"
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	r.print(b.Out)
	_, err = fmt.Fprintf(b.Out, "\nthe same, machine-readable: %s\n", path)
	return err
}
