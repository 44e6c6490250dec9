/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package alerts

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Alert as Prometheus sends it to an Alertmanager.
type Alert struct {
	Labels map[string]string `json:"labels"`
	EndsAt time.Time         `json:"endsAt"`
}

// Name with its severity, which tells two alerts of one name apart.
func (a Alert) Name() string { return a.Labels["alertname"] + "/" + a.Labels["severity"] }

func (a Alert) key() string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(a.Labels)) {
		parts = append(parts, k+"="+a.Labels[k])
	}
	return strings.Join(parts, ",")
}

// Receiver takes the place of an Alertmanager. Prometheus pushes what fires and what has resolved.
type Receiver struct {
	mu      sync.Mutex
	firing  map[string]Alert
	fired   map[string]bool
	changed chan struct{}
}

// NewReceiver returns one that no alert was sent to.
func NewReceiver() *Receiver {
	return &Receiver{firing: map[string]Alert{}, fired: map[string]bool{}, changed: make(chan struct{})}
}

// ServeHTTP takes a push.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	var alerts []Alert
	if err := json.NewDecoder(request.Body).Decode(&alerts); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range alerts {
		// The end of one that fires is in the future.
		if a.EndsAt.After(time.Now()) {
			r.firing[a.key()], r.fired[a.Name()] = a, true
		} else {
			delete(r.firing, a.key())
		}
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

// Firing are the alerts that fire.
func (r *Receiver) Firing() []Alert {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.firing))
}

// fires reports whether an alert of that name fires, of whatever severity.
func (r *Receiver) fires(name string) bool {
	return slices.ContainsFunc(r.Firing(), func(a Alert) bool { return a.Labels["alertname"] == name })
}

// Fired are the names of all alerts that ever fired.
func (r *Receiver) Fired() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.fired)
}

// Await returns once done is true of what fires.
func (r *Receiver) Await(ctx context.Context, what string, done func([]Alert) bool) error {
	for {
		r.mu.Lock()
		firing, changed := slices.Collect(maps.Values(r.firing)), r.changed
		r.mu.Unlock()
		if done(firing) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w; firing: %v", what, ctx.Err(), names(firing))
		}
	}
}

func names(alerts []Alert) []string {
	var all []string
	for _, a := range alerts {
		all = append(all, a.key())
	}
	slices.Sort(all)
	return all
}

// Labelled returns a condition for Await: an alert of that name (with its severity) fires and has these labels.
func Labelled(name string, labels map[string]string) func([]Alert) bool {
	return func(firing []Alert) bool {
		return slices.ContainsFunc(firing, func(a Alert) bool {
			if a.Name() != name {
				return false
			}
			for k, v := range labels {
				if a.Labels[k] != v {
					return false
				}
			}
			return true
		})
	}
}
