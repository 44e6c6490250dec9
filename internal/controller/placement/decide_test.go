/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package placement

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/cached"
)

const testDriver = "d.example.com"

// ofClaim is an inline volume of a claim that is bound to a shared volume without affinity, with what the options
// change.
func ofClaim(options ...func(*volumeFacts)) volumeFacts {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "claim"}}
	claim.Spec.VolumeName, claim.Status.Phase = "pv", corev1.ClaimBound
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "claim"}
	pv.Spec.AccessModes = claim.Spec.AccessModes
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: testDriver, VolumeHandle: "v"}
	v := volumeFacts{name: "data", claimName: "data", claim: claim, pv: pv}
	for _, o := range options {
		o(&v)
	}
	return v
}

func inZones(terms ...string) func(*volumeFacts) {
	return func(v *volumeFacts) {
		v.pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
			NodeSelectorTerms: parse(terms...)}}
	}
}

func labelled(key, value string) func(*volumeFacts) {
	return func(v *volumeFacts) { metav1.SetMetaDataLabel(&v.pv.ObjectMeta, key, value) }
}

func modes(modes ...corev1.PersistentVolumeAccessMode) func(*volumeFacts) {
	return func(v *volumeFacts) {
		v.claim.Spec.AccessModes = modes
		if v.pv != nil {
			v.pv.Spec.AccessModes = modes
		}
	}
}

// unbound: the claim waits for its first consumer.
func unbound(v *volumeFacts) {
	v.pv, v.claim.Spec.VolumeName, v.claim.Status.Phase = nil, "", corev1.ClaimPending
	v.claim.Spec.StorageClassName = ptr.To("fast")
	v.class = &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: testDriver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}
}

func topologies(zones ...string) func(*volumeFacts) {
	return func(v *volumeFacts) {
		v.class.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.
			TopologySelectorLabelRequirement{{Key: zone, Values: zones}}}}
	}
}

func selected(node string, exists bool) func(*volumeFacts) {
	return func(v *volumeFacts) {
		v.claim.Annotations = map[string]string{cached.SelectedNodeAnnotation: node}
		if exists {
			v.node = nodesOf(node)[0]
		}
	}
}

func usedBy(list ...user) func(*volumeFacts) {
	return func(v *volumeFacts) { v.users.all = list }
}

func ofIntent(node string, exists bool) volumeFacts {
	intent := &volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}}
	intent.Spec.NodeName = node
	v := volumeFacts{name: "data", intentName: "data", intent: intent}
	if exists {
		v.node = nodesOf(node)[0]
	}
	return v
}

func change(v volumeFacts, f func(*volumeFacts)) volumeFacts {
	f(&v)
	return v
}

var (
	podA    = user{name: "pod shop/a", node: "node-a", pod: "a"}
	podB    = user{name: "pod shop/b", node: "node-b", pod: "b"}
	coming  = user{name: "pod shop/c", pod: "c"}
	leaving = user{name: "pod shop/a", node: "node-a", pod: "a", leaving: true}
	foreign = user{node: "node-b"}
	rwo     = modes(corev1.ReadWriteOnce)
	rwop    = modes(corev1.ReadWriteOncePod)
)

type decideCase struct {
	name    string
	pod     *corev1.Pod
	volumes []volumeFacts
	// terms that a pod is lifted with; reason and part of the message otherwise.
	terms           string
	reason, message string
	waits           bool
}

