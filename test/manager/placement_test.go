/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/policy"
	"github.com/hawser-io/hawser/test/apiserver"
)

// TestPlacement runs a manager under its own account, with its own roles and every admission policy.
func TestPlacement(t *testing.T) {
	w := newWorld(t)
	w.kubectl(t)("", "apply", "-k", "rbac")
	w.kubectl(t)("", "apply", "-k", "admission")
	gate := policy.New(clock.RealClock{})
	w.manage(t, managerOptions{policies: gate})
	for name, zone := range map[string]string{"node-a": "a", "node-b": "b"} {
		w.bareNode(t, name)
		w.labelNode(t, name, corev1.LabelTopologyZone, zone)
	}
	w.gatesPods(t)
	for _, scenario := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"a pod goes to the zone of its volume", aPodGoesToTheZoneOfItsVolume},
		{"the affinity of a pod is kept and narrowed", theAffinityOfAPodIsNarrowed},
		{"a pod waits for its claim and its volume", aPodWaitsForItsClaimAndItsVolume},
		{"a pod waits for the gates of others", aPodWaitsForTheGatesOfOthers},
		{"a pod of an intent goes to its node", aPodOfAnIntentGoesToItsNode},
		{"a claim for its first consumer pins the second one", aFirstConsumerDecides},
		{"a class that comes to allow the pod's zone ends its wait", aClassComesToAllowAZone},
		{"an exclusive volume that is held elsewhere is waited for", anExclusiveVolumeIsWaitedFor},
		{"a full node is left out", aFullNodeIsLeftOut},
		{"storage capacity is read where it is published", storageCapacityIsRead},
	} {
		t.Run(scenario.name, func(t *testing.T) { scenario.run(t, w) })
	}
}

func (w *world) labelNode(t *testing.T, name, key, value string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	w.change(t, node, func() { node.Labels[key] = value })
}

// gatesPods waits until the API server gates pods, if it does so at all.
func (w *world) gatesPods(t *testing.T) {
	t.Helper()
	if !apiserver.MutatingPolicies(t) {
		return
	}
	// That has no event.
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			probe := gatedPod("probe", volumesv1alpha1.AttributeClaim, "none")
			probe.Spec.SchedulingGates = nil
			return w.client.Create(ctx, probe, client.DryRunAll) == nil && !index.Ungated(probe), nil
		})
	if err != nil {
		t.Fatalf("waiting until pods are gated: %v", err)
	}
}

// gatedPod has the gate already: an API server without mutating policies does not add it.
func gatedPod(name, attribute string, values ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
		Labels: map[string]string{volumesv1alpha1.GatedLabel: "true"}}}
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	pod.Spec.TerminationGracePeriodSeconds = ptr.To(int64(0))
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: volumesv1alpha1.PlacementGate}}
	for _, value := range values {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: value, VolumeSource: corev1.VolumeSource{
			CSI: &corev1.CSIVolumeSource{Driver: volumesv1alpha1.InlineDriver,
				VolumeAttributes: map[string]string{attribute: value}}}})
	}
	return pod
}

// ofClaims creates a pod with an inline volume of each claim, without the gate if the policy adds it.
func (w *world) ofClaims(t *testing.T, name string, claims ...string) *corev1.Pod {
	t.Helper()
	pod := gatedPod(name, volumesv1alpha1.AttributeClaim, claims...)
	if apiserver.MutatingPolicies(t) {
		pod.Labels, pod.Spec.SchedulingGates = nil, nil
	}
	w.create(t, pod)
	if index.Ungated(pod) {
		t.Fatalf("pod %s has no gate after its creation, want one", name)
	}
	return pod
}

