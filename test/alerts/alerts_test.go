/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package alerts

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// fault makes alerts fire until it is repaired.
type fault struct {
	name         string
	make, repair func(context.Context) error
	// alerts that it makes, by name and severity, with some of their labels.
	alerts map[string]map[string]string
	// situation is the row of docs/troubleshoot.md that the fault makes for an intent; empty for none.
	situation, intent string
}

// phase are faults that do not disturb one another.
type phase struct {
	name   string
	faults []fault
}

// pictured is the phase whose faults the picture of the dashboard shows.
const pictured = "nodes"

func TestEveryAlertFiresOnItsFaultAndResolvesAfterIt(t *testing.T) {
	s, begin := shared, time.Now()
	shown := begin
	for _, p := range s.phases() {
		t.Run(p.name, func(t *testing.T) {
			seen := s.play(t, p)
			if p.name == pictured {
				shown = seen
			}
		})
	}
	fired := s.receiver.Fired()
	for _, rule := range s.rules {
		if name := rule.Alert + "/" + rule.Labels["severity"]; !fired[name] {
			t.Errorf("alert %s never fired, want it once", name)
		}
	}
	for _, row := range s.situations {
		if _, seen := s.shown.Load(row.Name); !seen {
			t.Errorf("situation %s was not seen, want it once", row.Name)
		}
	}
	t.Run("dashboard", func(t *testing.T) { s.dashboard(t, begin, shown) })
	if err := s.clean(t); err != nil {
		t.Fatal(err)
	}
}

// clean deletes everything and waits until nothing is mounted or attached any more.
func (s *suite) clean(t *testing.T) error {
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	for _, kind := range []string{"vai", "pvc"} {
		if _, err := s.Kubectl(ctx, "delete", kind, "--all", "-n", namespace); err != nil {
			return err
		}
	}
	for _, node := range s.Nodes {
		if _, err := s.AwaitNode(ctx, node, func(nvs *volumesv1alpha1.NodeVolumeState) bool {
			return nvs != nil && len(nvs.Spec.Attachments) == 0 && len(nvs.Status.Volumes) == 0
		}); err != nil {
			return err
		}
	}
	return nil
}

// play returns when all alerts of the phase had fired.
func (s *suite) play(t *testing.T, p phase) time.Time {
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	for _, f := range p.faults {
		say("%s", f.name)
		if err := f.make(ctx); err != nil {
			t.Fatalf("making %s: %v", f.name, err)
		}
	}
	// All at once: an alert may end before others begin.
	var waits sync.WaitGroup
	for _, f := range p.faults {
		waits.Go(func() { s.await(ctx, t, f) })
	}
	waits.Wait()
	seen := time.Now()
	s.repair(t, p)
	return seen
}

// await waits until the alerts of a fault fire, and then compares what a user sees.
func (s *suite) await(ctx context.Context, t *testing.T, f fault) {
	var waits sync.WaitGroup
	for name, labels := range f.alerts {
		waits.Go(func() {
			if err := s.receiver.Await(ctx, name+" fires", Labelled(name, labels)); err != nil {
				t.Errorf("%s: %v", f.name, err)
				return
			}
			say("%s fires on %s", name, f.name)
		})
	}
	waits.Wait()
	if f.situation != "" {
		s.checkSituation(ctx, t, f)
	}
}

// repair repairs the faults, the last one first, and waits until every alert has resolved.
func (s *suite) repair(t *testing.T, p phase) {
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	for _, f := range slices.Backward(p.faults) {
		if f.repair == nil {
			continue
		}
		if err := f.repair(ctx); err != nil {
			t.Fatalf("repairing %s: %v", f.name, err)
		}
	}
	if err := s.receiver.Await(ctx, "every alert has resolved", func(firing []Alert) bool {
		return len(firing) == 0
	}); err != nil {
		t.Error(err)
		return
	}
	say("every alert has resolved")
}