func TestWhereAPodMayRun(t *testing.T) {
	for _, test := range []decideCase{
		{name: "an intent pins to its node", volumes: []volumeFacts{ofIntent("node-a", true)}, terms: "name=node-a"},
		{name: "an intent whose Node does not exist", volumes: []volumeFacts{ofIntent("node-x", false)}, waits: true,
			reason: "NodeNotFound", message: "volume data: node node-x of intent shop/data does not exist"},
		{name: "an intent that does not exist", volumes: []volumeFacts{{name: "data", intentName: "data"}}, waits: true,
			reason: "IntentNotFound", message: "intent shop/data does not exist"},
		{name: "an intent that is being deleted", waits: true, reason: "IntentDeleting", message: "intent shop/data",
			volumes: []volumeFacts{change(ofIntent("node-a", true), func(v *volumeFacts) {
				v.intent.DeletionTimestamp = ptr.To(metav1.Now())
			})}},
		{name: "intents of two nodes", waits: true, reason: "ConstraintsContradict", message: "no node",
			volumes: []volumeFacts{ofIntent("node-a", true), ofIntent("node-b", true)}},
		{name: "an intent's node in another zone than a volume", waits: true, reason: "ConstraintsContradict",
			volumes: []volumeFacts{ofIntent("node-a", true), ofClaim(inZones("zone=b"))}},
		{name: "an intent's node that the pod does not want", pod: podWith(map[string]string{zone: "b"}), waits: true,
			volumes: []volumeFacts{ofIntent("node-a", true)}, reason: "ConstraintsContradict"},

		{name: "a volume without affinity", volumes: []volumeFacts{ofClaim()}},
		{name: "a volume of one zone", volumes: []volumeFacts{ofClaim(inZones("zone=a"))}, terms: "zone=a"},
		{name: "a zone without a node yet is for an autoscaler", volumes: []volumeFacts{ofClaim(inZones("zone=new"))},
			terms: "zone=new"},
		{name: "two volumes have to agree", volumes: []volumeFacts{ofClaim(inZones("zone=a,b")),
			ofClaim(inZones("zone=b,c"))}, terms: "zone=a,b zone=b,c"},
		{name: "two volumes of two zones", waits: true, reason: "ConstraintsContradict",
			volumes: []volumeFacts{ofClaim(inZones("zone=a")), ofClaim(inZones("zone=b"))}},
		{name: "a volume with the label of a zone", volumes: []volumeFacts{ofClaim(labelled(corev1.LabelTopologyZone, "a"))},
			terms: "zone=a"},
		{name: "a label of old, of two zones", terms: "zone=a,b", volumes: []volumeFacts{ofClaim(
			labelled(corev1.LabelFailureDomainBetaZone, "b__a"), labelled(corev1.LabelTopologyZone, "a__b"))}},
		{name: "a label that cannot be read", volumes: []volumeFacts{ofClaim(labelled(corev1.LabelTopologyZone, "a__"))}},
		{name: "a volume with an affinity and the label of a zone", terms: "rack=1 zone=b", volumes: []volumeFacts{ofClaim(
			inZones("rack=1"), labelled(corev1.LabelTopologyZone, "b"))}},
		{name: "two volumes with labels of two zones", waits: true, reason: "ConstraintsContradict",
			volumes: []volumeFacts{ofClaim(labelled(corev1.LabelTopologyZone, "a")), ofClaim(inZones("zone=b"))}},
		{name: "what was left out is said", pod: podWith(nil, "rack=1,2"), reason: "AlternativeChosen",
			volumes: []volumeFacts{ofClaim(inZones("zone=a rack=1", "zone=b"))}, terms: "rack=1,2 zone=b",
			message: "left out: " + zone + " In a"},

		{name: "a claim that does not exist", volumes: []volumeFacts{{name: "data", claimName: "data"}}, waits: true,
			reason: "ClaimNotFound", message: "claim shop/data does not exist; create it"},
		{name: "a claim that is being deleted", waits: true, reason: "ClaimDeleting", message: "claim shop/data",
			volumes: []volumeFacts{ofClaim(func(v *volumeFacts) { v.claim.DeletionTimestamp = ptr.To(metav1.Now()) })}},
		{name: "a claim that lost its volume", waits: true, reason: "ClaimLost", message: "volume pv",
			volumes: []volumeFacts{ofClaim(func(v *volumeFacts) { v.claim.Status.Phase = corev1.ClaimLost })}},
		{name: "a claim of a block device", waits: true, reason: "VolumeModeMismatch", message: "volumeDevices",
			volumes: []volumeFacts{ofClaim(func(v *volumeFacts) {
				v.claim.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
			})}},
		{name: "a volume that does not exist", waits: true, reason: "VolumeNotFound", message: "volume pv of claim shop/data",
			volumes: []volumeFacts{ofClaim(func(v *volumeFacts) { v.pv = nil })}},
		{name: "a volume of another claim", waits: true, reason: "VolumeBoundElsewhere", message: "volume pv is not bound",
			volumes: []volumeFacts{ofClaim(func(v *volumeFacts) { v.pv.Spec.ClaimRef.UID = "other" })}},
		{name: "a volume of no CSI driver", waits: true, reason: "VolumeNotSupported", message: "volume pv",
			volumes: []volumeFacts{ofClaim(func(v *volumeFacts) { v.pv.Spec.CSI = nil })}},
		{name: "attributes that name two things", waits: true, reason: "AttributesInvalid", message: "set one of",
			volumes: []volumeFacts{{name: "data", claimName: "a", intentName: "b", invalid: "set one of them"}}},

		{name: "a claim of an immediate class", waits: true, reason: "ClaimNotBound", message: "claim shop/data is not bound",
			volumes: []volumeFacts{ofClaim(unbound, func(v *volumeFacts) { v.class.VolumeBindingMode = nil })}},
		{name: "a claim that is about to be bound", waits: true, reason: "ClaimNotBound", message: "claim shop/data is not",
			volumes: []volumeFacts{ofClaim(func(v *volumeFacts) {
				v.claim.Status.Phase, v.claim.Spec.StorageClassName = corev1.ClaimPending, ptr.To("fast")
			})}},
		{name: "a class that does not exist", waits: true, reason: "StorageClassNotFound", message: "StorageClass fast",
			volumes: []volumeFacts{ofClaim(unbound, func(v *volumeFacts) { v.class = nil })}},
		{name: "a class without a provisioner", waits: true, reason: "NoProvisioner", message: "spec.volumeName",
			volumes: []volumeFacts{ofClaim(unbound, func(v *volumeFacts) {
				v.class.Provisioner = "kubernetes.io/no-provisioner"
			})}},
		{name: "a claim for its first consumer", volumes: []volumeFacts{ofClaim(unbound)}},
		{name: "the topologies of its class", volumes: []volumeFacts{ofClaim(unbound, topologies("a", "b"))},
			terms: "zone=a,b"},
		{name: "the node that was selected", volumes: []volumeFacts{ofClaim(unbound, topologies("a"),
			selected("node-a", true))}, terms: "name=node-a"},
		{name: "a selected node that does not exist", waits: true, reason: "NodeNotFound", message: "node node-x",
			volumes: []volumeFacts{ofClaim(unbound, selected("node-x", false))}},
		{name: "another pod is the first consumer", waits: true, reason: "WaitForFirstConsumer", message: "pod shop/c",
			volumes: []volumeFacts{ofClaim(unbound, usedBy(coming))}},
		{name: "the first of two consumers is named", waits: true, reason: "WaitForFirstConsumer", message: "and pod shop/b",
			volumes: []volumeFacts{ofClaim(unbound, usedBy(coming, podB))}},
		{name: "in whatever order they are found", waits: true, reason: "WaitForFirstConsumer", message: "and pod shop/b",
			volumes: []volumeFacts{ofClaim(unbound, usedBy(podB, coming))}},
		{name: "a first consumer that goes does not count", volumes: []volumeFacts{ofClaim(unbound, usedBy(leaving))}},
	} {
		t.Run(test.name, test.run)
	}
}

