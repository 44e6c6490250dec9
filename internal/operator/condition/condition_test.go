/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package condition

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// well is an installation on 5 nodes where all is well.
func well() Facts {
	return Facts{
		Manager: Workload{Exists: true, Observed: true, Desired: 2, Scheduled: 2, Updated: 2, Ready: 2, Budget: 1},
		Agents:  Workload{Exists: true, Observed: true, Desired: 5, Scheduled: 5, Updated: 5, Ready: 5, Budget: 1},
		Now:     now, Deadline: 10 * time.Minute,
	}
}

const (
	allReady = "manager: 2 of 2 ready; agents: ready on 5 of 5 nodes"
	done     = "manager and agents are as the spec asks for"
)

// TestARolloutThatADeadNodeHoldsUpNamesPodAndNode: the pod uses up the budget, and is neither ready nor gone.
func TestARolloutThatADeadNodeHoldsUpNamesPodAndNode(t *testing.T) {
	const (
		ways = ". Let the node return, delete its Node, or raise spec.agent.maxUnavailable"
		held = "agents: 2 of 5 updated, and for more than 10m0s 1 pod(s) hold up the rest: "
	)
	late := now.Add(-20 * time.Minute)
	ending := Pod{Name: "agent-a", Node: "dead", Since: late, Agent: true, Terminating: true}
	for _, test := range []struct {
		name    string
		change  func(*Facts)
		message string
		again   time.Duration
	}{
		{"terminating on a dead node", func(f *Facts) { f.Pods = []Pod{ending} },
			held + "agent-a on node dead, which is not Ready (terminating)" + ways, 0},
		{"terminating on a node that is Ready", func(f *Facts) {
			f.Pods = []Pod{ending}
			f.Pods[0].NodeReady = true
		}, held + "agent-a on node dead (terminating)" + ways, 0},
		{"not ready on a dead node", func(f *Facts) {
			f.Pods = []Pod{{Name: "agent-a", Node: "dead", Since: late, Agent: true}}
		}, held + "agent-a on node dead, which is not Ready" + ways, 0},
		{"beside pods that fail", func(f *Facts) {
			f.Pods = []Pod{ending, {Name: "agent-b", Node: "b", Since: now, Agent: true, NodeReady: true, Failure: "Error"}}
		}, "1 pod(s) fail: agent-b on node b: Error; " + held + "agent-a on node dead, which is not Ready (terminating)" +
			ways, 0},
		{"the rollout has only begun", func(f *Facts) {
			f.Pods, f.ProgressingSince = []Pod{ending}, now.Add(-4*time.Minute)
		}, "", 6 * time.Minute},
		{"the pod of a long rollout has only begun to end", func(f *Facts) {
			f.Pods = []Pod{ending}
			f.Pods[0].Since, f.Pods[0].NodeReady = now.Add(-time.Minute), true
		}, "", 9 * time.Minute},
		{"the grace period has not ended", func(f *Facts) {
			f.Pods = []Pod{ending}
			f.Pods[0].Since = now.Add(time.Minute)
		}, "", 11 * time.Minute},
		{"the budget is not used up", func(f *Facts) { f.Pods, f.Agents.Budget = []Pod{ending}, 2 }, "", 0},
		{"the budget is not used up, and nothing else is left", func(f *Facts) {
			f.Pods, f.Agents.Budget, f.Agents.Updated = []Pod{ending}, 2, 4
		}, "agents: 4 of 5 updated, and for more than 10m0s 1 pod(s) hold up the rest: agent-a on node dead, which is not " +
			"Ready (terminating)" + ways, 0},
		{"every agent is updated", func(f *Facts) { f.Pods, f.Agents.Updated = []Pod{ending}, 5 }, "", 0},
		{"a manager's pod uses no node budget", func(f *Facts) {
			f.Pods = []Pod{ending}
			f.Pods[0].Agent = false
		}, "", 0},
		{"nothing was progressing before", func(f *Facts) { f.Pods, f.ProgressingSince = []Pod{ending}, time.Time{} }, "", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := well()
			f.Agents.Updated, f.Agents.Ready, f.ProgressingSince = 2, 4, now.Add(-15*time.Minute)
			test.change(&f)
			decision := Decide(f)
			degraded := decision.Conditions[2]
			if degraded.Message != test.message || (degraded.Status == metav1.ConditionTrue) != (test.message != "") {
				t.Errorf("Degraded of %+v with the pods %+v is %s, message %q; want the message %q", f.Agents, f.Pods,
					degraded.Status, degraded.Message, test.message)
			}
			if decision.Again != test.again {
				t.Errorf("decided again after %s, want %s", decision.Again, test.again)
			}
			if want := f.Agents.Updated < f.Agents.Desired || f.Agents.Ready < f.Agents.Desired; want !=
				(decision.Conditions[1].Status == metav1.ConditionTrue) {
				t.Errorf("Progressing is %s, want %t also while the rollout is stuck", decision.Conditions[1].Status, want)
			}
		})
	}
}

