/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/system"
)

// exception is a rule that no test of this package has to use. It names its test in another package, as "directory
// function". "*" covers every verb or resource of the role.
type exception struct{ role, verb, resource, test string }

var exceptions = []exception{
	// client-go lists only from an API server that does not stream what there is at the beginning of a watch.
	{"hawser-manager", "list", "*", "config testRoles"},
	{"hawser-agent", "list", "*", "config testRoles"},
	// Live reads and writes in rare cases. These tests have an administrator's rights; config testRoles asks for the
	// manager's.
	{"hawser-manager", "get", "csidrivers", "internal/controller/pod TestAProblemThatOnlyTheCacheHasIsNotReported"},
	{"hawser-manager", "get", "storageclasses", "internal/controller/pod TestAProblemThatOnlyTheCacheHasIsNotReported"},
	{"hawser-manager", "get", "pods", "internal/controller/pod TestAnIntentIsKeptIfItsPodIsMissingInTheCacheOnly"},
	{"hawser-manager", "get", "volumeattachmentintents", "test/manager aNameConflictIsReported"},
	// No pod of this package has an inline volume.
	{"hawser-manager", "patch", "pods", "test/manager TestPlacement"},
	{"hawser-agent", "get", "pods", "test/kubelet TestADirectoryOfIntentsFollowsTheirLabels"},
	{"hawser-manager", "patch", "pods/status", "test/manager TestPlacement"},
	{"hawser-manager", "get", "leases",
		"internal/controller/attachment TestEvidenceIsConfirmedByWhatTheAPIServerShowsNowAndNotByTheCache"},
	{"hawser-manager", "delete", "nodevolumestates", "test/manager aNodeStateIsCreatedAndDeletedWithItsNode"},
	{"hawser-manager", "update", "nodevolumestates/status",
		"test/manager anUnreachableAgentIsReportedOnItsNodeStateAndIntents"},
	// Sets of intents need nothing of the node that other intents do not.
	{"hawser-manager", "*", "volumeattachmentintentsets", "test/manager TestASetOfIntents"},
	{"hawser-manager", "update", "volumeattachmentintentsets/status", "test/manager TestASetOfIntents"},
	{"hawser-manager", "watch", "namespaces", "test/manager TestASetOfIntents"},
	{"hawser-manager", "create", "persistentvolumeclaims", "config testSets"},
	// The API server asks for it where an intent has the set as its owner. It is in no request.
	{"hawser-manager", "update", "volumeattachmentintentsets/finalizers", "config testSets"},
	// Roles that the programs of this package do not have, or do not need.
	{"hawser-intent-viewer", "*", "*", "config testAggregation"},
	{"hawser-intent-editor", "*", "*", "config testTenant"},
	{"hawser-node-volume-viewer", "*", "*", "config testAggregation"},
	{"hawser-metrics-reader", "*", "*", "config testMetrics"},
	{"hawser-metrics-auth", "*", "*", "config testMetrics"},
	{"hawser-kube-state-metrics", "*", "*",
		"test/monitoring TestTheAccountOfTheManifestsIsEnoughForKubeStateMetrics"},
	{"hawser-observer-metrics-reader", "*", "*", "cmd/manager TestTheObserverOnABareAPIServer"},
	{"hawser-observer", "create", "*", "cmd/manager TestTheObserverOnABareAPIServer"},
	{"hawser-observer", "*", "*", "internal/observe TestAnObserverNeedsEachOfItsRightsAndNoOther"},
	{"hawser-leader-election", "*", "*", "cmd/manager TestTheManagerOnARealAPIServer"},
	{"hawser-replace", "patch", "nodes/status", "config testManagerNodes"},
	{"hawser-node-writes", "patch", "nodes", "test/manager TestNodesAreLabelledWhereTheIntentOfASetIsReady"},
	{"hawser-forget-gone-nodes", "declare", "nodevolumestates", "config testForgetGoneNodes"},
	{"hawser-secret-granter", "create", "*", "config testNodeAccounts"},
	{"hawser-secret-granter", "escalate", "roles", "config testNodeAccounts"},
	{"hawser-secret-granter", "bind", "roles", "config testNodeAccounts"},
	{"hawser-secret-granter", "update", "roles", "config testManagerSecrets"},
	{"hawser-secret-granter", "delete", "*", "config testSecretsOfNodes"},
	// No program of this package is installed by the operator.
	{"hawser-operator", "*", "*", "internal/operator TestTheOperatorOnARealAPIServer"},
	// Fence sources are of other programs.
	{"hawser-fence-baremetalhost", "*", "*", "config TestThePresetsOfFenceSources"},
	{"hawser-fence-cluster-api-machine", "*", "*", "config TestThePresetsOfFenceSources"},
	{"hawser-fence-network-fence", "*", "*", "config TestThePresetsOfFenceSources"},
	{"hawser-fence-fence-agents-remediation", "*", "*", "config TestThePresetsOfFenceSources"},
	// The policies ask for it. It is in no request.
	{"hawser-manager", "manage", "nodevolumestates", "config testImpostors"},
}

func (e exception) covers(r system.Rule) bool {
	return e.role == r.Role && (e.verb == "*" || e.verb == r.Verb) && (e.resource == "*" || e.resource == r.Resource)
}

func isException(r system.Rule) bool {
	return slices.ContainsFunc(exceptions, func(e exception) bool { return e.covers(r) })
}

// rulesWithoutTest compares the rules of all roles with the audit log, after a run of all tests. It returns those that
// no test needed and that are no exception.
func rulesWithoutTest() []string {
	if flag.Lookup("test.run").Value.String() != "" {
		return nil
	}
	rules, err := system.ReadRules()
	if err != nil {
		return []string{err.Error()}
	}
	requests, err := sys.Requests(0)
	if err != nil {
		return []string{err.Error()}
	}
	var problems []string
	for _, rule := range slices.DeleteFunc(rules.Unused(requests), isException) {
		problems = append(problems, fmt.Sprintf("no test uses the rule %q", rule))
	}
	return problems
}

func TestEachExceptionIsARuleThatATestOfAnotherPackageUses(t *testing.T) {
	rules, err := system.ReadRules()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range exceptions {
		if !slices.ContainsFunc(rules.All, e.covers) {
			t.Errorf("no role has a rule of exception %v, want one", e)
		}
		directory, function, _ := strings.Cut(e.test, " ")
		files, err := filepath.Glob(filepath.Join(apiserver.Root(), directory, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(text), " "+function+"(t *testing.T")
		}) {
			t.Errorf("%s has no test %s, want it for exception %v", directory, function, e)
		}
	}
}