// placed waits until the pod has no gate any more, and returns its required affinity in short.
func (w *world) placed(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	until(t, w, pod, "the gate of pod "+pod.Name+" is lifted", func(p *corev1.Pod) bool {
		return exists(p) && len(p.Spec.SchedulingGates) == 0
	})
	if _, labelled := pod.Labels[volumesv1alpha1.GatedLabel]; labelled {
		t.Errorf("pod %s has the label %s without the gate, want both gone", pod.Name, volumesv1alpha1.GatedLabel)
	}
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil ||
		pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	var terms []string
	for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		var parts []string
		for _, r := range append(slices.Clone(term.MatchExpressions), term.MatchFields...) {
			parts = append(parts, r.Key+" "+string(r.Operator)+" "+strings.Join(r.Values, ","))
		}
		terms = append(terms, strings.Join(parts, " and "))
	}
	return strings.Join(terms, " or ")
}

func (w *world) expectPlaced(t *testing.T, pod *corev1.Pod, want string) {
	t.Helper()
	if got := w.placed(t, pod); got != want {
		t.Errorf("pod %s may run on %q, want %q", pod.Name, got, want)
	}
}

// waits waits until the pod's condition has this reason and the text.
func (w *world) waits(t *testing.T, pod *corev1.Pod, reason, text string) {
	t.Helper()
	until(t, w, pod, "pod "+pod.Name+" waits, reason "+reason+", "+text, func(p *corev1.Pod) bool {
		c := index.Placeable(p)
		return exists(p) && c != nil && c.Status == corev1.ConditionFalse && c.Reason == reason &&
			strings.Contains(c.Message, text)
	})
	if index.Ungated(pod) {
		t.Errorf("pod %s waits without a gate, want one", pod.Name)
	}
}

// volumeIn makes a claim that is bound to a volume of a zone.
func (w *world) volumeIn(t *testing.T, name, zone string, modes ...corev1.PersistentVolumeAccessMode) {
	t.Helper()
	o := volumeOptions{modes: modes}
	claim := newClaim(name, o)
	w.create(t, claim)
	w.create(t, zonal(newVolume(claim, o), zone))
	w.bind(t, claim)
}

func zonal(pv *corev1.PersistentVolume, zone string) *corev1.PersistentVolume {
	pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.
		NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone,
		Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}}}}}}
	return pv
}

const inZone = corev1.LabelTopologyZone + " In "

func aPodGoesToTheZoneOfItsVolume(t *testing.T, w *world) {
	w.volumeIn(t, "zonal", "a")
	w.expectPlaced(t, w.ofClaims(t, "zonal", "zonal"), inZone+"a")
}

func theAffinityOfAPodIsNarrowed(t *testing.T, w *world) {
	w.volumeIn(t, "narrowed", "a")
	pod := gatedPod("narrowed", volumesv1alpha1.AttributeClaim, "narrowed")
	required := func(key, value string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key,
			Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}}
	}
	pod.Spec.Affinity = &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{required("disk", "fast"), required("disk", "large")}},
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1,
				Preference: required("rack", "1")}},
		},
		PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}}},
	}
	w.create(t, pod)
	w.expectPlaced(t, pod, "disk In fast and "+inZone+"a or disk In large and "+inZone+"a")
	if len(pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) != 1 ||
		pod.Spec.Affinity.PodAntiAffinity == nil {
		t.Errorf("pod narrowed has the affinity %s, want what it preferred and its anti-affinity kept",
			dump(pod.Spec.Affinity))
	}
}

func aPodWaitsForItsClaimAndItsVolume(t *testing.T, w *world) {
	pod := w.ofClaims(t, "early", "early")
	w.waits(t, pod, volumesv1alpha1.ReasonClaimNotFound, "claim default/early does not exist; create it")
	w.podEvent(t, pod, volumesv1alpha1.ReasonClaimNotFound, "claim default/early")
	claim := newClaim("early", volumeOptions{})
	w.create(t, claim)
	w.waits(t, pod, volumesv1alpha1.ReasonClaimNotBound, "claim default/early is not bound")
	w.bind(t, claim)
	w.waits(t, pod, volumesv1alpha1.ReasonVolumeNotFound, "volume pv-early")
	w.create(t, zonal(newVolume(claim, volumeOptions{}), "b"))
	w.expectPlaced(t, pod, inZone+"b")
	c := index.Placeable(pod)
	if c == nil || c.Status != corev1.ConditionTrue || c.Reason != volumesv1alpha1.ReasonPlaced {
		t.Errorf("pod early has the condition %+v, want Placed", c)
	}
}