func TestANodeWithoutZoneTakesVolumesOfEveryZone(t *testing.T) {
	const none = zone + " DoesNotExist and topology.kubernetes.io/region DoesNotExist"
	for name, test := range map[string]struct {
		nodes []*corev1.Node
		want  string
	}{
		"no node has a zone":    {nodesOf("node-a", "node-b"), zone + " In a or " + none},
		"one node has no zone":  {nodesOf("node-a zone=a", "node-b"), zone + " In a or " + none},
		"every node has a zone": {nodesOf("node-a zone=a", "node-b zone=b"), zone + " In a"},
	} {
		t.Run(name, func(t *testing.T) {
			d := decide(facts{pod: podWith(nil), nodes: test.nodes,
				volumes: []volumeFacts{ofClaim(labelled(corev1.LabelTopologyZone, "a"))}})
			var terms []string
			for _, term := range d.terms {
				terms = append(terms, describe(term))
			}
			if got := strings.Join(terms, " or "); !d.lift || !strings.HasPrefix(got, test.want) ||
				strings.Contains(test.want, none) != strings.Contains(got, none) {
				t.Errorf("the pod may run on %q, lifted %t; want the gate lifted and %q", got, d.lift, test.want)
			}
		})
	}
}

func TestAPodWithAnAffinityOfItsOwnStaysInTheZoneOfItsVolume(t *testing.T) {
	for name, test := range map[string]struct {
		nodes []*corev1.Node
		want  string
	}{
		"more nodes have no zone": {nodesOf("control-1 rack=1", "control-2 rack=1", "node-a zone=a rack=1"), "rack=1 zone=a"},
		"the zone has no node":    {nodesOf("new rack=1", "node-b zone=b rack=1"), "rack=1 zone=a"},
	} {
		t.Run(name, func(t *testing.T) {
			d := decide(facts{pod: podWith(nil, "rack=1"), nodes: test.nodes,
				volumes: []volumeFacts{ofClaim(labelled(corev1.LabelTopologyZone, "a"))}})
			if got := short(d.terms); !d.lift || got != test.want {
				t.Errorf("the pod may run on %q, lifted %t; want the gate lifted and %q", got, d.lift, test.want)
			}
		})
	}
	d := decide(facts{pod: podWith(nil, "rack=1"), nodes: nodesOf("node-a rack=1"),
		volumes: []volumeFacts{ofClaim(labelled(corev1.LabelTopologyZone, "a"))}})
	if got := describe(d.terms[0]); !strings.Contains(got, zone+" DoesNotExist") {
		t.Errorf("where no node has a zone, the pod may run on %q, want on nodes without one", got)
	}
}

