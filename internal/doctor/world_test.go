/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package doctor

import (
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

var noon = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-d)) }

const (
	driver = "disk.example.com"
	long   = 3 * time.Hour
)

// world is a cluster in which all is well: pod web on node-a runs with claim data, which is bound to pv-1 of a driver
// that attaches. A second node has the driver and no volume.
type world struct {
	*Cluster
	pod        *corev1.Pod
	claim      *corev1.PersistentVolumeClaim
	volume     *corev1.PersistentVolume
	attachment *storagev1.VolumeAttachment
	driver     *storagev1.CSIDriver
}

func newWorld() *world {
	w := &world{Cluster: &Cluster{System: "hawser-system"}}
	w.addNode("node-a")
	w.addNode("node-b")
	w.driver = &storagev1.CSIDriver{ObjectMeta: metaOf("", driver)}
	w.Drivers.Items = append(w.Drivers.Items, w.driver)
	w.Classes.Items = append(w.Classes.Items, &storagev1.StorageClass{ObjectMeta: metaOf("", "fast"), Provisioner: driver})
	w.claim, w.volume = w.addVolume("data", "pv-1", "handle-1")
	w.pod = w.addPod("web", "node-a", "data")
	w.attachment = w.addAttachment("pv-1", "handle-1", "node-a")
	return w
}

func metaOf(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name), CreationTimestamp: ago(long)}
}

func (w *world) addNode(name string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metaOf("", name), Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: ago(long)}}}}
	w.Nodes.Items = append(w.Nodes.Items, node)
	w.CSINodes.Items = append(w.CSINodes.Items, &storagev1.CSINode{ObjectMeta: metaOf("", name),
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: "id-" + name,
			Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To[int32](10)}}}}})
	return node
}

func (w *world) node(name string) *corev1.Node { return itemOf(w.Nodes, name) }

func (w *world) csiNode(name string) *storagev1.CSINode { return itemOf(w.CSINodes, name) }

func (w *world) addVolume(claim, pv, handle string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metaOf("shop", claim),
		Spec: corev1.PersistentVolumeClaimSpec{VolumeName: pv, StorageClassName: ptr.To("fast"),
			Resources: corev1.VolumeResourceRequirements{Requests: size}},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: size.DeepCopy()}}
	v := &corev1.PersistentVolume{ObjectMeta: metaOf("", pv), Spec: corev1.PersistentVolumeSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		ClaimRef:    &corev1.ObjectReference{Namespace: "shop", Name: claim, UID: c.UID},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: driver, VolumeHandle: handle}}}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound}}
	w.Claims.Items = append(w.Claims.Items, c)
	w.Volumes.Items = append(w.Volumes.Items, v)
	return c, v
}

func (w *world) addPod(name, node, claim string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metaOf("shop", name), Spec: corev1.PodSpec{NodeName: node,
		Containers: []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v"}}}},
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: ptr.To(ago(long))}}
	w.Pods.Items = append(w.Pods.Items, pod)
	return pod
}

// addWaiting adds a pod that waits.
func (w *world) addWaiting(name, node, claim string) *corev1.Pod {
	pod := w.addPod(name, node, claim)
	pod.Status.Phase = corev1.PodPending
	pod.CreationTimestamp = ago(20 * time.Minute)
	return pod
}

func (w *world) addAttachment(pv, handle, node string) *storagev1.VolumeAttachment {
	va := &storagev1.VolumeAttachment{ObjectMeta: metaOf("", volume.AttachmentName(driver, handle, node)),
		Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
		Status: storagev1.VolumeAttachmentStatus{Attached: true}}
	va.Finalizers = []string{"external-attacher/disk-example-com"}
	va.UID = types.UID("va-" + pv + "-" + node)
	w.Attachments.Items = append(w.Attachments.Items, va)
	return va
}

// event adds one about a pod or a claim.
func (w *world) event(uid types.UID, kind, reason, message string) {
	w.Events.Items = append(w.Events.Items, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprint("e", len(w.Events.Items)), CreationTimestamp: ago(time.Hour)},
		InvolvedObject: corev1.ObjectReference{UID: uid, Kind: kind, Name: string(uid)}, Type: corev1.EventTypeWarning,
		Reason: reason, Message: message, LastTimestamp: ago(time.Minute)})
}

// withHawser installs Hawser: a manager that leads, and an agent with a node state on each node.
func (w *world) withHawser() {
	w.Installed = true
	w.Leases.Items = append(w.Leases.Items, lease("hawser-manager", 5*time.Second))
	for _, n := range w.Nodes.Items {
		w.Leases.Items = append(w.Leases.Items, lease(volumesv1alpha1.AgentLeasePrefix+n.Name, 5*time.Second))
		w.States.Items = append(w.States.Items, &volumesv1alpha1.NodeVolumeState{ObjectMeta: metaOf("", n.Name),
			Status: volumesv1alpha1.NodeVolumeStateStatus{AgentVersion: "v1", Conditions: []metav1.Condition{{
				Type: volumesv1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: volumesv1alpha1.ReasonReady,
				LastTransitionTime: ago(long)}},
				Protocol: volumesv1alpha1.AgentProtocol{Reports: 7, Session: 3},
				Drivers:  []volumesv1alpha1.NodeDriver{{Name: driver}}},
			Spec: volumesv1alpha1.NodeVolumeStateSpec{Protocol: volumesv1alpha1.ManagerProtocol{ConfirmedSession: 3}}})
	}
}

func (w *world) state(node string) *volumesv1alpha1.NodeVolumeState { return itemOf(w.States, node) }

func (w *world) lease(name string) *coordinationv1.Lease { return itemOf(w.Leases, name) }

func lease(name string, age time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metaOf("hawser-system", name), Spec: coordinationv1.LeaseSpec{
		RenewTime: ptr.To(metav1.NewMicroTime(noon.Add(-age))), LeaseDurationSeconds: ptr.To[int32](40)}}
}

// addIntent adds one that is Ready on a node.
func (w *world) addIntent(name, node, claim, pv string) *volumesv1alpha1.VolumeAttachmentIntent {
	i := &volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metaOf("shop", name),
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{NodeName: node, Volume: volumesv1alpha1.VolumeSource{
			PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: claim}}},
		Status: volumesv1alpha1.VolumeAttachmentIntentStatus{VolumeName: pv, ClaimUID: types.UID("uid-" + claim),
			Conditions: []metav1.Condition{
				{Type: volumesv1alpha1.ConditionAttached, Status: metav1.ConditionTrue, Reason: "Attached",
					LastTransitionTime: ago(long)},
				{Type: volumesv1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready",
					LastTransitionTime: ago(long)}}}}
	w.Intents.Items = append(w.Intents.Items, i)
	return i
}

// writes of a field, as an API server records them.
func writes(field string, at metav1.Time) []metav1.ManagedFieldsEntry {
	return []metav1.ManagedFieldsEntry{{Time: &at, FieldsV1: metav1.NewFieldsV1(`{"` + field + `":{}}`)}}
}

// itemOf is the object of that name.
func itemOf[P client.Object](list facts.List[P], name string) P {
	for _, o := range list.Items {
		if o.GetName() == name {
			return o
		}
	}
	panic(fmt.Sprintf("there is no %s in %T", name, list))
}