func aPodWaitsForTheGatesOfOthers(t *testing.T, w *world) {
	w.volumeIn(t, "queued", "a")
	pod := gatedPod("queued", volumesv1alpha1.AttributeClaim, "queued")
	pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: "example.com/queue"})
	w.create(t, pod)
	// A pod that came later was placed.
	w.volumeIn(t, "unqueued", "a")
	w.expectPlaced(t, w.ofClaims(t, "unqueued", "unqueued"), inZone+"a")
	w.change(t, pod, func() {
		if len(pod.Spec.SchedulingGates) != 2 || pod.Spec.Affinity != nil {
			t.Errorf("pod queued was changed before it left its queue: %s", dump(pod.Spec))
		}
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: volumesv1alpha1.PlacementGate}}
	})
	w.expectPlaced(t, pod, inZone+"a")
}

func aPodOfAnIntentGoesToItsNode(t *testing.T, w *world) {
	pod := gatedPod("of-intent", volumesv1alpha1.AttributeIntent, "shared")
	w.create(t, pod)
	w.waits(t, pod, volumesv1alpha1.ReasonIntentNotFound, "intent default/shared")
	w.intent(t, "shared", "node-late", "none")
	w.waits(t, pod, volumesv1alpha1.ReasonNodeNotFound, "node node-late of intent default/shared does not exist")
	w.bareNode(t, "node-late")
	w.expectPlaced(t, pod, "metadata.name In node-late")
}

// waitingClass is a StorageClass for the first consumer, in zone b, of a driver that has no other volumes.
func (w *world) waitingClass(t *testing.T, name, driver string) {
	t.Helper()
	w.create(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		AllowedTopologies: []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{
			{Key: corev1.LabelTopologyZone, Values: []string{"b"}}}}}})
}

func aFirstConsumerDecides(t *testing.T, w *world) {
	w.waitingClass(t, "first", driverName)
	claim := newClaim("first", volumeOptions{modes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}})
	claim.Spec.StorageClassName = ptr.To("first")
	w.create(t, claim)
	one := w.ofClaims(t, "first", "first")
	w.expectPlaced(t, one, inZone+"b")
	two := w.ofClaims(t, "second", "first")
	w.waits(t, two, volumesv1alpha1.ReasonWaitForFirstConsumer, "pod default/first")
	w.change(t, claim, func() {
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, "volume.kubernetes.io/selected-node", "node-b")
	})
	w.expectPlaced(t, two, "metadata.name In node-b")
}

func aClassComesToAllowAZone(t *testing.T, w *world) {
	w.waitingClass(t, "grows", driverName)
	claim := newClaim("grows", volumeOptions{})
	claim.Spec.StorageClassName = ptr.To("grows")
	w.create(t, claim)
	pod := gatedPod("grows", volumesv1alpha1.AttributeClaim, "grows")
	pod.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "a"}
	w.create(t, pod)
	w.waits(t, pod, volumesv1alpha1.ReasonConstraintsContradict, "no node can have all volumes")
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "grows"}}
	w.change(t, class, func() { class.AllowedTopologies[0].MatchLabelExpressions[0].Values = []string{"a", "b"} })
	w.expectPlaced(t, pod, inZone+"a,b")
}

func anExclusiveVolumeIsWaitedFor(t *testing.T, w *world) {
	w.volume(t, "held", volumeOptions{})
	holder := w.intent(t, "holder", "node-a", "held")
	pod := w.ofClaims(t, "held", "held")
	w.waits(t, pod, volumesv1alpha1.ReasonVolumeInUse, "held by node node-a: intent default/holder")
	// A pod that can run there only may share the node's volume.
	beside := gatedPod("beside", volumesv1alpha1.AttributeClaim, "held")
	beside.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node-a"}
	w.create(t, beside)
	w.expectPlaced(t, beside, "metadata.name In node-a")
	w.delete(t, beside)
	w.delete(t, holder)
	w.expectPlaced(t, pod, "")
}

