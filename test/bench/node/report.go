/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package node

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hawser-io/hawser/test/system"
)

// percentiles prints the median, the 90th percentile and the maximum.
func percentiles(times []time.Duration) string {
	slices.Sort(times)
	at := func(p int) int64 { return times[min(len(times)-1, len(times)*p/100)].Milliseconds() }
	return fmt.Sprintf("p50 %d ms, p90 %d ms, max %d ms", at(50), at(90), times[len(times)-1].Milliseconds())
}

// owner returns the program that made the request, or "" for all others.
func owner(r system.Request) string {
	switch r.User.Username {
	case system.ManagerUser:
		return "manager"
	case system.AgentUser:
		return "agent"
	case system.AttacherUser:
		return "attacher"
	}
	return ""
}

// apart reports whether a request is counted separately: events, and the Leases for liveness.
func apart(r system.Request) bool {
	return r.ObjectRef.Resource == "events" || r.ObjectRef.Resource == "leases"
}

// requestTable prints the requests for each volume by program, verb and resource.
func (b *bench) requestTable(title string, requests []system.Request, volumes int) {
	counts := map[string]int{}
	ours, theirs, reads := 0, 0, 0
	for _, r := range requests {
		who := owner(r)
		if who == "" || r.Verb == "watch" {
			continue
		}
		note := ""
		switch {
		case apart(r):
			note = "  (apart)"
		case !r.IsWrite():
			reads++
		case who == "attacher":
			theirs++
		default:
			ours++
		}
		if r.ResponseStatus.Code >= 400 {
			note += fmt.Sprintf("  (answered %d)", r.ResponseStatus.Code)
		}
		counts[fmt.Sprintf("%-9s %-7s %-40s%s", who, r.Verb, r.What(), note)]++
	}
	per := func(n int) float64 { return float64(n) / float64(volumes) }
	b.say("\nrequests for each volume, %s: our writes %.2f, the attacher's %.2f, reads %.2f", title, per(ours),
		per(theirs), per(reads))
	lines := slices.SortedFunc(maps.Keys(counts), func(x, y string) int {
		return cmp.Or(cmp.Compare(counts[y], counts[x]), cmp.Compare(x, y))
	})
	for _, line := range lines {
		b.say("  %6.2f  %s", per(counts[line]), line)
	}
}
