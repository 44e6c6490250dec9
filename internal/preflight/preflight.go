/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package preflight judges whether Hawser can be installed in a cluster, and what it gives for each driver there.
//
// It is pure. Package preflight/read reads, package cli prints. What could not be read is named with the checks that
// are left out: it never counts as OK.
package preflight

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hawser-io/hawser/internal/doctor"
	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/version"
)

// Status of a check.
type Status string

const (
	// Blocked means that an installation would fail, or that Hawser would not work.
	Blocked Status = "BLOCKED"
	// Warn means that something has to be known or set before.
	Warn Status = "WARN"
	// OK means that it was read, and is as it should be.
	OK Status = "OK"
)

// statuses, the worst first.
var statuses = []Status{Blocked, Warn, OK}

// Check is one thing that was examined.
type Check struct {
	Status Status `json:"status"`
	// Name of what was examined.
	Name string `json:"name"`
	// Text is what was seen, of a check that is OK. Any other has a finding.
	Text string `json:"text,omitempty"`
	*explain.Finding
}

// Report about a cluster.
type Report struct {
	// Version of the plugin, which is that of the Hawser to be installed.
	Version string `json:"version"`
	// Namespace that Hawser is to have.
	Namespace string `json:"namespace"`
	// Kubernetes is the version of the API server, and Distribution what its nodes show.
	Kubernetes   string `json:"kubernetes,omitempty"`
	Distribution string `json:"distribution,omitempty"`
	// Nodes is -1 if they could not be read.
	Nodes int `json:"nodes"`
	// Installed is true if the cluster has Hawser's kinds, of the version InstalledVersion if that is known.
	Installed        bool   `json:"hawserInstalled"`
	InstalledVersion string `json:"hawserVersion,omitempty"`
	// Checks, the worst first.
	Checks     []Check    `json:"checks"`
	AttachMode AttachMode `json:"attachMode"`
	Drivers    []Driver   `json:"drivers"`
	// Others are volumes without a CSI driver, by their kind.
	Others []Source `json:"otherVolumes,omitempty"`
	// LeftOut is what could not be read.
	LeftOut []doctor.LeftOut `json:"leftOut,omitempty"`
	// InitialSpec is what to set in the first VolumeManager because of the checks.
	InitialSpec map[string]any `json:"initialSpec,omitempty"`
	// Next is the command to go on with, and NextRemark when, or with what.
	Next       string    `json:"next"`
	NextRemark string    `json:"nextRemark,omitempty"`
	Time       time.Time `json:"time"`
}

// Count returns how many checks have a status.
func (r *Report) Count(s Status) int {
	n := 0
	for i := range r.Checks {
		if r.Checks[i].Status == s {
			n++
		}
	}
	return n
}

// check examines one thing.
type check struct {
	name string
	// needs are kinds without which it is left out, and helps those without which it sees less.
	needs, helps []string
	run          func(*examination)
}

// checks in the order of an installation.
var checks = []check{
	{"Kubernetes version", []string{KindVersion}, nil, kubernetesVersion},
	{"API kinds", []string{KindDiscovery}, nil, apiKinds},
	{"admission policies", []string{KindDiscovery, KindPolicyTrial}, []string{KindControlPlane}, policies},
	{"your rights", []string{KindRights}, nil, rights},
	{"privileged pods", []string{KindNamespace}, nil, privilegedPods},
	{"nodes", []string{facts.KindNode}, nil, nodes},
	{"ports of the nodes", []string{KindDaemonSet}, []string{KindDeployment, KindStatefulSet}, hostPorts},
	{"port of the API server", []string{KindEndpoints}, nil, apiPort},
	{"kubelet directory", []string{KindDaemonSet, facts.KindNode}, nil, kubeletDirectory},
	{"attach/detach controller", []string{facts.KindNode}, []string{KindControlPlane}, attachDetach},
	{"SELinux", []string{facts.KindNode, facts.KindCSIDriver}, nil, seLinux},
	{"drivers", []string{facts.KindCSIDriver, facts.KindCSINode},
		[]string{facts.KindVolume, facts.KindAttachment, facts.KindLease, KindDeployment, KindStatefulSet, KindDaemonSet},
		drivers},
}

