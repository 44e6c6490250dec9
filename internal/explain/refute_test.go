/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

var now = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

func object[P client.Object](kind, namespace, name string, value P) facts.Object[P] {
	value.SetNamespace(namespace)
	value.SetName(name)
	value.SetCreationTimestamp(ago(time.Hour))
	return facts.Object[P]{Ref: facts.Ref{Kind: kind, Namespace: namespace, Name: name}, Value: value, Found: true}
}

// healthy is an intent whose whole chain is as it should be: only a condition of it, or of its node state, is not.
func healthy(intent, state []metav1.Condition) *facts.Facts {
	const driver, node = "disk.example.com", "node-b"
	renewed := metav1.NewMicroTime(now.Add(-5 * time.Second))
	v := facts.Volume{Node: node, Driver: driver, UniqueName: "kubernetes.io/csi/disk.example.com^handle-1",
		Intent: object(facts.KindIntent, "shop", "data", &volumesv1alpha1.VolumeAttachmentIntent{
			Spec:   volumesv1alpha1.VolumeAttachmentIntentSpec{NodeName: node},
			Status: volumesv1alpha1.VolumeAttachmentIntentStatus{Conditions: intent}}),
		Claim: object(facts.KindClaim, "shop", "data", &corev1.PersistentVolumeClaim{
			Spec:   corev1.PersistentVolumeClaimSpec{VolumeName: "pv-1"},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}),
		Class: object(facts.KindClass, "", "fast", &storagev1.StorageClass{}),
		Volume: object(facts.KindVolume, "", "pv-1", &corev1.PersistentVolume{
			Spec:   corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "data"}},
			Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound}}),
		Attachment: object(facts.KindAttachment, "", "csi-1", &storagev1.VolumeAttachment{
			Spec:   storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: node},
			Status: storagev1.VolumeAttachmentStatus{Attached: true}})}
	return &facts.Facts{Now: now, Subject: v.Intent.Ref, Installed: true, System: "hawser-system",
		ManagerLease: object(facts.KindLease, "hawser-system", "hawser-manager",
			&coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}}),
		Pod:     object(facts.KindPod, "shop", "web", &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}}),
		Volumes: []facts.Volume{v},
		Nodes: []facts.Node{{Name: node,
			Node: object(facts.KindNode, "", node, &corev1.Node{Status: corev1.NodeStatus{
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}),
			CSINode: object(facts.KindCSINode, "", node, &storagev1.CSINode{
				Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driver}}}}),
			State: object(facts.KindState, "", node, &volumesv1alpha1.NodeVolumeState{
				Status: volumesv1alpha1.NodeVolumeStateStatus{Conditions: state,
					Drivers: []volumesv1alpha1.NodeDriver{{Name: driver}}}}),
			Lease: object(facts.KindLease, "hawser-system", "hawser-agent-"+node,
				&coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}})}}}
}

func failing(reason string) []metav1.Condition {
	return []metav1.Condition{{Type: volumesv1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason,
		LastTransitionTime: ago(time.Minute)}}
}

// found reports whether a code is a problem of the report.
func found(r *Report, code string) bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Code == code && f.Level == catalog.Problem })
}

// irrefutable are the codes of which no object of the chain can show the contrary, by the reason for that.
var irrefutable = map[string][]string{
	"the walk finds it in the objects themselves": {"HWS121", "HWS122", "HWS410", "HWS411", "HWS412", "HWS413", "HWS414",
		"HWS415", "HWS416", "HWS417", "HWS418", "HWS419", "HWS420", "HWS421", "HWS425", "HWS433", "HWS434", "HWS438",
		"HWS439",
		"HWS606", "HWS609", "HWS610", "HWS612", "HWS614", "HWS621", "HWS623", "HWS627", "HWS629", "HWS630", "HWS701",
		"HWS702", "HWS706", "HWS707", "HWS708", "HWS709", "HWS710", "HWS713", "HWS715", "HWS716", "HWS717", "HWS155",
		"HWS518", "HWS519", "HWS801", "HWS802", "HWS804", "HWS903"},
	"the object that has the condition never changes in this": {"HWS106", "HWS109", "HWS110", "HWS111", "HWS114",
		"HWS115", "HWS116", "HWS319", "HWS320", "HWS523", "HWS643"},
	"what it is about is not read": {"HWS120", "HWS151", "HWS152", "HWS153", "HWS154", "HWS207", "HWS210", "HWS211",
		"HWS212", "HWS213", "HWS216", "HWS437", "HWS524", "HWS525", "HWS526", "HWS601", "HWS602", "HWS604",
		"HWS642", "HWS647", "HWS648", "HWS649"},
	"only the node, its driver or its storage knows": {"HWS306", "HWS307", "HWS308", "HWS309", "HWS310", "HWS311",
		"HWS313", "HWS315", "HWS316", "HWS317", "HWS318", "HWS321", "HWS322", "HWS323", "HWS324", "HWS325", "HWS326",
		"HWS327", "HWS328", "HWS329", "HWS330", "HWS331", "HWS333", "HWS335", "HWS336", "HWS405", "HWS406", "HWS407",
		"HWS422", "HWS428", "HWS429", "HWS431", "HWS432"},
	"the manager is the object": {"HWS501", "HWS502", "HWS503", "HWS505", "HWS506", "HWS507", "HWS508", "HWS509",
		"HWS511", "HWS512", "HWS513", "HWS517", "HWS520", "HWS521", "HWS522"},
	"its reason is not known": {"HWS499"},
	"package doctor finds it in the objects themselves": {"HWS921", "HWS922", "HWS923", "HWS924", "HWS925", "HWS926",
		"HWS927", "HWS928", "HWS929", "HWS930", "HWS931", "HWS932", "HWS933", "HWS934", "HWS935",
		"HWS936"},
	"package preflight finds it in a cluster without Hawser": {"HWS941", "HWS943", "HWS946", "HWS947", "HWS948", "HWS950",
		"HWS951", "HWS962"},
}

