/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"fmt"
	"hash/fnv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/node"
	"github.com/hawser-io/hawser/internal/fencing"
)

// networkFences are ConfigMaps that cut addresses off, and ConfigMaps in which a driver reports those of its nodes.
func networkFences(t *testing.T) (managerOptions, *stepClock) {
	t.Helper()
	field := func(name, otherwise string) string {
		return "has(object.data) && '" + name + "' in object.data ? object.data." + name + " : " + otherwise
	}
	list := func(name string) string {
		return "has(object.data) && '" + name + "' in object.data && object.data." + name + " != '' ? object.data." + name +
			".split(',') : []"
	}
	source, err := fencing.Compile(volumesv1alpha1.FenceSource{
		Name: "net", Version: "v1", Resource: "configmaps", Proves: volumesv1alpha1.FenceAccessCut,
		Driver: field("fenced", "''"), Addresses: list("cidrs"),
		Holds: "has(object.data) && 'wish' in object.data && object.data.wish == 'Fenced' && " +
			"object.data.result == 'Succeeded'",
		Clients: &volumesv1alpha1.FenceClients{Version: "v1", Resource: "configmaps",
			NodeName: field("client", "''"), Driver: field("driver", "''"), Addresses: list("addresses")},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := newStepClock()
	return managerOptions{fenceSources: []*fencing.Source{source}, clock: c}, c
}

// addressesOf a node: no two nodes share one.
func addressesOf(node string) (v4, v6 string) {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(node)) // cannot fail
	n := hash.Sum32()
	return fmt.Sprintf("10.%d.%d.%d", n>>16&0xff, n>>8&0xff, n&0xff), fmt.Sprintf("2001:db8::%x:%x", n>>16, n&0xffff)
}

func networkFence(name string) *corev1.ConfigMap {
	v4, v6 := addressesOf(name)
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "fence-of-" + name},
		Data: map[string]string{"fenced": driverName, "cidrs": v4 + "/32," + v6, "wish": "Fenced",
			"result": "Succeeded"},
	}
}

// unfencing is another object, by which one of the node's addresses was let in again.
func unfencing(name string) *corev1.ConfigMap {
	another := networkFence(name)
	another.Name += "-other"
	another.Data["cidrs"], _, _ = strings.Cut(another.Data["cidrs"], ",")
	another.Data["wish"] = "Unfenced"
	return another
}

func reportedBy(driver, node, addresses string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "client-" + node},
		Data:       map[string]string{"client": node, "driver": driver, "addresses": addresses},
	}
}

// unfence as its operator would.
func (w *world) unfence(t *testing.T, name string) {
	t.Helper()
	fence := networkFence(name)
	w.change(t, fence, func() { fence.Data["wish"] = "Unfenced" })
}

// stuckOn is a node whose agent is silent, with a volume that it uses and that no intent wants there any more.
func (w *world) stuckOn(t *testing.T, c *stepClock, name string) {
	t.Helper()
	w.fallsSilent(t, c, w.busyOn(t, name))
}

// busyOn is a node whose agent lives and releases nothing, with a volume that no intent wants there any more.
func (w *world) busyOn(t *testing.T, name string) *agent {
	t.Helper()
	a := w.node(t, name)
	w.volume(t, name, volumeOptions{})
	intent := w.intent(t, name, name, name)
	until(t, w, intent, "the intent is Ready", isReady)
	w.identify(t, name, firstMachine, firstMachine)
	v4, v6 := addressesOf(name)
	w.create(t, reportedBy(driverName, name, v4+","+v6))
	a.set(func() { a.hangs = true })
	w.delete(t, intent)
	return a
}

func (w *world) evidenceOf(t *testing.T, name string) volumesv1alpha1.DetachEvidence {
	t.Helper()
	e := entryIn(w.state(t, name), name).Evidence
	if e == nil {
		return volumesv1alpha1.DetachEvidence{}
	}
	return *e
}

// cutOff awaits that the volume was forced away from the node because its access is cut.
func (w *world) cutOff(t *testing.T, name string) {
	t.Helper()
	until(t, w, stateOf(name), "the volume is detached", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return entryIn(s, name).State == volumesv1alpha1.AttachmentDetaching
	})
	e := w.evidenceOf(t, name)
	if e.Type != volumesv1alpha1.EvidenceFenced || e.Fence == nil || e.Fence.Proves != volumesv1alpha1.FenceAccessCut ||
		e.Fence.Name != networkFence(name).Name || !strings.Contains(e.Message, "its agent is silent") {
		t.Errorf("evidence of the detach of volume %s: %s; want Fenced, of access that is cut from a silent node", name,
			dump(e))
	}
}