func TestConditionsCountAndName(t *testing.T) {
	pod := func(name string, age time.Duration, failure string) Pod {
		return Pod{Name: name, Node: "on-" + name, Since: now.Add(-age), Failure: failure, NodeReady: true}
	}
	for _, test := range []struct {
		name   string
		change func(*Facts)
		// want has the conditions Available, Progressing and Degraded, each as status, reason and message.
		want  [3]metav1.Condition
		again time.Duration
	}{
		{"all is well", func(*Facts) {}, [3]metav1.Condition{
			{Status: "True", Reason: "AsExpected", Message: allReady},
			{Status: "False", Reason: "AsExpected", Message: done}, {Status: "False", Reason: "AsExpected"}}, 0},
		{"nothing is applied yet", func(f *Facts) { f.Manager, f.Agents = Workload{}, Workload{} }, [3]metav1.Condition{
			{Status: "False", Reason: "ManagerNotReady", Message: "manager: 0 of 0 ready; agents: ready on 0 of 0 nodes"},
			{Status: "True", Reason: "RollingOut", Message: "manager: not created yet; agents: not created yet"},
			{Status: "False", Reason: "AsExpected"}}, 0},
		{"no node is selected", func(f *Facts) { f.Agents = Workload{Exists: true, Observed: true} }, [3]metav1.Condition{
			{Status: "False", Reason: "NoNodes", Message: "manager: 2 of 2 ready; agents: ready on 0 of 0 nodes"},
			{Status: "False", Reason: "AsExpected", Message: done}, {Status: "False", Reason: "AsExpected"}}, 0},
		{"as many agents are absent as a rollout may replace", func(f *Facts) { f.Agents.Ready = 4 }, [3]metav1.Condition{
			{Status: "True", Reason: "AsExpected", Message: "manager: 2 of 2 ready; agents: ready on 4 of 5 nodes"},
			{Status: "True", Reason: "RollingOut", Message: "agents: 4 of 5 ready, awaiting 1 node(s)"},
			{Status: "False", Reason: "AsExpected"}}, 0},
		{"more agents are absent", func(f *Facts) { f.Agents.Ready = 3 }, [3]metav1.Condition{
			{Status: "False", Reason: "AgentsNotReady", Message: "manager: 2 of 2 ready; agents: ready on 3 of 5 nodes"},
			{Status: "True", Reason: "RollingOut", Message: "agents: 3 of 5 ready, awaiting 2 node(s)"},
			{Status: "False", Reason: "AsExpected"}}, 0},
		{"the only agent is absent, which the budget allows", func(f *Facts) {
			f.Agents.Desired, f.Agents.Scheduled, f.Agents.Updated, f.Agents.Ready = 1, 1, 1, 0
		}, [3]metav1.Condition{
			{Status: "False", Reason: "AgentsNotReady", Message: "manager: 2 of 2 ready; agents: ready on 0 of 1 nodes"},
			{Status: "True", Reason: "RollingOut", Message: "agents: 0 of 1 ready, awaiting 1 node(s)"},
			{Status: "False", Reason: "AsExpected"}}, 0},
		{"a rollout is under way", func(f *Facts) {
			f.Manager.Observed, f.Agents.Updated = false, 2
			f.Pods = []Pod{pod("agent-a", 4*time.Minute, ""), pod("agent-b", time.Minute, "")}
		}, [3]metav1.Condition{
			{Status: "True", Reason: "AsExpected", Message: allReady},
			{Status: "True", Reason: "RollingOut", Message: "manager: the last change is not observed yet; " +
				"agents: 2 of 5 updated, awaiting 3 node(s)"},
			{Status: "False", Reason: "AsExpected"}}, 6 * time.Minute},
		{"a rollout that does not end is both", func(f *Facts) {
			f.Agents.Updated, f.Agents.Ready = 1, 4
			f.Pods = []Pod{pod("agent-a", 10*time.Minute, ""), pod("agent-b", time.Minute, "")}
		}, [3]metav1.Condition{
			{Status: "True", Reason: "AsExpected", Message: "manager: 2 of 2 ready; agents: ready on 4 of 5 nodes"},
			{Status: "True", Reason: "RollingOut", Message: "agents: 1 of 5 updated, awaiting 4 node(s)"},
			{Status: "True", Reason: "RolloutStuck",
				Message: "1 pod(s) have not become ready within 10m0s: agent-a on node on-agent-a"}}, 9 * time.Minute},
		{"a pod that crashes is named at once", func(f *Facts) {
			f.Manager.Ready = 1
			f.Pods = []Pod{pod("manager-a", time.Second, "CrashLoopBackOff"), {Name: "manager-b", Since: now}}
		}, [3]metav1.Condition{
			{Status: "True", Reason: "AsExpected", Message: "manager: 1 of 2 ready; agents: ready on 5 of 5 nodes"},
			{Status: "True", Reason: "RollingOut", Message: "manager: 1 of 2 ready, awaiting 1 replica(s)"},
			{Status: "True", Reason: "PodsFailing",
				Message: "1 pod(s) fail: manager-a on node on-manager-a: CrashLoopBackOff"}}, 10 * time.Minute},
		{"a pod on a node that is not Ready is not the rollout's fault", func(f *Facts) {
			f.Agents.Ready = 4
			f.Pods = []Pod{{Name: "agent-a", Node: "dead", Since: now.Add(-time.Hour), Failure: "CrashLoopBackOff"}}
		}, [3]metav1.Condition{
			{Status: "True", Reason: "AsExpected", Message: "manager: 2 of 2 ready; agents: ready on 4 of 5 nodes; " +
				"nodes that are not Ready: dead"},
			{Status: "True", Reason: "RollingOut", Message: "agents: 4 of 5 ready, awaiting 1 node(s)"},
			{Status: "False", Reason: "AsExpected"}}, 0},
		{"pods are refused", func(f *Facts) {
			f.Manager.Failure = "exceeded quota"
			f.Agents.Scheduled, f.Agents.Updated, f.Agents.Ready = 3, 3, 3
			f.ProgressingSince = now.Add(-11 * time.Minute)
		}, [3]metav1.Condition{
			{Status: "False", Reason: "AgentsNotReady", Message: "manager: 2 of 2 ready; agents: ready on 3 of 5 nodes"},
			{Status: "True", Reason: "RollingOut", Message: "agents: 3 of 5 updated, awaiting 2 node(s)"},
			{Status: "True", Reason: "RolloutStuck", Message: "manager: exceeded quota; " +
				"agents: 2 of 5 nodes have no pod: kubectl describe the DaemonSet"}}, 0},
		{"the pods of agents are refused", func(f *Facts) {
			f.Agents.Scheduled, f.Agents.Updated, f.Agents.Refusal = 3, 3, "insufficient quota"
			f.ProgressingSince = now.Add(-11 * time.Minute)
		}, [3]metav1.Condition{
			{Status: "True", Reason: "AsExpected", Message: allReady},
			{Status: "True", Reason: "RollingOut", Message: "agents: 3 of 5 updated, awaiting 2 node(s)"},
			{Status: "True", Reason: "RolloutStuck", Message: "agents: 2 of 5 nodes have no pod: insufficient quota"}}, 0},
		{"pods are not there yet", func(f *Facts) {
			f.Agents.Scheduled, f.Agents.Updated = 3, 3
			f.ProgressingSince = now.Add(-4 * time.Minute)
		}, [3]metav1.Condition{
			{Status: "True", Reason: "AsExpected", Message: allReady},
			{Status: "True", Reason: "RollingOut", Message: "agents: 3 of 5 updated, awaiting 2 node(s)"},
			{Status: "False", Reason: "AsExpected"}}, 6 * time.Minute},
		{"a pod that is not scheduled is named with its node", func(f *Facts) {
			f.Agents.Ready = 4
			f.Pods = []Pod{{Name: "agent-a", Intended: "fargate-a", Since: now.Add(-time.Hour), Agent: true}}
		}, [3]metav1.Condition{
			{Status: "True", Reason: "AsExpected", Message: "manager: 2 of 2 ready; agents: ready on 4 of 5 nodes"},
			{Status: "True", Reason: "RollingOut", Message: "agents: 4 of 5 ready, awaiting 1 node(s)"},
			{Status: "True", Reason: "RolloutStuck", Message: "1 pod(s) have not become ready within 10m0s: " +
				"agent-a, which is not scheduled to node fargate-a. If a node can run no agent, leave it out by " +
				"spec.nodeAffinity"}}, 0},
		{"a problem that was found before comes first", func(f *Facts) {
			f.Problems = []Problem{{"ApplyFailed", "applying x: no"}}
			f.Pods = []Pod{pod("agent-a", time.Hour, "")}
		}, [3]metav1.Condition{
			{Status: "True", Reason: "AsExpected", Message: allReady},
			{Status: "False", Reason: "AsExpected", Message: done},
			{Status: "True", Reason: "ApplyFailed", Message: "applying x: no; " +
				"1 pod(s) have not become ready within 10m0s: agent-a on node on-agent-a"}}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			facts := well()
			test.change(&facts)
			got := Decide(facts)
			for i, kind := range []string{"Available", "Progressing", "Degraded"} {
				test.want[i].Type = kind
				if got.Conditions[i] != test.want[i] {
					t.Errorf("got  %+v\nwant %+v", got.Conditions[i], test.want[i])
				}
			}
			if got.Again != test.again {
				t.Errorf("again after %s, want %s", got.Again, test.again)
			}
		})
	}
}

