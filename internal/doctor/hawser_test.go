/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package doctor

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
)

// attached has pv-1 attached by Hawser to node-a, for an intent.
func attached(w *world) (*volumesv1alpha1.NodeAttachment, *volumesv1alpha1.NodeVolume) {
	w.withHawser()
	noPod(w)
	w.addIntent("data-on-node-a", "node-a", "data", "pv-1")
	state, name := w.state("node-a"), volume.UniqueName(driver, "handle-1")
	state.Spec.Attachments = []volumesv1alpha1.NodeAttachment{{VolumeName: name, AttachmentUID: w.attachment.UID,
		AttachmentName: w.attachment.Name, State: volumesv1alpha1.AttachmentAttached, Driver: driver,
		PersistentVolumeName: "pv-1"}}
	state.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: name, AttachmentUID: w.attachment.UID, InUse: true}}
	return &state.Spec.Attachments[0], &state.Status.Volumes[0]
}

// forced has the volume forced away from node-a.
func forced(w *world) *volumesv1alpha1.NodeAttachment {
	e, _ := attached(w)
	w.Attachments.Items, w.Intents.Items = nil, nil
	e.State, e.DetachedTime = volumesv1alpha1.AttachmentDetaching, ptr.To(ago(time.Hour))
	e.Evidence = &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceForcedAfterTimeout, Time: ago(time.Hour)}
	return e
}

func restored(w *world) {
	w.withHawser()
	w.state("node-a").Status.Protocol.Session = 9
	w.lease("hawser-agent-node-a").Annotations = map[string]string{
		volumesv1alpha1.LeaseRestoredAnnotation: "true", volumesv1alpha1.LeaseRestoreIDAnnotation: "restore-1"}
	*w.lease("hawser-agent-node-b") = *lease("hawser-agent-node-b", time.Hour)
}

func condition(kind string, status metav1.ConditionStatus, reason string, since time.Duration) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: "because", LastTransitionTime: ago(since)}
}