func TestAnExclusiveVolumeThatOthersUse(t *testing.T) {
	lockedTo := func(node string) func(*volumeFacts) { return func(v *volumeFacts) { v.users.lock = node } }
	inUseOn := func(node string) func(*volumeFacts) {
		return func(v *volumeFacts) { v.users.present = []string{node} }
	}
	onlyA, notA := podWith(map[string]string{corev1.LabelHostname: "node-a"}), podWith(nil, "zone=b")
	for _, test := range []decideCase{
		{name: "no user", volumes: []volumeFacts{ofClaim(rwo)}},
		{name: "a lock without a user is no obstacle", volumes: []volumeFacts{ofClaim(rwo, lockedTo("node-a"))}},
		{name: "the holder is waited for", volumes: []volumeFacts{ofClaim(rwo, usedBy(podA))}, waits: true,
			reason: "VolumeInUseElsewhere", message: "held by node node-a: pod shop/a"},
		{name: "the lock decides which of two is the holder", volumes: []volumeFacts{ofClaim(rwo, usedBy(podA, podB),
			lockedTo("node-b"))}, waits: true, reason: "VolumeInUseElsewhere", message: "held by node node-b: pod shop/b"},
		{name: "a pod that can run on the holder only joins it", pod: onlyA, volumes: []volumeFacts{ofClaim(rwo,
			usedBy(podA))}, terms: "name=node-a"},
		{name: "a pod joins the first one while the claim has a node and no volume", volumes: []volumeFacts{ofClaim(unbound,
			rwo, selected("node-a", true), usedBy(podA))}, terms: "name=node-a"},
		{name: "a pod that cannot run on the holder", pod: notA, volumes: []volumeFacts{ofClaim(rwo, usedBy(podA))},
			waits: true, reason: "VolumeInUseElsewhere", message: "node node-a"},
		{name: "a user that goes is not waited for", volumes: []volumeFacts{ofClaim(rwo, usedBy(leaving),
			inUseOn("node-a"))}},
		{name: "a user without a node comes first", volumes: []volumeFacts{ofClaim(rwo, usedBy(coming))}, waits: true,
			reason: "VolumeInUseElsewhere", message: "pod shop/c comes first"},
		{name: "a user of another namespace is not named", volumes: []volumeFacts{ofClaim(rwo, usedBy(foreign))},
			waits: true, reason: "VolumeInUseElsewhere", message: "node node-b: 1 in other namespaces"},
		{name: "what remains on a node without a user", volumes: []volumeFacts{ofClaim(rwo, inUseOn("node-a"))}, waits: true,
			reason: "VolumeInUseElsewhere", message: "still in use on node node-a"},
		{name: "a shared volume has as many users as want it", volumes: []volumeFacts{ofClaim(usedBy(podA, coming))}},
		{name: "ReadWriteOncePod names its user", pod: onlyA, volumes: []volumeFacts{ofClaim(rwop, usedBy(podA))},
			waits: true, reason: "ReadWriteOncePodConflict", message: "a single user, which is pod shop/a"},
		{name: "ReadWriteOncePod with a user that goes", volumes: []volumeFacts{ofClaim(rwop, usedBy(leaving))}},
		{name: "ReadWriteOncePod before it is bound", volumes: []volumeFacts{ofClaim(unbound, rwop, usedBy(coming))},
			waits: true, reason: "ReadWriteOncePodConflict", message: "pod shop/c"},
		{name: "many users are counted", waits: true, reason: "VolumeInUseElsewhere",
			message: "pod shop/1, pod shop/2, pod shop/3, 1 more", volumes: []volumeFacts{ofClaim(rwo, usedBy(
				user{name: "pod shop/4", node: "node-a"}, user{name: "pod shop/2", node: "node-a"},
				user{name: "pod shop/1", node: "node-a"}, user{name: "pod shop/3", node: "node-a"}))}},
	} {
		t.Run(test.name, test.run)
	}
}