// TestReadyAndStalledSumUpTheOtherConditions: tools of GitOps read no others.
func TestReadyAndStalledSumUpTheOtherConditions(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Facts)
		want   string
	}{
		{"all is well", func(*Facts) {}, "Ready=True AsExpected, Stalled=False AsExpected"},
		{"a rollout", func(f *Facts) { f.Agents.Updated = 3 }, "Ready=False RollingOut, Stalled=False AsExpected"},
		{"no manager is ready", func(f *Facts) { f.Manager.Ready = 0 },
			"Ready=False ManagerNotReady, Stalled=False AsExpected"},
		{"a problem", func(f *Facts) { f.Problems = []Problem{{"ApplyFailed", "no"}} },
			"Ready=False ApplyFailed, Stalled=True ApplyFailed"},
		{"a problem during a rollout", func(f *Facts) {
			f.Problems, f.Agents.Updated = []Problem{{"ApplyFailed", "no"}}, 3
		}, "Ready=False ApplyFailed, Stalled=True ApplyFailed"},
	} {
		facts := well()
		test.change(&facts)
		var got []string
		for _, c := range Decide(facts).Conditions {
			if c.Type == "Ready" || c.Type == "Stalled" {
				got = append(got, c.Type+"="+string(c.Status)+" "+c.Reason)
			}
		}
		if strings.Join(got, ", ") != test.want {
			t.Errorf("%s: conditions %v, want %s", test.name, got, test.want)
		}
	}
}