// Examine judges the cluster.
func Examine(f *Facts, now time.Time) *Report {
	x := &examination{Facts: f, now: now, errs: maps.Clone(f.errors()), lacking: map[string][]string{}}
	x.distribution = distributionOf(f)
	x.report = &Report{Version: version.Version, Namespace: f.System, Kubernetes: f.Version,
		Nodes:        count(f.Nodes.Items, f.Nodes.Err),
		Distribution: x.distribution.Name, Installed: f.Installed, InstalledVersion: f.InstalledVersion,
		Checks: []Check{}, Drivers: []Driver{}, InitialSpec: map[string]any{}, Time: now}
	for _, k := range checks {
		x.check = k.name
		missing := x.unread(k.needs)
		for _, kind := range missing {
			x.lacking[kind] = append(x.lacking[kind], k.name)
		}
		if len(missing) > 0 {
			continue
		}
		for _, kind := range x.unread(k.helps) {
			x.lacking[kind] = append(x.lacking[kind], k.name+" (in part)")
		}
		k.run(x)
	}
	return x.finished()
}

// count is -1 for what could not be read.
func count[T any](items []T, err error) int {
	if err != nil {
		return -1
	}
	return len(items)
}

// examination is one pass over the facts.
type examination struct {
	*Facts
	now          time.Time
	distribution distribution
	errs         map[string]error
	// lacking are the checks that are left out, by what could not be read.
	lacking map[string][]string
	// check is the name of the one that runs.
	check  string
	report *Report
}

func (x *examination) unread(kinds []string) []string {
	return slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return x.errs[kind] == nil })
}

// ok adds a check that is as it should be.
func (x *examination) ok(format string, args ...any) {
	x.report.Checks = append(x.report.Checks, Check{Status: OK, Name: x.check, Text: fmt.Sprintf(format, args...)})
}

// find adds a finding of the catalog: what its level makes of it, with what was seen.
func (x *examination) find(reason string, object facts.Ref, format string, args ...any) {
	e := catalog.OfReason(reason)
	places := explain.Places(object)
	places["system"] = x.System
	if object.Kind == facts.KindCSIDriver {
		places["driver"] = object.Name
	}
	run, remarks := catalog.Separate(e.Commands(places))
	c := Check{Status: Warn, Name: x.check, Finding: &explain.Finding{Code: e.Code, Reason: e.Reason, Level: e.Level,
		Says: e.Says, Detail: fmt.Sprintf(format, args...), Object: object, Acts: e.Acts, Way: e.Way,
		Run: run, Remarks: remarks, URL: e.URL()}}
	if e.Level == catalog.Problem {
		c.Status = Blocked
	}
	x.report.Checks = append(x.report.Checks, c)
}

// unknown leaves the check out, because of what cannot be seen.
func (x *examination) unknown(kind string, err error) {
	x.errs[kind] = err
	x.lacking[kind] = append(x.lacking[kind], x.check)
}

// unseen is what the API does not show.
func unseen(format string, args ...any) error { return fmt.Errorf(format, args...) }

// finished sorts the checks, and names what was left out and how to go on.
func (x *examination) finished() *Report {
	r := x.report
	slices.SortStableFunc(r.Checks, func(a, b Check) int {
		return cmp.Compare(slices.Index(statuses, a.Status), slices.Index(statuses, b.Status))
	})
	for _, kind := range x.kinds() {
		if names := x.lacking[kind]; len(names) > 0 {
			err := x.errs[kind]
			r.LeftOut = append(r.LeftOut, doctor.LeftOut{Kind: kind, Forbidden: facts.Denied(err), Error: err.Error(),
				Findings: names})
		}
	}
	r.AttachMode = x.distribution.mode(x)
	switch {
	case r.Installed:
		r.Next = "kubectl hawser doctor"
	case r.Count(Blocked) > 0:
		r.Next, r.NextRemark = "kubectl hawser preflight", "again, once nothing is BLOCKED"
	default:
		r.Next = "kubectl apply -k ."
		r.NextRemark = "an overlay of config/default with your images: docs/install.md, \"With kubectl\""
	}
	return r
}