func (c decideCase) run(t *testing.T) {
	pod := c.pod
	if pod == nil {
		pod = podWith(nil)
	}
	c.expect(t, decide(facts{pod: pod, volumes: c.volumes,
		nodes: nodesOf("node-a zone=a rack=1", "node-b zone=b rack=1", "node-c zone=b rack=2")}))
}

func (c decideCase) expect(t *testing.T, d decision) {
	t.Helper()
	if d.lift == c.waits {
		t.Fatalf("the gate is lifted: %t, want %t; reason %s, %s", d.lift, !c.waits, d.reason, d.message)
	}
	if d.reason != c.reason || !strings.Contains(d.message, c.message) {
		t.Errorf("reason %q, message %q; want %q and %q", d.reason, d.message, c.reason, c.message)
	}
	if got := short(d.terms); d.lift && got != c.terms {
		t.Errorf("the terms are %q, want %q", got, c.terms)
	}
}

func publishing(v *volumeFacts) {
	v.driver = &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{StorageCapacity: ptr.To(true)}}
}

func withoutAttach(v *volumeFacts) {
	v.driver = &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(false)}}
}

func attachedTo(node string) func(*volumeFacts) {
	return func(v *volumeFacts) { v.attachedTo = map[string]bool{node: true} }
}

func capacityIn(class, zoneName, size string, largest ...string) storagev1.CSIStorageCapacity {
	c := storagev1.CSIStorageCapacity{StorageClassName: class, Capacity: ptr.To(resource.MustParse(size))}
	if zoneName != "" {
		c.NodeTopology = &metav1.LabelSelector{MatchLabels: map[string]string{zone: zoneName}}
	}
	for _, l := range largest {
		c.MaximumVolumeSize = ptr.To(resource.MustParse(l))
	}
	return c
}

func host(name string) map[string]string { return map[string]string{corev1.LabelHostname: name} }