// Each new code has to be refuted, or to be in a list with the reason why it cannot be.
func TestACauseIsRefutedByTheObjectsOfItsChain(t *testing.T) {
	listed := slices.Concat(slices.Collect(maps.Values(irrefutable))...)
	for _, e := range catalog.All() {
		if e.Level != catalog.Problem {
			continue
		}
		ofNode := healthy(nil, failing(e.Reason))
		ofNode.Subject = ofNode.Nodes[0].Node.Ref
		got := found(Explain(healthy(failing(e.Reason), nil)), e.Code) && found(Explain(ofNode), e.Code)
		if want := slices.Contains(listed, e.Code); got != want {
			t.Errorf("%s %s in a chain in which all else is well: a finding %t, want %t", e.Code, e.Reason, got, want)
		}
	}
}

// TestAVolumeThatIsAttachedWaitsForANodeThatMayWriteToItAgain: its cut was lifted before its agent has reported.
func TestAVolumeThatIsAttachedWaitsForANodeThatMayWriteToItAgain(t *testing.T) {
	for unprotected, want := range map[bool]bool{true: true, false: false} {
		f := healthy(failing(volumesv1alpha1.ReasonVolumeInUse), nil)
		away := &volumesv1alpha1.NodeVolumeState{Spec: volumesv1alpha1.NodeVolumeStateSpec{
			Attachments: []volumesv1alpha1.NodeAttachment{{VolumeName: f.Volumes[0].UniqueName, AttachmentUID: "1",
				State: volumesv1alpha1.AttachmentDetaching, Evidence: &volumesv1alpha1.DetachEvidence{Unprotected: unprotected,
					Type:  volumesv1alpha1.EvidenceFenced,
					Fence: &volumesv1alpha1.FenceReference{Proves: volumesv1alpha1.FenceAccessCut}}}}}}
		f.Nodes = append(f.Nodes, facts.Node{Name: "node-a", State: object(facts.KindState, "", "node-a", away)})
		if got := isAttached(f, &f.Volumes[0]) == ""; got != want {
			t.Errorf("the cut was lifted: %t; it waits: %t, want %t", unprotected, got, want)
		}
	}
}

// TestAVolumeThatAnotherNodeHoldsIsNotFree: Kubernetes attached it to the node for a pod all the same.
func TestAVolumeThatAnotherNodeHoldsIsNotFree(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*facts.Volume)
		want   []string
	}{
		"no other node has it": {func(*facts.Volume) {}, []string{"HWS435"}},
		"its own node has the lock": {func(v *facts.Volume) { v.Lock.Value.Holder = "node-b" },
			[]string{"HWS435"}},
		"another node has the lock": {func(v *facts.Volume) { v.Lock.Value.Holder = "node-a" }, []string{"HWS206"}},
		"an intent has it on another node": {func(v *facts.Volume) {
			v.Intents.Items = []volumesv1alpha1.VolumeAttachmentIntent{{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other"},
				Spec:       volumesv1alpha1.VolumeAttachmentIntentSpec{NodeName: "node-a"},
				Status: volumesv1alpha1.VolumeAttachmentIntentStatus{Conditions: []metav1.Condition{
					{Type: volumesv1alpha1.ConditionAttached, Status: metav1.ConditionTrue}}}}}
		}, []string{"HWS206"}},
		"it is attached to both nodes": {func(v *facts.Volume) {
			v.Elsewhere.Items = []storagev1.VolumeAttachment{{ObjectMeta: metav1.ObjectMeta{Name: "csi-2"},
				Spec:   storagev1.VolumeAttachmentSpec{Attacher: v.Driver, NodeName: "node-a"},
				Status: storagev1.VolumeAttachmentStatus{Attached: true}}}
		}, []string{"HWS926", "HWS206", "HWS713"}},
	} {
		f := healthy(failing(volumesv1alpha1.ReasonVolumeInUse), nil)
		f.Volumes[0].Exclusive = true
		tt.change(&f.Volumes[0])
		var codes []string
		for _, finding := range Explain(f).Findings {
			if (finding.Level == catalog.Problem) == (finding.Code != "HWS435") {
				codes = append(codes, finding.Code)
			}
		}
		if !slices.Equal(codes, tt.want) {
			t.Errorf("%s: codes %q, want %q", name, codes, tt.want)
		}
	}
}

func TestWhatIsRefutedIsAWaitForTheWriterOfTheCondition(t *testing.T) {
	r := Explain(healthy(failing(volumesv1alpha1.ReasonNodeTainted), nil))
	if len(r.Findings) != 1 || r.Findings[0].Reason != catalog.Outdated || r.Findings[0].Level != catalog.Waiting ||
		!strings.Contains(r.Findings[0].Detail, "Node node-b has no such taint") {
		t.Errorf("findings %+v, want one of reason %s that is waiting, and names what the Node shows", r.Findings,
			catalog.Outdated)
	}
}