func TestMonitoredIsAbsentWhereMonitorsAreNotWanted(t *testing.T) {
	for _, test := range []struct {
		name           string
		wanted, served bool
		want           string
	}{
		{"not wanted", false, true, ""},
		{"wanted, but their kinds are missing", true, false, "False KindsMissing"},
		{"wanted and served", true, true, "True AsExpected"},
	} {
		facts := well()
		facts.MonitorsWanted, facts.MonitorsServed = test.wanted, test.served
		got := ""
		conditions := Decide(facts).Conditions
		at := slices.IndexFunc(conditions, func(c metav1.Condition) bool { return c.Type == "Monitored" })
		if at >= 0 {
			got = string(conditions[at].Status) + " " + conditions[at].Reason
		}
		if got != test.want {
			t.Errorf("%s: Monitored is %q, want %q", test.name, got, test.want)
		}
	}
}

// TestFenceSourcesAreAbsentWithoutAndNamedIfTheyCannotBeUsed: Ready does not depend on them.
func TestFenceSourcesAreAbsentWithoutAndNamedIfTheyCannotBeUsed(t *testing.T) {
	broken := Problem{"FenceSourceBroken", "source c: no such variable"}
	missing := Problem{"FenceSourceMissing", "source b: not served"}
	forbidden := Problem{"FenceSourceForbidden", "source a: not allowed"}
	for _, test := range []struct {
		name   string
		fences *FenceSources
		want   string
		again  time.Duration
	}{
		{"there is none", nil, "", 0},
		{"all can be used", &FenceSources{}, "True AsExpected: ", 0},
		{"one cannot", &FenceSources{Problems: []Problem{missing}, Again: time.Minute},
			"False FenceSourceMissing: source b: not served", time.Minute},
		{"the worst comes first", &FenceSources{Problems: []Problem{forbidden, missing, broken}, Again: time.Second},
			"False FenceSourceBroken: source c: no such variable; source b: not served; source a: not allowed", time.Second},
	} {
		facts := well()
		facts.Fences = test.fences
		decision, got := Decide(facts), ""
		for _, c := range decision.Conditions {
			switch {
			case c.Type == "FenceSourcesReady":
				got = string(c.Status) + " " + c.Reason + ": " + c.Message
			case c.Type == "Ready" && c.Status != "True":
				t.Errorf("%s: %+v, want Ready", test.name, c)
			}
		}
		if got != test.want || decision.Again != test.again {
			t.Errorf("%s: FenceSourcesReady is %q, again in %s; want %q, %s", test.name, got, decision.Again, test.want,
				test.again)
		}
	}
}

