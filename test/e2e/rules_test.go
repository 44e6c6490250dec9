/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"flag"
	"fmt"
	"slices"

	"github.com/hawser-io/hawser/test/system"
)

// Reasons why the tests of this package do not need a rule.
const (
	byUser = "config: testTenant and testAggregation; a role for users, not for a program"
	listed = "client-go streams its lists from a watch, and lists only if an API server does not offer that"
	cached = "reads of this kind come from the cache; get is granted with list and watch"
	elect  = "one manager runs here, without leader election; config: testRoles"
)

// usedElsewhere says, for each role, verb and resource that the tests of this package may not need, why it is granted.
// "*" stands for every resource or verb of the role.
var usedElsewhere = []struct{ role, verb, resource, why string }{
	{"hawser-intent-viewer", "*", "*", byUser},
	{"hawser-intent-editor", "*", "*", byUser},
	{"hawser-node-volume-viewer", "*", "*", byUser},
	{"hawser-leader-election", "*", "*", elect},
	{"hawser-manager", "list", "*", listed},
	{"hawser-agent", "list", "*", listed},
	{"hawser-manager", "manage", "nodevolumestates", "config: testImpostors; the policies ask for it, nobody requests it"},
	{"hawser-forget-gone-nodes", "declare", "nodevolumestates", "config: testForgetGoneNodes"},
	{"hawser-agent", "patch", "events", "the same event once more; internal/agent"},
	{"hawser-agent-secrets", "get", "secrets", "config: testNarrowedSecrets; only volumes with Secrets need it"},
	{"hawser-manager", "get", "leases", "evidence that a node is gone; internal/controller: TestGone"},
	{"hawser-manager", "delete", "nodevolumestates", "a Node that was deleted; internal/controller"},
	{"hawser-manager", "update", "nodevolumestates/status", "a silent agent; internal/controller"},
	{"hawser-manager", "patch", "volumeattachments/status", "config: testRoles; TestAVolumeThatWasDetachedInTheBackend"},
	{"hawser-manager", "get", "volumeattachmentintents", "a pod's intent before its deletion; internal/controller"},
	{"hawser-manager", "delete", "volumeattachmentintents", "the intents of pods, in Replace"},
	{"hawser-manager", "get", "persistentvolumeclaims", "before a late release finalizer; internal/controller"},
	{"hawser-replace", "patch", "nodes/status", "config: testManagerNodes; TestASwitchToReplaceAndBackDetachesNothing"},
	{"hawser-manager", "get", "pods", cached},
	{"hawser-manager", "get", "csidrivers", cached},
	{"hawser-manager", "get", "csinodes", cached},
	{"hawser-manager", "get", "storageclasses", cached},
	{"hawser-manager", "get", "validatingadmissionpolicies", cached},
	{"hawser-manager", "get", "validatingadmissionpolicybindings", cached},
	{"hawser-manager", "get", "mutatingadmissionpolicies", cached},
	{"hawser-manager", "get", "mutatingadmissionpolicybindings", cached},
}

func isUsedElsewhere(r system.Rule) bool {
	for _, e := range usedElsewhere {
		if e.role == r.Role && (e.verb == "*" || e.verb == r.Verb) && (e.resource == "*" || e.resource == r.Resource) {
			return true
		}
	}
	return false
}

// rulesWithoutTest compares the rules of all roles with the audit log, after a run of all tests. It returns those that
// no test needed and that have no reason above.
func rulesWithoutTest() []string {
	if flag.Lookup("test.run").Value.String() != "" {
		return nil
	}
	rules, err := system.Rules()
	if err != nil {
		return []string{err.Error()}
	}
	requests, err := sys.Requests(0)
	if err != nil {
		return []string{err.Error()}
	}
	var problems []string
	for _, rule := range slices.DeleteFunc(system.Unused(rules, requests), isUsedElsewhere) {
		problems = append(problems, fmt.Sprintf("no test uses the rule %q", rule))
	}
	return problems
}