// lifted awaits that the evidence shows that nothing keeps the volume from the node any more.
func (w *world) lifted(t *testing.T, name string) {
	t.Helper()
	until(t, w, stateOf(name), "the evidence is unprotected", func(s *volumesv1alpha1.NodeVolumeState) bool {
		e := entryIn(s, name)
		return e.Evidence != nil && e.Evidence.Unprotected
	})
	if note := w.awaitEvent(t, name, node.EventFenceLifted); !strings.Contains(note, uniqueName(name)) {
		t.Errorf("event of node %s: %q; want it to name the volume", name, note)
	}
}

func (w *world) protected(t *testing.T, name string) {
	t.Helper()
	if e := w.evidenceOf(t, name); e.Unprotected {
		t.Errorf("evidence of the detach of volume %s while the fence holds: %s; want it protected", name, dump(e))
	}
}

func TestAccessThatIsCut(t *testing.T) {
	w := newWorld(t)
	for _, s := range []struct {
		name     string
		scenario func(*testing.T, *world)
	}{
		{"moves the volume of a silent node", accessThatIsCutMovesTheVolume},
		{"overrules no agent that lives", accessThatIsCutOverrulesNoAgent},
		{"and given back while no manager runs, is found by the next one", aCutThatIsLiftedWhileNoManagerRuns},
		{"whose object is deleted while no manager runs, is found too", aFenceThatIsDeletedWhileNoManagerRuns},
		{"and given back before the move, keeps the volume where it was", aCutThatIsLiftedBeforeTheMove},
		{"and given back before the delete, keeps the attachment", aCutThatIsLiftedBeforeTheDelete},
		{"and let in again by another object, is given back", aCutThatAnotherObjectOpens},
		{"and given back after the agent's report, is none of its concern", aCutThatIsLiftedAfterTheReport},
	} {
		t.Run(s.name, func(t *testing.T) { s.scenario(t, w) })
	}
}

func accessThatIsCutMovesTheVolume(t *testing.T, w *world) {
	o, c := networkFences(t)
	_, stop := w.manage(t, o)
	defer stop()
	w.stuckOn(t, c, "cut-moves")
	w.node(t, "cut-moves-other")
	second := w.intent(t, "cut-moves-second", "cut-moves-other", "cut-moves")
	w.create(t, networkFence("cut-moves"))
	w.cutOff(t, "cut-moves")
	until(t, w, second, "the other node has the volume", isReady)
	w.protected(t, "cut-moves")

	w.unfence(t, "cut-moves")
	w.lifted(t, "cut-moves")
	w.agent(t, "cut-moves")
	until(t, w, stateOf("cut-moves"), "the entry is gone", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return len(s.Spec.Attachments) == 0
	})
}

// accessThatIsCutOverrulesNoAgent: what drivers report of its addresses may be of an earlier machine.
func accessThatIsCutOverrulesNoAgent(t *testing.T, w *world) {
	o, c := networkFences(t)
	_, stop := w.manage(t, o)
	defer stop()
	a := w.busyOn(t, "cut-lives")
	w.create(t, networkFence("cut-lives"))
	w.reconcileNode(t, "cut-lives")
	w.touchClaim(t, "cut-lives", "look")
	w.stillThere(t, "cut-lives", "cut-lives")
	if e := entryIn(w.state(t, "cut-lives"), "cut-lives"); e.State != volumesv1alpha1.AttachmentAttached {
		t.Errorf("entry of volume cut-lives, whose agent lives: %s; want it Attached", dump(e))
	}
	w.fallsSilent(t, c, a)
	w.cutOff(t, "cut-lives")
}

func aCutThatAnotherObjectOpens(t *testing.T, w *world) {
	o, c := networkFences(t)
	_, stop := w.manage(t, o)
	defer stop()
	w.stuckOn(t, c, "cut-opened")
	w.create(t, networkFence("cut-opened"))
	w.cutOff(t, "cut-opened")
	w.create(t, unfencing("cut-opened"))
	w.lifted(t, "cut-opened")
}