func aFullNodeIsLeftOut(t *testing.T, w *world) {
	const driver = "small.example.com"
	for _, node := range []string{"node-a", "node-b"} {
		limits := csiNode(node)
		w.change(t, limits, func() {
			limits.Spec.Drivers = append(limits.Spec.Drivers, storagev1.CSINodeDriver{Name: driver, NodeID: node,
				Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To(int32(1))}})
		})
	}
	fills := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "fills"},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: "node-a",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("another")}}}
	w.create(t, fills)
	for _, name := range []string{"small", "here", "larger"} {
		claim := newClaim(name, volumeOptions{})
		w.create(t, claim)
		pv := newVolume(claim, volumeOptions{})
		pv.Spec.CSI.Driver = driver
		w.create(t, pv)
		w.bind(t, claim)
	}
	w.expectPlaced(t, w.ofClaims(t, "small", "small"), corev1.LabelHostname+" NotIn node-a")
	onNodeA := func(name string) *corev1.Pod {
		pod := gatedPod(name, volumesv1alpha1.AttributeClaim, name)
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn,
					Values: []string{"node-a"}}}}}}}}
		w.create(t, pod)
		w.waits(t, pod, volumesv1alpha1.ReasonNodeLimitReached, "no other node than node-a")
		return pod
	}
	larger := onNodeA("larger")
	limits := csiNode("node-a")
	w.change(t, limits, func() { limits.Spec.Drivers = limitOf(limits.Spec.Drivers, driver, 2) })
	w.expectPlaced(t, larger, "metadata.name In node-a")
	w.change(t, limits, func() { limits.Spec.Drivers = limitOf(limits.Spec.Drivers, driver, 1) })
	here := onNodeA("here")
	w.delete(t, fills)
	w.expectPlaced(t, here, "metadata.name In node-a")
}

// limitOf returns the drivers with another limit of one of them.
func limitOf(drivers []storagev1.CSINodeDriver, name string, limit int32) []storagev1.CSINodeDriver {
	drivers = slices.Clone(drivers)
	for i := range drivers {
		if drivers[i].Name == name {
			drivers[i].Allocatable = &storagev1.VolumeNodeResources{Count: &limit}
		}
	}
	return drivers
}

func storageCapacityIsRead(t *testing.T, w *world) {
	const driver = "local.example.com"
	w.create(t, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driver},
		Spec: storagev1.CSIDriverSpec{StorageCapacity: ptr.To(true)}})
	w.create(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)})
	published := map[string]*storagev1.CSIStorageCapacity{}
	for _, zone := range []string{"a", "b"} {
		size := capacity(map[string]string{"a": "512Mi", "b": "2Gi"}[zone])[corev1.ResourceStorage]
		published[zone] = &storagev1.CSIStorageCapacity{
			ObjectMeta:       metav1.ObjectMeta{Namespace: "default", Name: "local-" + zone},
			StorageClassName: "local", Capacity: &size,
			NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelTopologyZone: zone}}}
		w.create(t, published[zone])
	}
	claim := newClaim("local", volumeOptions{})
	claim.Spec.StorageClassName = ptr.To("local")
	w.create(t, claim)
	pod := gatedPod("local", volumesv1alpha1.AttributeClaim, "local")
	pod.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": "node-a"}
	w.create(t, pod)
	w.waits(t, pod, volumesv1alpha1.ReasonNodeLimitReached, "no other node than node-a")
	w.change(t, published["a"], func() { published["a"].Capacity = published["b"].Capacity })
	w.expectPlaced(t, pod, "")
	if c := index.Placeable(pod); c == nil || c.Reason != volumesv1alpha1.ReasonPlaced {
		t.Errorf("pod local has the condition %+v, want Placed", c)
	}
}