func TestNodesWithoutRoomAreExcluded(t *testing.T) {
	two := []volumeFacts{ofClaim(), ofClaim(func(v *volumeFacts) { v.claimName, v.name = "logs", "logs" })}
	fullA := map[string]int{"node-a": 0}
	onlyA := decideCase{waits: true, reason: "NodeLimitReached", message: "no other node than node-a, which has no room"}
	waitsForA := func(name string, pod *corev1.Pod, volumes ...volumeFacts) decideCase {
		c := onlyA
		c.name, c.pod, c.volumes = name, pod, volumes
		return c
	}
	for _, test := range []struct {
		decideCase
		// room that the driver has on nodes.
		room       map[string]int
		capacities []storagev1.CSIStorageCapacity
	}{
		{decideCase{name: "a full node", volumes: []volumeFacts{ofClaim()}, terms: "host!node-a"},
			map[string]int{"node-a": 0, "node-b": 1}, nil},
		{decideCase{name: "a node above its limit", volumes: []volumeFacts{ofClaim()}, terms: "host!node-a"},
			map[string]int{"node-a": -2}, nil},
		{decideCase{name: "only nodes that the volume allows are named", terms: "zone=b host!node-b",
			volumes: []volumeFacts{ofClaim(inZones("zone=b"))}}, map[string]int{"node-a": 0, "node-b": 0}, nil},
		{decideCase{name: "a volume that is attached there needs no room", volumes: []volumeFacts{ofClaim(
			attachedTo("node-a"))}}, map[string]int{"node-a": 0}, nil},
		{decideCase{name: "two volumes need twice the room", volumes: two, terms: "host!node-a"},
			map[string]int{"node-a": 1, "node-b": 2}, nil},
		{decideCase{name: "a driver without attach has no limit", volumes: []volumeFacts{ofClaim(withoutAttach)}},
			map[string]int{"node-a": 0}, nil},
		{decideCase{name: "an intent needs no room of its own", volumes: []volumeFacts{ofIntent("node-a", true)},
			terms: "name=node-a"}, map[string]int{"node-a": 0}, nil},
		{decideCase{name: "no node has room", volumes: []volumeFacts{ofClaim(inZones("zone=b"))},
			terms: "zone=b host!node-b,node-c", reason: "EveryNodeFull", message: "node-b, node-c"},
			map[string]int{"node-b": 0, "node-c": 0}, nil},
		{decideCase{name: "the limit counts for a volume that is yet to be created", volumes: []volumeFacts{ofClaim(
			unbound)}, terms: "host!node-a"}, map[string]int{"node-a": 0}, nil},

		{decideCase{name: "storage capacity that is not published", volumes: []volumeFacts{ofClaim(unbound)}}, nil,
			[]storagev1.CSIStorageCapacity{capacityIn("fast", "b", "1Gi")}},
		{decideCase{name: "capacity in one zone", volumes: []volumeFacts{ofClaim(unbound, publishing)},
			terms: "host!node-a"}, nil, []storagev1.CSIStorageCapacity{capacityIn("fast", "b", "10Gi"),
			capacityIn("fast", "a", "9Gi"), capacityIn("slow", "a", "10Gi"), capacityIn("fast", "", "10Gi")}},
		{decideCase{name: "the largest volume counts", volumes: []volumeFacts{ofClaim(unbound, publishing)},
			terms: "host!node-a"}, nil, []storagev1.CSIStorageCapacity{capacityIn("fast", "b", "1Gi", "10Gi"),
			capacityIn("fast", "a", "100Gi", "1Gi")}},
		{decideCase{name: "a selected node was checked before", volumes: []volumeFacts{ofClaim(unbound, publishing,
			selected("node-a", true))}, terms: "name=node-a"}, nil, nil},
		{decideCase{name: "no capacity at all", volumes: []volumeFacts{ofClaim(unbound, publishing)},
			terms: "host!node-a,node-b,node-c", reason: "EveryNodeFull", message: "node-a, node-b, node-c"}, nil, nil},

		{waitsForA("a pod with a node selector for the host", podWith(host("node-a")), ofClaim()), fullA, nil},
		{waitsForA("a pod with an affinity to the host", podWith(nil, "host=node-a"), ofClaim()), fullA, nil},
		{waitsForA("a pod of a DaemonSet", podWith(nil, "name=node-a"), ofClaim()), fullA, nil},
		{waitsForA("each term names a full node", podWith(nil, "name=node-a", "host=node-a zone=a"), ofClaim()), fullA, nil},
		{waitsForA("a full node that was selected for the claim", podWith(nil), ofClaim(unbound,
			selected("node-a", true))), fullA, nil},
		{waitsForA("a full node of an intent", podWith(nil), ofIntent("node-a", true), ofClaim()), fullA, nil},
		{waitsForA("a volume of a full host", podWith(nil), ofClaim(inZones("host=node-a"))), fullA, nil},
		{waitsForA("a volume of a full node that its driver names by a label of its own", podWith(nil),
			ofClaim(inZones("rack=node-a"))), fullA, nil},
		{waitsForA("a node without capacity that the pod selects", podWith(host("node-a")), ofClaim(unbound, publishing)),
			nil, nil},
		{decideCase{name: "a zone whose only node is full may get another", pod: podWith(map[string]string{zone: "a"}),
			volumes: []volumeFacts{ofClaim(inZones("zone=a"))}, terms: "zone=a host!node-a", reason: "EveryNodeFull",
			message: "node-a"}, fullA, nil},
		{decideCase{name: "one of two terms leaves room for a node that is added", pod: podWith(nil, "host=node-a",
			"zone=a"), volumes: []volumeFacts{ofClaim()}, terms: "host=node-a host!node-a | zone=a host!node-a",
			reason: "EveryNodeFull", message: "node-a"}, fullA, nil},
		{decideCase{name: "a host that may yet be added", pod: podWith(nil, "host=node-a,node-x"),
			volumes: []volumeFacts{ofClaim()}, terms: "host=node-a,node-x host!node-a", reason: "EveryNodeFull",
			message: "node-a"}, fullA, nil},
		{decideCase{name: "one of two hosts has room", pod: podWith(nil, "host=node-a,node-b"),
			volumes: []volumeFacts{ofClaim()}, terms: "host=node-a,node-b host!node-a"}, fullA, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := test.pod
			if pod == nil {
				pod = podWith(nil)
			}
			test.expect(t, decide(facts{pod: pod, volumes: test.volumes, capacities: test.capacities,
				room:  map[string]map[string]int{testDriver: test.room},
				nodes: nodesOf("node-a zone=a rack=node-a", "node-b zone=b", "node-c zone=b")}))
		})
	}
}