// forcedAwayAndStopped is a node from which a volume was forced away because its access was cut; no manager runs.
func (w *world) forcedAwayAndStopped(t *testing.T, name string) {
	t.Helper()
	o, c := networkFences(t)
	_, stop := w.manage(t, o)
	w.stuckOn(t, c, name)
	w.create(t, networkFence(name))
	w.cutOff(t, name)
	until(t, w, stateOf(name), "the volume is detached", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return entryIn(s, name).DetachedTime != nil
	})
	stop()
	w.protected(t, name)
}

func aCutThatIsLiftedWhileNoManagerRuns(t *testing.T, w *world) {
	w.forcedAwayAndStopped(t, "cut-restart")
	w.unfence(t, "cut-restart")
	o, _ := networkFences(t)
	_, stop := w.manage(t, o)
	defer stop()
	w.lifted(t, "cut-restart")
}

func aFenceThatIsDeletedWhileNoManagerRuns(t *testing.T, w *world) {
	w.forcedAwayAndStopped(t, "cut-deleted")
	w.delete(t, networkFence("cut-deleted"))
	w.create(t, networkFence("cut-deleted")) // another one of its name
	o, _ := networkFences(t)
	_, stop := w.manage(t, o)
	defer stop()
	w.lifted(t, "cut-deleted")
}

func aCutThatIsLiftedBeforeTheMove(t *testing.T, w *world) {
	w.forcedAwayAndStopped(t, "cut-held")
	w.node(t, "cut-held-other")
	second := w.intent(t, "cut-held-second", "cut-held-other", "cut-held")
	w.unfence(t, "cut-held")
	o, _ := networkFences(t)
	_, stop := w.manage(t, o)
	defer stop()
	w.lifted(t, "cut-held")
	w.reason(t, second, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeInUse)
	if lock := w.lockOf(t, "cut-held"); lock.Holder != "cut-held" {
		t.Errorf("lock of volume cut-held: %+v; want it to stay with the node that may write again", lock)
	}
	w.agent(t, "cut-held")
	until(t, w, second, "the other node has the volume once the agent has reported", isReady)
}

func aCutThatIsLiftedBeforeTheDelete(t *testing.T, w *world) {
	o, c := networkFences(t)
	_, stop := w.manage(t, o)
	w.stuckOn(t, c, "cut-delete")
	stop()
	fence := networkFence("cut-delete")
	w.create(t, fence)
	va := until(t, w, attachmentOf("cut-delete", "cut-delete"), "it is attached", exists)
	// A manager died right after it had written Detaching.
	state := stateOf("cut-delete")
	w.change(t, state, func() {
		e := &state.Spec.Attachments[0]
		e.State, e.Evidence = volumesv1alpha1.AttachmentDetaching, &volumesv1alpha1.DetachEvidence{
			Type: volumesv1alpha1.EvidenceFenced, Time: metav1.Now(), Fence: &volumesv1alpha1.FenceReference{
				Source: "net", Namespace: "default", Name: fence.Name, UID: fence.UID, Proves: volumesv1alpha1.FenceAccessCut}}
	})
	w.unfence(t, "cut-delete")
	o, _ = networkFences(t)
	_, stop = w.manage(t, o)
	defer stop()
	w.lifted(t, "cut-delete")
	w.reconcileNode(t, "cut-delete")
	w.stillThere(t, "cut-delete", "cut-delete")
	w.agent(t, "cut-delete")
	until(t, w, attachmentOf("cut-delete", "cut-delete"), "it is deleted once the agent has reported",
		func(now *storagev1.VolumeAttachment) bool {
			return !exists(now) || now.UID != va.UID || now.DeletionTimestamp != nil
		})
}

func aCutThatIsLiftedAfterTheReport(t *testing.T, w *world) {
	w.forcedAwayAndStopped(t, "cut-reported")
	w.agent(t, "cut-reported")
	until(t, w, stateOf("cut-reported"), "the agent reports that nothing is left",
		func(s *volumesv1alpha1.NodeVolumeState) bool { return len(s.Status.Volumes) == 0 })
	w.unfence(t, "cut-reported")
	o, _ := networkFences(t)
	_, stop := w.manage(t, o)
	defer stop()
	var unprotected bool
	until(t, w, stateOf("cut-reported"), "the entry is gone", func(s *volumesv1alpha1.NodeVolumeState) bool {
		e := entryIn(s, "cut-reported")
		unprotected = unprotected || e.Evidence != nil && e.Evidence.Unprotected
		return len(s.Spec.Attachments) == 0
	})
	if unprotected {
		t.Error("the evidence was unprotected although the agent had reported before the fence was lifted")
	}
}