var hawserSituations = []situation{
	{"an orphan", Risk, "HWS415", func(w *world) {
		_, l := attached(w)
		l.Publications = []volumesv1alpha1.Publication{{Orphan: true, Path: "/p",
			Intent: volumesv1alpha1.IntentReference{Namespace: "shop", Name: "lost"}}}
	}, map[string]func(*world){"its intent exists": func(w *world) {
		w.state("node-a").Status.Volumes[0].Publications[0].Orphan = false
	}}, "path /p"},
	{"a forced detach that is not confirmed", Risk, "HWS210", func(w *world) { forced(w) }, map[string]func(*world){
		"it has just ended": func(w *world) { w.state("node-a").Spec.Attachments[0].DetachedTime = ptr.To(ago(time.Second)) },
		"the agent released it": func(w *world) {
			w.state("node-a").Spec.Attachments[0].Evidence.Type = volumesv1alpha1.EvidenceAgentReleased
		}}, "volume pv-1 on node node-a, evidence ForcedAfterTimeout"},
	{"a mount that may still write", Danger, "HWS417", func(w *world) { _, l := attached(w); l.Unprotected = true },
		map[string]func(*world){"it is shut down": func(w *world) {
			w.state("node-a").Status.Volumes[0].Unprotected = false
		}}, "handle-1"},
	{"a volume that is nearly full", Outage, "HWS425", func(w *world) {
		_, l := attached(w)
		l.Used, l.Available = ptr.To(resource.MustParse("99Gi")), ptr.To(resource.MustParse("1Gi"))
	}, map[string]func(*world){"there is room": func(w *world) {
		w.state("node-a").Status.Volumes[0].Available = ptr.To(resource.MustParse("50Gi"))
	}, "nothing is known": func(w *world) { w.state("node-a").Status.Volumes[0].Available = nil }}, "1Gi of 100Gi free"},
	{"data that is lost", Danger, "HWS433", func(w *world) {
		_, l := attached(w)
		l.Health = &volumesv1alpha1.Health{Since: ago(time.Hour),
			Problems: []volumesv1alpha1.HealthProblem{{Status: volumesv1alpha1.HealthDataLoss}}}
	}, map[string]func(*world){"for a moment": func(w *world) {
		w.state("node-a").Status.Volumes[0].Health.Since = ago(time.Second)
	}}, "DataLoss"},
	{"a volume that is degraded", Outage, "HWS433", func(w *world) {
		_, l := attached(w)
		l.Health = &volumesv1alpha1.Health{Since: ago(time.Hour),
			Problems: []volumesv1alpha1.HealthProblem{{Status: volumesv1alpha1.HealthDegraded}}}
	}, nil, "Degraded"},
	{"storage that a driver reports", Outage, "HWS432", func(w *world) {
		attached(w)
		w.state("node-a").Status.Conditions = append(w.state("node-a").Status.Conditions, condition(
			volumesv1alpha1.ConditionStorageHealthy, metav1.ConditionFalse, volumesv1alpha1.ReasonStorageUnhealthy, time.Hour))
	}, map[string]func(*world){"for a moment": func(w *world) {
		w.state("node-a").Status.Conditions[1].LastTransitionTime = ago(time.Second)
	}}, "because"},
	{"a detach of Hawser that is stuck", Risk, "HWS416", func(w *world) {
		e, l := attached(w)
		w.Intents.Items, l.InUse = nil, false
		deleted(w.attachment, time.Minute)
		e.State, e.DetachError = volumesv1alpha1.AttachmentDetaching, "no attacher"
		e.Evidence = &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceAgentReleased, Time: ago(time.Hour)}
	}, map[string]func(*world){"for a moment": func(w *world) {
		w.state("node-a").Spec.Attachments[0].Evidence.Time = ago(time.Second)
	}}, "no attacher"},
	{"an agent that is silent", Outage, "HWS411", func(w *world) {
		attached(w)
		*w.lease("hawser-agent-node-a") = *lease("hawser-agent-node-a", time.Hour)
	}, map[string]func(*world){
		"it is heard": func(w *world) { *w.lease("hawser-agent-node-a") = *lease("hawser-agent-node-a", time.Second) },
		"its node is dead": func(w *world) {
			notReady(w, "node-a", corev1.ConditionUnknown, time.Hour) // which is the finding
		}}, "the agent of node node-a renewed it last"},
	{"a node that should have an agent", Outage, "HWS412", func(w *world) {
		w.withHawser()
		noPod(w)
		w.addNode("node-c")
		w.Attachments.Items[0].Spec.NodeName = "node-c"
		w.addIntent("i", "node-c", "data", "pv-1")
		w.States.Items = append(w.States.Items, w.state("node-a").DeepCopy())
		w.States.Items[2].Name, w.States.Items[2].Status = "node-c", volumesv1alpha1.NodeVolumeStateStatus{}
	}, map[string]func(*world){
		"nothing names it": func(w *world) { w.Intents.Items, w.Attachments.Items = nil, nil },
		"the node is new":  func(w *world) { w.node("node-c").CreationTimestamp = ago(time.Minute) },
		"the kubelet mounts": func(w *world) {
			w.Intents.Items[0].Spec.Publisher = volumesv1alpha1.PublisherKubelet
		}}, ""},
	{"no manager", Outage, "HWS413", func(w *world) {
		w.withHawser()
		*w.lease("hawser-manager") = *lease("hawser-manager", time.Hour)
	},
		map[string]func(*world){
			"another one may take over": func(w *world) {
				*w.lease("hawser-manager") = *lease("hawser-manager", 45*time.Second)
			},
			"none elects a leader": func(w *world) { w.Leases.Items = w.Leases.Items[1:] }}, ""},
	{"an installation that is degraded", Outage, "HWS506", func(w *world) {
		w.withHawser()
		w.Managers.Items = append(w.Managers.Items, &volumesv1alpha1.VolumeManager{ObjectMeta: metaOf("", "cluster"),
			Status: volumesv1alpha1.VolumeManagerStatus{Conditions: []metav1.Condition{condition(
				volumesv1alpha1.ConditionDegraded, metav1.ConditionTrue, volumesv1alpha1.ReasonPodsFailing, time.Hour)}}})
	}, map[string]func(*world){
		"for a moment": func(w *world) { w.Managers.Items[0].Status.Conditions[0].LastTransitionTime = ago(time.Second) },
		"it is not":    func(w *world) { w.Managers.Items[0].Status.Conditions[0].Status = metav1.ConditionFalse },
		"a mode not in use": func(w *world) {
			w.Managers.Items[0].Status.Conditions[0] = condition(volumesv1alpha1.ConditionReplaceCoversNodes,
				metav1.ConditionFalse, volumesv1alpha1.ReasonNodesWithoutAgent, time.Hour)
		}}, "because"},
	{"a fence source that cannot be read", Risk, "HWS522", func(w *world) {
		w.withHawser()
		w.Managers.Items = append(w.Managers.Items, &volumesv1alpha1.VolumeManager{ObjectMeta: metaOf("", "cluster"),
			Status: volumesv1alpha1.VolumeManagerStatus{Conditions: []metav1.Condition{condition(
				volumesv1alpha1.ConditionFenceSourcesReady, metav1.ConditionFalse,
				volumesv1alpha1.ReasonFenceSourceForbidden, time.Hour)}}})
	}, map[string]func(*world){
		"for a moment": func(w *world) { w.Managers.Items[0].Status.Conditions[0].LastTransitionTime = ago(time.Second) },
		"it is ready":  func(w *world) { w.Managers.Items[0].Status.Conditions[0].Status = metav1.ConditionTrue },
	}, "because"},
	{"a policy that is weakened", Danger, "HWS120", func(w *world) {
		w.withHawser()
		w.Policies = map[string]string{"hawser-hold": "spec.failurePolicy"}
	}, map[string]func(*world){"all are in force": func(w *world) { w.Policies = nil }}, "spec.failurePolicy"},
	{"a restore that waits", Outage, "HWS935", restored, map[string]func(*world){
		"all are heard": func(w *world) { *w.lease("hawser-agent-node-b") = *lease("hawser-agent-node-b", time.Second) },
		"it is excused": func(w *world) {
			w.state("node-b").Annotations = map[string]string{volumesv1alpha1.ExcusedFromRestoreAnnotation: "restore-1"}
		},
		"the Node is gone":       func(w *world) { w.Nodes.Items = w.Nodes.Items[:1] },
		"all are confirmed":      func(w *world) { w.state("node-a").Spec.Protocol.ConfirmedSession = 9 },
		"there was no restore":   func(w *world) { w.lease("hawser-agent-node-a").Annotations = nil },
		"no agent ever reported": func(w *world) { w.state("node-b").Status.Protocol.Reports = 0 },
	}, "1 silent agents: nodes node-b; IDs of the restore: restore-1"},
	{"an intent that waits", Outage, "HWS119", func(w *world) {
		attached(w)
		i := w.addIntent("other", "node-b", "data", "pv-1")
		i.Status.Conditions = []metav1.Condition{condition(volumesv1alpha1.ConditionResolved, metav1.ConditionFalse,
			volumesv1alpha1.ReasonNodeAffinityMismatch, time.Hour), condition(volumesv1alpha1.ConditionReady,
			metav1.ConditionFalse, volumesv1alpha1.ReasonNodeAffinityMismatch, time.Hour)}
		w.volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.
			NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: "In",
			Values: []string{"a"}}}}}}}
		w.node("node-a").Labels = map[string]string{"zone": "a"}
	}, map[string]func(*world){"for a moment": func(w *world) {
		w.Intents.Items[1].Status.Conditions[1].LastTransitionTime = ago(time.Second)
	}, "it is being deleted": func(w *world) { deleted(w.Intents.Items[1], time.Second) }}, "because"},
}

