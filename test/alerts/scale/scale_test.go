/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package scale

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"

	"github.com/hawser-io/hawser/test/apiserver"
)

func shipped(t *testing.T) *Rules {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(apiserver.Root(), "config", "prometheus", "hawser.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	rules, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// numbers and what a unit makes of them.
var number = regexp.MustCompile(`\b[0-9]+(\.[0-9]+)?([a-z]+[0-9a-z]*)?\b`)

// seconds of a duration, or the number itself.
func seconds(t *testing.T, s string) float64 {
	t.Helper()
	if d, err := model.ParseDuration(s); err == nil {
		return time.Duration(d).Seconds()
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0 // part of a name
	}
	return f
}

func TestOnlyDurationsAreScaledAndAllByTheSameFactor(t *testing.T) {
	before, after := shipped(t).All(), shipped(t)
	if err := after.Divide(60); err != nil {
		t.Fatal(err)
	}
	for i, scaled := range after.All() {
		rule := before[i]
		if rule.For != "" && seconds(t, rule.For) != 60*seconds(t, scaled.For) {
			t.Errorf("for of alert %s: %s of %s, want a sixtieth", rule.Alert, scaled.For, rule.For)
		}
		if got, want := number.ReplaceAllString(scaled.Expr, "#"), number.ReplaceAllString(rule.Expr, "#"); got != want {
			t.Errorf("expression of alert %s without its numbers differs:\n%s", rule.Alert, cmp.Diff(want, got))
		}
		old, now := number.FindAllString(rule.Expr, -1), number.FindAllString(scaled.Expr, -1)
		for j := range old {
			if o, n := seconds(t, old[j]), seconds(t, now[j]); o != n && (o < 60 || o/n < 59.99 || o/n > 60.01) {
				t.Errorf("alert %s has %s in place of %s, want the same or a sixtieth of a minute or more", rule.Alert, now[j],
					old[j])
			}
		}
		scaled.Expr, scaled.For = rule.Expr, rule.For
		if diff := cmp.Diff(rule, scaled); diff != "" {
			t.Errorf("more than durations of alert %s changed:\n%s", rule.Alert, diff)
		}
	}
}

func TestAgesAreScaledWithTheDurations(t *testing.T) {
	rules := shipped(t)
	if err := rules.Divide(60); err != nil {
		t.Fatal(err)
	}
	for _, rule := range rules.All() {
		if rule.Alert == "HawserIntentsWaitLong" {
			const want = "max by (phase) (max_over_time(hawser_oldest_waiting_intent_seconds[5s])) > 30"
			if rule.Expr != want || rule.For != "5s" {
				t.Errorf("alert %s: %s for %s, want %s for 5s", rule.Alert, rule.Expr, rule.For, want)
			}
		}
	}
}