func TestWhatRestrictsNothingIsReadLive(t *testing.T) {
	zonal := ofClaim(inZones("zone=a"))
	for name, test := range map[string]struct {
		volumes     []volumeFacts
		constrained bool
		first       bool
	}{
		"a shared volume without affinity":  {volumes: []volumeFacts{ofClaim()}},
		"a shared volume of a zone":         {volumes: []volumeFacts{zonal}, constrained: true},
		"one of two volumes has a zone":     {volumes: []volumeFacts{zonal, ofClaim()}},
		"two volumes have a zone":           {volumes: []volumeFacts{zonal, zonal}, constrained: true},
		"an exclusive volume has one first": {volumes: []volumeFacts{ofClaim(rwo)}, first: true},
		"a claim for its first consumer":    {volumes: []volumeFacts{ofClaim(unbound)}, first: true},
		"a claim whose node has been selected": {volumes: []volumeFacts{ofClaim(unbound, selected("node-a", true))},
			constrained: true},
		"an intent": {volumes: []volumeFacts{ofIntent("node-a", true)}, constrained: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := decide(facts{pod: podWith(nil), volumes: test.volumes, nodes: nodesOf("node-a zone=a", "node-b zone=a"),
				room: map[string]map[string]int{testDriver: {"node-b": 0}}})
			if !d.lift || d.constrained != test.constrained || (len(d.first) > 0) != test.first {
				t.Errorf("decision %+v, want that the gate is lifted, constrained %t, first %t", d, test.constrained,
					test.first)
			}
		})
	}
}