// addWaitingIntent adds one for a volume that another node has.
func (w *world) addWaitingIntent(name, node, claim, pv string) {
	conditions := w.addIntent(name, node, claim, pv).Status.Conditions
	for i := range conditions {
		conditions[i].Status, conditions[i].Reason = metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeInUse
	}
}

// TestAnIntentThatWaitsForAVolumeOnTwoNodesIsShownWithIt: Kubernetes attached it to the intent's node for a pod.
func TestAnIntentThatWaitsForAVolumeOnTwoNodesIsShownWithIt(t *testing.T) {
	w := newWorld()
	w.withHawser()
	w.addAttachment("pv-1", "handle-1", "node-b")
	w.addIntent("held", "node-a", "data", "pv-1")
	w.addWaitingIntent("waits", "node-b", "data", "pv-1")
	r := Examine(w.Cluster, noon)
	if got := codesOf(r); !slices.Equal(got, []string{"HWS926"}) || r.Findings[0].Severity != Danger ||
		r.Findings[0].Waiting != 1 {
		t.Errorf("found %v: %+v; want HWS926 alone, with one intent that waits", got, r.Findings)
	}
}

// TestATaintThatIsContradictedIsToBeSetAgain: it detaches nothing.
func TestATaintThatIsContradictedIsToBeSetAgain(t *testing.T) {
	const remove = "kubectl taint node node-a node.kubernetes.io/out-of-service-"
	for _, contradicted := range []bool{false, true} {
		w := newWorld()
		w.withHawser()
		notReady(w, "node-a", corev1.ConditionUnknown, time.Hour)
		taint(w, "node-a")
		silent := metav1.NewMicroTime(noon.Add(-time.Hour))
		w.lease(volumesv1alpha1.AgentLeasePrefix + "node-a").Spec.RenewTime = &silent
		if contradicted {
			w.state("node-a").Status.Node.OutOfService = &volumesv1alpha1.OutOfServiceObservation{
				Contradicted: ptr.To(ago(time.Hour))}
		}
		w.addIntent("held", "node-a", "data", "pv-1")
		w.addWaitingIntent("waits", "node-b", "data", "pv-1") // for the node, so it has what was found of that
		r := Examine(w.Cluster, noon)
		i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.Code == "HWS710" })
		if i < 0 {
			t.Fatalf("contradicted %t: findings %+v, want HWS710", contradicted, r.Findings)
		}
		f := r.Findings[i]
		if strings.Contains(f.Way, "forces nothing") != contradicted || slices.Contains(f.Run, remove) != contradicted ||
			strings.Contains(f.Way, "detached by force") == contradicted {
			t.Errorf("contradicted %t: way out %q with %q; want the taint to be set again: %t", contradicted, f.Way, f.Run,
				contradicted)
		}
	}
}