// TestAccessThatIsNotCutForcesNothing: what keeps each of these fences from counting is then taken away, and nothing
// else.
func TestAccessThatIsNotCutForcesNothing(t *testing.T) {
	w := newWorld(t)
	o, c := networkFences(t)
	_, stop := w.manage(t, o)
	defer stop()
	for name, r := range map[string]struct {
		fence func(data map[string]string)
		// befalls the node before; undone is what the fence lacks.
		befalls, undone func(*testing.T, *world, string)
	}{
		"one-address": {fence: func(data map[string]string) { data["cidrs"], _, _ = strings.Cut(data["cidrs"], ",") }},
		"wish-alone":  {fence: func(data map[string]string) { data["result"] = "" }},
		"failed":      {fence: func(data map[string]string) { data["result"] = "Failed" }},
		"unfenced":    {fence: func(data map[string]string) { data["wish"] = "Unfenced" }},
		"driver":      {fence: func(data map[string]string) { data["fenced"] = "other.csi.hawser.io" }},
		"no-address":  {fence: func(data map[string]string) { data["cidrs"] += ",storage" }},
		"another-machine": {befalls: func(t *testing.T, w *world, name string) {
			w.identify(t, name, secondMachine, firstMachine)
		}, undone: func(t *testing.T, w *world, name string) { w.identify(t, name, firstMachine, firstMachine) }},
		"nothing-reported": {befalls: func(t *testing.T, w *world, name string) {
			w.reports(t, name, driverName, "")
		}, undone: func(t *testing.T, w *world, name string) { w.reportsItsOwn(t, name) }},
		"unknown-address": {befalls: func(t *testing.T, w *world, name string) {
			w.reports(t, name, driverName, "storage")
		}, undone: func(t *testing.T, w *world, name string) { w.reportsItsOwn(t, name) }},
		"of-another-driver": {befalls: func(t *testing.T, w *world, name string) {
			v4, v6 := addressesOf(name)
			w.reports(t, name, "other.csi.hawser.io", v4+","+v6)
		}, undone: func(t *testing.T, w *world, name string) { w.reportsItsOwn(t, name) }},
		"two-reports": {befalls: func(t *testing.T, w *world, name string) {
			more := reportedBy(driverName, name, "198.51.100.1")
			more.Name += "-more"
			w.create(t, more)
		}, undone: func(t *testing.T, w *world, name string) {
			more := reportedBy(driverName, name, "")
			more.Name += "-more"
			w.delete(t, more)
		}},
		"opened-again": {befalls: func(t *testing.T, w *world, name string) {
			w.create(t, unfencing(name))
		}, undone: func(t *testing.T, w *world, name string) { w.delete(t, unfencing(name)) }},
	} {
		t.Run(name, func(t *testing.T) {
			name = "not-" + name
			w.stuckOn(t, c, name)
			if r.befalls != nil {
				r.befalls(t, w, name)
			}
			fence := networkFence(name)
			whole := fence.DeepCopy().Data
			if r.fence != nil {
				r.fence(fence.Data)
			}
			w.create(t, fence)
			w.reconcileNode(t, name)
			w.touchClaim(t, name, "look")
			w.stillThere(t, name, name)
			if e := entryIn(w.state(t, name), name); e.State != volumesv1alpha1.AttachmentAttached {
				t.Errorf("entry of volume %s: %s; want it Attached", name, dump(e))
			}
			w.change(t, fence, func() { fence.Data = whole })
			if r.undone != nil {
				r.undone(t, w, name)
				w.touchClaim(t, name, "again")
			}
			w.cutOff(t, name)
		})
	}
}

func (w *world) reportsItsOwn(t *testing.T, name string) {
	t.Helper()
	v4, v6 := addressesOf(name)
	w.reports(t, name, driverName, v4+","+v6)
}

// reports changes what a driver reports of the node.
func (w *world) reports(t *testing.T, name, driver, addresses string) {
	t.Helper()
	client := reportedBy(driver, name, addresses)
	w.change(t, client, func() { client.Data["driver"], client.Data["addresses"] = driver, addresses })
}