// TestNodesWithoutAgentAreNamedBeforeReplaceIsSet: the condition depends on no mode, and Ready not on it.
func TestNodesWithoutAgentAreNamedBeforeReplaceIsSet(t *testing.T) {
	facts := well()
	facts.WithoutAgent = []string{"left-out", "win (windows)"}
	want := map[string]metav1.Condition{
		"Ready": {Type: "Ready", Status: "True", Reason: "AsExpected", Message: allReady},
		"ReplaceCoversNodes": {Type: "ReplaceCoversNodes", Status: "False", Reason: "NodesWithoutAgent", Message: "in " +
			"attach mode Replace no volume is attached for the pods of 2 node(s), where no agent runs: left-out, win (windows)"},
	}
	for _, c := range Decide(facts).Conditions {
		if wanted, checked := want[c.Type]; checked && c != wanted {
			t.Errorf("condition %+v, want %+v", c, wanted)
		}
		delete(want, c.Type)
	}
	if len(want) > 0 {
		t.Errorf("conditions that are missing: %v", want)
	}
}

func TestAMessageNamesAFewPods(t *testing.T) {
	if got := names([]string{"a", "b", "c", "d", "e", "f", "g"}); got != "a, b, c, d, e and 2 more" {
		t.Errorf("got %q", got)
	}
}
