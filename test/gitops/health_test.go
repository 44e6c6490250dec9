/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package gitops

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/operator/condition"
	intentstatus "github.com/hawser-io/hawser/internal/status"
)

// phase is one moment in the life of an object, with the verdict of both tools.
type phase struct {
	name   string
	object client.Object
	flux   status.Status
	argo   string
}

// newIntent is one that has reached these conditions. The functions that the programs use compute Ready.
func newIntent(reached ...string) *volumesv1alpha1.VolumeAttachmentIntent {
	intent := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", Generation: 2},
		Spec:       volumesv1alpha1.VolumeAttachmentIntentSpec{DesiredState: volumesv1alpha1.DesiredPublished},
	}
	for _, c := range reached {
		intentstatus.Set(intent, c, metav1.ConditionTrue, c, "")
	}
	intentstatus.SetReady(intent)
	return intent
}

func changed[T client.Object](object T, change func(T)) T {
	change(object)
	return object
}

func deleted(o *volumesv1alpha1.VolumeAttachmentIntent) {
	o.DeletionTimestamp = &metav1.Time{Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	intentstatus.SetReady(o)
}

// phasesOfIntents from the creation to the deletion.
func phasesOfIntents() []phase {
	all := []string{"Resolved", "Attached", "Staged", "Published"}
	return []phase{
		{"a fresh intent", changed(newIntent(), func(i *volumesv1alpha1.VolumeAttachmentIntent) {
			i.Status = volumesv1alpha1.VolumeAttachmentIntentStatus{ObservedGeneration: -1}
		}), status.InProgressStatus, "Progressing"},
		{"a resolved intent", newIntent("Resolved"), status.InProgressStatus, "Progressing"},
		{"an attached intent", newIntent("Resolved", "Attached"), status.InProgressStatus, "Progressing"},
		{"a published intent", newIntent(all...), status.CurrentStatus, "Healthy"},
		{"a published intent that was changed", changed(newIntent(all...), func(i *volumesv1alpha1.VolumeAttachmentIntent) {
			i.Generation++
		}), status.InProgressStatus, "Progressing"},
		{"an intent that no retry mends", changed(newIntent(), func(i *volumesv1alpha1.VolumeAttachmentIntent) {
			intentstatus.Set(i, "Stalled", metav1.ConditionTrue, volumesv1alpha1.ReasonClaimReplaced, "replaced")
		}), status.FailedStatus, "Degraded"},
		{"an intent whose agent is silent", changed(newIntent(all...), func(i *volumesv1alpha1.VolumeAttachmentIntent) {
			intentstatus.Set(i, "Ready", metav1.ConditionUnknown, volumesv1alpha1.ReasonAgentUnreachable, "silent")
		}), status.InProgressStatus, "Progressing"},
		{"an intent that is being released", changed(newIntent(all...), deleted), status.TerminatingStatus, "Progressing"},
	}
}

// newManager is the VolumeManager of an installation in this state. The operator's own function decides its conditions.
func newManager(change func(*condition.Facts)) *volumesv1alpha1.VolumeManager {
	workload := condition.Workload{Exists: true, Observed: true, Desired: 2, Scheduled: 2, Updated: 2, Ready: 2, Budget: 1}
	facts := condition.Facts{Manager: workload, Agents: workload, Now: time.Now(), Deadline: time.Minute}
	change(&facts)
	vm := &volumesv1alpha1.VolumeManager{ObjectMeta: metav1.ObjectMeta{Name: "cluster", Generation: 3}}
	vm.Status.ObservedGeneration, vm.Status.Conditions = 3, condition.Decide(facts).Conditions
	return vm
}

func phasesOfManagers() []phase {
	return []phase{
		{"a VolumeManager that is as it should be", newManager(func(*condition.Facts) {}), status.CurrentStatus, "Healthy"},
		{"a VolumeManager whose agents roll out", newManager(func(f *condition.Facts) { f.Agents.Updated = 1 }),
			status.InProgressStatus, "Progressing"},
		{"a VolumeManager without a manager", newManager(func(f *condition.Facts) { f.Manager.Ready = 0 }),
			status.InProgressStatus, "Progressing"},
		{"a VolumeManager that needs a person", newManager(func(f *condition.Facts) {
			f.Problems = []condition.Problem{{Reason: volumesv1alpha1.ReasonApplyFailed, Message: "refused"}}
		}), status.FailedStatus, "Degraded"},
		{"a VolumeManager that was changed", changed(newManager(func(*condition.Facts) {}),
			func(vm *volumesv1alpha1.VolumeManager) { vm.Generation++ }), status.InProgressStatus, "Progressing"},
	}
}

func newSet(ready, stalled metav1.ConditionStatus, observed int64) *volumesv1alpha1.VolumeAttachmentIntentSet {
	set := &volumesv1alpha1.VolumeAttachmentIntentSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cache", Generation: 1}}
	set.Status.ObservedGeneration = observed
	for name, value := range map[string]metav1.ConditionStatus{"Ready": ready, "Stalled": stalled} {
		if value != "" {
			set.Status.Conditions = append(set.Status.Conditions, metav1.Condition{Type: name, Status: value, Reason: "R"})
		}
	}
	return set
}

func phasesOfSets() []phase {
	return []phase{
		{"a fresh set", newSet("", "", -1), status.InProgressStatus, "Progressing"},
		{"a set whose intents are not ready", newSet("False", "", 1), status.InProgressStatus, "Progressing"},
		{"a set whose intents are ready", newSet("True", "", 1), status.CurrentStatus, "Healthy"},
		{"a set whose name is taken", newSet("False", "True", 1), status.FailedStatus, "Degraded"},
	}
}

func phases() []phase {
	return append(append(phasesOfIntents(), phasesOfManagers()...), phasesOfSets()...)
}

func asMap(t *testing.T, object client.Object) map[string]any {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	fields["apiVersion"], fields["kind"] = volumesv1alpha1.GroupVersion.String(), "Kind"
	return fields
}

func TestFluxJudgesEveryPhaseAsItIs(t *testing.T) {
	for _, p := range phases() {
		got, err := status.Compute(&unstructured.Unstructured{Object: asMap(t, p.object)})
		if err != nil {
			t.Errorf("%s: kstatus fails with %v", p.name, err)
		} else if got.Status != p.flux {
			t.Errorf("%s is %s (%s) for kstatus, want %s", p.name, got.Status, got.Message, p.flux)
		}
	}
}

func TestArgoCDJudgesEveryPhaseAsItIs(t *testing.T) {
	script, err := os.ReadFile(filepath.Join("..", "..", "config", "gitops", "argocd", "health.lua"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range phases() {
		if got, message := health(t, string(script), asMap(t, p.object)); got != p.argo || message == "" {
			t.Errorf("%s is %s (%s) for Argo CD, want %s and a message", p.name, got, message, p.argo)
		}
	}
}

// health runs the script as Argo CD does: with the libraries that it opens, and the object in the global obj.
func health(t *testing.T, script string, object map[string]any) (verdict, message string) {
	t.Helper()
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	for name, open := range map[string]lua.LGFunction{lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase,
		lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString} {
		if err := l.CallByParam(lua.P{Fn: l.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			t.Fatal(err)
		}
	}
	l.SetGlobal("obj", asLua(l, object))
	if err := l.DoString(script); err != nil {
		t.Fatalf("running the health script: error %v, want none", err)
	}
	result, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the health script returned %v, want a table", l.Get(-1))
	}
	return lua.LVAsString(result.RawGetString("status")), lua.LVAsString(result.RawGetString("message"))
}

func asLua(l *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case string:
		return lua.LString(v)
	case bool:
		return lua.LBool(v)
	case int64:
		return lua.LNumber(v)
	case float64:
		return lua.LNumber(v)
	case []any:
		table := l.NewTable()
		for _, item := range v {
			table.Append(asLua(l, item))
		}
		return table
	case map[string]any:
		table := l.NewTable()
		for key, item := range v {
			table.RawSetString(key, asLua(l, item))
		}
		return table
	}
	return lua.LNil
}