func TestASilentAgentOnADeadNodeIsOneFinding(t *testing.T) {
	w := newWorld()
	attached(w)
	*w.lease("hawser-agent-node-a") = *lease("hawser-agent-node-a", time.Hour)
	notReady(w, "node-a", corev1.ConditionUnknown, time.Hour)
	if got := codesOf(Examine(w.Cluster, noon)); len(got) != 1 || got[0] != "HWS710" {
		t.Errorf("found %v, want HWS710 alone", got)
	}
}

func TestSilentAgentsAreOneFinding(t *testing.T) {
	w := newWorld()
	w.withHawser()
	for _, node := range []string{"node-a", "node-b"} {
		*w.lease("hawser-agent-" + node) = *lease("hawser-agent-"+node, time.Hour)
	}
	noPod(w)
	i := w.addIntent("data-on-node-a", "node-a", "data", "pv-1")
	i.Status.Conditions = []metav1.Condition{condition(volumesv1alpha1.ConditionReady, metav1.ConditionUnknown,
		volumesv1alpha1.ReasonAgentUnreachable, 50*time.Minute)}
	r := Examine(w.Cluster, noon)
	if len(r.Findings) != 1 || r.Findings[0].Count != 2 || len(r.Findings[0].Others) != 1 || r.Findings[0].Waiting != 1 {
		t.Errorf("findings %+v, want one of two Leases, for which one intent waits", r.Findings)
	}
}
