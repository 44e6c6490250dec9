/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func TestTheLongestPolicyOfTheIntentsThatLeaveDecidesAndEachMustHaveOne(t *testing.T) {
	with := func(after ...time.Duration) (leaving []*Intent) {
		for i, d := range after {
			intent := intentNamed(fmt.Sprintf("i%d*", i))
			if d > 0 {
				intent.Object.Spec.DetachPolicy = &volumesv1alpha1.DetachPolicy{ForceAfter: metav1.Duration{Duration: d}}
			}
			leaving = append(leaving, intent)
		}
		return leaving
	}
	for _, c := range []struct {
		name    string
		leaving []*Intent
		want    time.Duration
		allowed bool
	}{
		{"nobody leaves", nil, 0, false},
		{"one with a policy", with(time.Minute), time.Minute, true},
		{"one without", with(0), 0, false},
		{"the longest is the first", with(2*time.Minute, time.Minute), 2 * time.Minute, true},
		{"the longest is the last", with(time.Minute, 2*time.Minute), 2 * time.Minute, true},
		{"the first has none", with(0, time.Minute), 0, false},
		{"the last has none", with(time.Minute, 0), 0, false},
	} {
		after, allowed := ForceAfter(c.leaving)
		if allowed != c.allowed || allowed && after != c.want {
			t.Errorf("%s: after %s, allowed %t", c.name, after, allowed)
		}
	}
}

func TestANodeThatIsGoneHasToBeSoForLongWhateverThePoliciesAsk(t *testing.T) {
	n := forcible("a")
	if got := n.OutageNeeded(); got != 6*time.Minute {
		t.Errorf("a Node that is there: %s", got)
	}
	n.Missing = true
	if got := n.OutageNeeded(); got != GoneAfter {
		t.Errorf("a Node that is gone: %s", got)
	}
}
