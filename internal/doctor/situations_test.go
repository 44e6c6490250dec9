/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package doctor

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
)

// situation is a cluster with one fault, and what makes it none.
type situation struct {
	name     string
	severity Severity
	code     string
	broken   func(w *world)
	// healthy are changes after which nothing is found.
	healthy map[string]func(w *world)
	// detail has to contain it.
	detail string
}

func noPod(w *world) { w.Pods.Items = nil }

// shared lets many nodes use the volumes.
func shared(w *world) {
	for _, pv := range w.Volumes.Items {
		pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	}
}

func taint(w *world, node string) {
	n := w.node(node)
	n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
	n.ManagedFields = writes("f:taints", ago(time.Hour))
}

func notReady(w *world, node string, status corev1.ConditionStatus, since time.Duration) {
	w.node(node).Status.Conditions[0].Status = status
	w.node(node).Status.Conditions[0].LastTransitionTime = ago(since)
}

func (w *world) unused(since time.Duration) {
	w.claim.Status.Conditions = append(w.claim.Status.Conditions, corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimUnused, Status: corev1.ConditionTrue, LastTransitionTime: ago(since)})
}

func (w *world) resize(kind corev1.PersistentVolumeClaimConditionType, since time.Duration) {
	w.claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	if kind != "" {
		w.claim.Status.Conditions = append(w.claim.Status.Conditions, corev1.PersistentVolumeClaimCondition{
			Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: ago(since), Message: "quota is used up"})
	}
}

func deleted(o metav1.Object, since time.Duration) { o.SetDeletionTimestamp(ptr.To(ago(since))) }

func (w *world) inUse(node string) {
	w.node(node).Status.VolumesInUse = []corev1.UniqueVolumeName{
		corev1.UniqueVolumeName(volume.UniqueName(driver, "handle-1"))}
}

// full lets node-a have as many volumes as it can take, with one that its driver refuses for that.
func full(w *world) {
	w.csiNode("node-a").Spec.Drivers[0].Allocatable.Count = ptr.To[int32](2)
	w.addVolume("more", "pv-2", "handle-2")
	w.addPod("more", "node-a", "more")
	va := w.addAttachment("pv-2", "handle-2", "node-a")
	va.Status = storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{ErrorCode: ptr.To[int32](8)}}
}

// claimCreatedAgain lets pod web use a claim of the same name and its volume, beside the earlier volume.
func claimCreatedAgain(w *world) {
	w.Claims.Items = nil
	again, pv := w.addVolume("data", "pv-2", "handle-2")
	again.UID, pv.Spec.ClaimRef.UID = "uid-again", "uid-again"
	again.CreationTimestamp, w.pod.CreationTimestamp = ago(time.Hour), ago(50*time.Minute)
	w.addAttachment("pv-2", "handle-2", "node-a")
	w.volume.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased,
		LastPhaseTransitionTime: ptr.To(ago(time.Hour))}
}

var situations = []situation{
	{"an attachment that nothing uses", Notice, "HWS921", func(w *world) { noPod(w); w.unused(time.Hour) },
		map[string]func(*world){
			"a pod uses it": func(w *world) { w.addPod("new", "node-a", "data") },
			"the pod was there a moment ago": func(w *world) {
				w.claim.Status.Conditions[0].LastTransitionTime = ago(time.Minute)
			},
			"it is new":         func(w *world) { w.attachment.CreationTimestamp = ago(time.Minute) },
			"an intent uses it": func(w *world) { w.withHawser(); w.addIntent("i", "node-a", "data", "pv-1") },
			"Hawser holds it": func(w *world) {
				w.attachment.Annotations = map[string]string{volumesv1alpha1.HoldAnnotation: "x"}
			},
			"it is being deleted":               func(w *world) { deleted(w.attachment, time.Minute) },
			"its node is not Ready":             func(w *world) { notReady(w, "node-a", corev1.ConditionUnknown, time.Minute) },
			"a pod uses it by an ephemeral one": func(w *world) { w.addEphemeral() },
			"an agent reports it in use": func(w *world) {
				w.withHawser()
				w.state("node-a").Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: "x", InUse: true,
					AttachmentUID: w.attachment.UID}}
			}}, "volume pv-1 on node node-a"},
	{"an attachment whose claim was created again", Notice, "HWS921", claimCreatedAgain, map[string]func(*world){
		"it is the same claim":         func(w *world) { w.Claims.Items[0].UID = "uid-data" },
		"it was bound by name alone":   func(w *world) { w.volume.Spec.ClaimRef.UID = "" },
		"the claim names this volume":  func(w *world) { w.Claims.Items[0].Spec.VolumeName = "pv-1" },
		"an intent has the old volume": func(w *world) { w.withHawser(); w.addIntent("i", "node-a", "data", "pv-1") },
		"the pod is older":             func(w *world) { w.pod.CreationTimestamp = ago(2 * time.Hour) },
		"the pod may be older":         func(w *world) { w.pod.CreationTimestamp = ago(time.Hour) },
		"the older pod is kept by its kubelet": func(w *world) {
			w.pod.CreationTimestamp = ago(2 * time.Hour)
			w.inUse("node-a")
		},
	}, "volume pv-1 on node node-a"},
	{"a kubelet that does not unmount", Risk, "HWS922",
		func(w *world) { noPod(w); w.unused(time.Hour); w.inUse("node-a") },
		map[string]func(*world){"a pod uses it": func(w *world) { w.addPod("new", "node-a", "data") }}, "pv-1"},
	{"an attachment without a node", Risk, "HWS923", func(w *world) { noPod(w); w.Nodes.Items = w.Nodes.Items[1:] },
		map[string]func(*world){"the node was removed a moment ago": func(w *world) {
			w.Events.Items = append(w.Events.Items, &corev1.Event{Reason: "RemovingNode", LastTimestamp: ago(time.Minute),
				InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "node-a"}})
		}, "the node is there": func(w *world) { w.addNode("node-a"); w.addPod("new", "node-a", "data") }}, "node-a"},
	{"an attachment without a volume", Risk, "HWS924", func(w *world) {
		noPod(w)
		w.Volumes.Items, w.Claims.Items = nil, nil
	},
		map[string]func(*world){"it is new": func(w *world) { w.attachment.CreationTimestamp = ago(time.Minute) }}, "pv-1"},
	{"a finalizer that stays", Risk, "HWS925", func(w *world) {
		noPod(w)
		deleted(w.attachment, time.Hour)
		w.driver.Spec.AttachRequired = ptr.To(false)
	}, map[string]func(*world){
		"it has just been deleted": func(w *world) { deleted(w.attachment, time.Minute) },
		"only Hawser keeps it": func(w *world) {
			w.attachment.Finalizers = []string{volumesv1alpha1.ForcedAwayFinalizer}
		},
	}, "attachRequired false"},
	{"a finalizer of a driver that is gone", Risk, "HWS925", func(w *world) {
		noPod(w)
		deleted(w.attachment, time.Hour)
		w.Drivers.Items, w.csiNode("node-a").Spec.Drivers, w.csiNode("node-b").Spec.Drivers = nil, nil, nil
		w.node("node-a").Status.Conditions[0].Status = corev1.ConditionFalse
		w.node("node-a").Status.Conditions[0].LastTransitionTime = ago(time.Minute)
	}, nil, "has no CSIDriver and is on no node"},
	{"a detach that does not end", Risk, "HWS704", func(w *world) { noPod(w); deleted(w.attachment, time.Hour) },
		map[string]func(*world){"it has just begun": func(w *world) { deleted(w.attachment, time.Minute) }},
		"external-attacher/disk-example-com"},
	{"a detach that fails", Risk, "HWS204", func(w *world) {
		noPod(w)
		deleted(w.attachment, time.Hour)
		w.attachment.Status.DetachError = &storagev1.VolumeError{Message: "timed out"}
	}, map[string]func(*world){"it has just begun": func(w *world) { deleted(w.attachment, time.Minute) }}, "timed out"},
	{"what could not be attached again", Outage, "HWS202", func(w *world) {
		w.withHawser()
		w.addIntent("i", "node-a", "data", "pv-1")
		w.attachment.Status.AttachError = &storagev1.VolumeError{Message: "no such node", Time: ago(time.Hour)}
	}, map[string]func(*world){
		"it has just failed":         func(w *world) { w.attachment.Status.AttachError.Time = ago(time.Second) },
		"no intent needs it":         func(w *world) { w.Intents.Items = nil },
		"the intent is Ready since":  func(w *world) { w.Intents.Items[0].Status.Conditions[1].LastTransitionTime = ago(0) },
		"the intent is on another":   func(w *world) { w.Intents.Items[0].Spec.NodeName = "node-b" },
		"Hawser is not there at all": func(w *world) { w.Installed, w.Intents.Items, w.States.Items = false, nil, nil },
	}, "no such node"},
	{"an exclusive volume on two nodes", Danger, "HWS926", func(w *world) {
		w.addAttachment("pv-1", "handle-1", "node-b")
		w.addPod("other", "node-b", "data")
	}, map[string]func(*world){
		"it is no exclusive one":      shared,
		"one is being detached":       func(w *world) { deleted(w.attachment, time.Minute) },
		"one is not attached":         func(w *world) { w.attachment.Status.Attached = false },
		"the second one is brand new": func(w *world) { w.Attachments.Items[1].CreationTimestamp = ago(time.Second) },
	}, "node-a, node-b"},
	{"a node with another ID", Outage, "HWS431", func(w *world) {
		w.attachment.Annotations = map[string]string{volume.NodeIDAnnotation: "id-of-before"}
	}, map[string]func(*world){
		"the ID is the same": func(w *world) { w.csiNode("node-a").Spec.Drivers[0].NodeID = "id-of-before" },
		"it is not attached": func(w *world) { w.attachment.Status.Attached = false },
	}, "id-of-before, and driver disk.example.com registers id-node-a"},
	{"a dead node", Outage, "HWS710", func(w *world) { notReady(w, "node-a", corev1.ConditionUnknown, time.Hour) },
		map[string]func(*world){
			"it is Ready":          func(w *world) { notReady(w, "node-a", corev1.ConditionTrue, time.Hour) },
			"it died a moment ago": func(w *world) { notReady(w, "node-a", corev1.ConditionUnknown, 5*time.Minute) },
			"it has released them": func(w *world) { taint(w, "node-a"); noPod(w); w.Attachments.Items = nil },
			"it has no volumes":    func(w *world) { noPod(w); w.Attachments.Items = nil },
		}, "attached volumes: 1"},
	{"a dead node that is out of service and has volumes still", Outage, "HWS710", func(w *world) {
		notReady(w, "node-a", corev1.ConditionUnknown, time.Hour)
		taint(w, "node-a")
	}, nil, "attached volumes: 1"},
	{"a node that is not Ready", Outage, "HWS709",
		func(w *world) { notReady(w, "node-a", corev1.ConditionFalse, time.Hour) }, nil, "attached volumes: 1"},
	{"a taint on a Ready node", Danger, "HWS927", func(w *world) { taint(w, "node-a") }, map[string]func(*world){
		"it was just set":  func(w *world) { w.node("node-a").ManagedFields = writes("f:taints", ago(time.Minute)) },
		"it is not Ready":  func(w *world) { notReady(w, "node-a", corev1.ConditionUnknown, time.Hour) },
		"an earlier write": func(w *world) { w.node("node-a").Spec.Taints[0].TimeAdded = ptr.To(ago(time.Minute)) },
	}, "attached volumes: 1"},
	{"a taint on a Ready node without volumes", Risk, "HWS927", func(w *world) { taint(w, "node-b") }, nil,
		"attached volumes: 0"},
	{"a full node", Risk, "HWS208", full, map[string]func(*world){"there is room": func(w *world) {
		w.csiNode("node-a").Spec.Drivers[0].Allocatable.Count = ptr.To[int32](3)
	}, "another driver is full": func(w *world) { w.csiNode("node-a").Spec.Drivers[0].Name = "other" }},
		"2 of 2 volumes of driver disk.example.com"},
	{"a full node for which nothing waits", Notice, "HWS208", func(w *world) {
		w.csiNode("node-a").Spec.Drivers[0].Allocatable.Count = ptr.To[int32](1)
	}, nil, "1 of 1 volumes of driver disk.example.com"},
	{"a limit that one node does not know", Risk, "HWS928", func(w *world) {
		w.csiNode("node-a").Spec.Drivers[0].Allocatable = nil
	}, map[string]func(*world){"no node knows one": func(w *world) {
		w.csiNode("node-b").Spec.Drivers[0].Allocatable = nil
	}, "the node has no attachment": func(w *world) { noPod(w); w.Attachments.Items = nil }},
		"has a limit on other nodes"},
	{"many attachments without a limit", Notice, "HWS928", func(w *world) {
		w.csiNode("node-a").Spec.Drivers[0].Allocatable, w.csiNode("node-b").Spec.Drivers[0].Allocatable = nil, nil
		for i := range 70 {
			w.addVolume(fmt.Sprint("more-", i), fmt.Sprint("pv-more-", i), fmt.Sprint("handle-more-", i))
			w.addPod(fmt.Sprint("more-", i), "node-a", fmt.Sprint("more-", i))
			w.addAttachment(fmt.Sprint("pv-more-", i), fmt.Sprint("handle-more-", i), "node-a")
		}
	}, map[string]func(*world){"few": func(w *world) {
		w.Attachments.Items = w.Attachments.Items[:20]
	}}, "attachments of driver disk.example.com: 71"},
	{"a driver that refuses for its limit", Risk, "HWS928", func(w *world) {
		w.csiNode("node-a").Spec.Drivers[0].Allocatable, w.csiNode("node-b").Spec.Drivers[0].Allocatable = nil, nil
		w.addVolume("more", "pv-2", "handle-2")
		w.addPod("more", "node-a", "more")
		va := w.addAttachment("pv-2", "handle-2", "node-a")
		va.Status = storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{ErrorCode: ptr.To[int32](8)}}
	}, map[string]func(*world){"another error": func(w *world) {
		w.Attachments.Items[1].Status.AttachError.ErrorCode = ptr.To[int32](13)
	}}, "refuses a further attachment"},
	{"a driver that is missing on its node", Outage, "HWS405", func(w *world) {
		w.csiNode("node-a").Spec.Drivers = nil
		w.csiNode("node-a").ManagedFields = writes("f:spec", ago(time.Hour))
	}, map[string]func(*world){
		"it has just gone":  func(w *world) { w.csiNode("node-a").ManagedFields = writes("f:spec", ago(time.Minute)) },
		"it has no volumes": func(w *world) { noPod(w); w.Attachments.Items = nil },
		"the node is dead":  func(w *world) { notReady(w, "node-a", corev1.ConditionUnknown, time.Minute) },
	}, "1 volumes there need driver disk.example.com"},
	{"a driver without attach that is missing", Outage, "HWS405", func(w *world) {
		w.driver.Spec.AttachRequired, w.Attachments.Items = ptr.To(false), nil
		w.csiNode("node-a").Spec.Drivers = nil
	}, map[string]func(*world){"its pod has ended": func(w *world) { w.pod.Status.Phase = corev1.PodSucceeded }}, driver},
	{"a node without a CSINode", Outage, "HWS706", func(w *world) { w.CSINodes.Items = w.CSINodes.Items[1:] },
		map[string]func(*world){"it is new": func(w *world) {
			w.node("node-a").CreationTimestamp = ago(time.Minute)
		}}, driver},
	{"a driver that is said not to attach", Risk, "HWS929",
		func(w *world) { w.driver.Spec.AttachRequired = ptr.To(false) },
		map[string]func(*world){
			"it is said to":         func(w *world) { w.driver.Spec.AttachRequired = ptr.To(true) },
			"the CSIDriver is new":  func(w *world) { w.driver.CreationTimestamp = ago(time.Second) },
			"there is no CSIDriver": func(w *world) { w.Drivers.Items = nil }},
		"1 attachments, such as of volume pv-1 on node node-a"},
	{"a driver for inline volumes alone", Risk, "HWS930", func(w *world) {
		w.driver.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}
	}, map[string]func(*world){"for both": func(w *world) {
		w.driver.Spec.VolumeLifecycleModes = append(w.driver.Spec.VolumeLifecycleModes, storagev1.VolumeLifecyclePersistent)
	}}, "has no Persistent"},
	{"two contexts of SELinux", Risk, "HWS930", func(w *world) {
		w.driver.Spec.SELinuxMount = ptr.To(true)
		w.volume.Spec.MountOptions = []string{`context="a"`}
	}, map[string]func(*world){"no seLinuxMount": func(w *world) { w.driver.Spec.SELinuxMount = nil }}, "seLinuxMount"},
	{"storage that is sick", Outage, "HWS432", func(w *world) {
		w.csiNode("node-a").Status.StorageHealth = []storagev1.StorageHealth{{Name: driver, HealthConditions: []storagev1.
			StorageHealthCondition{{Status: storagev1.StorageUnreachable, Reason: "Lost", LastTransitionTime: ago(time.Hour)}}}}
	}, map[string]func(*world){"for a moment": func(w *world) {
		w.csiNode("node-a").Status.StorageHealth[0].HealthConditions[0].LastTransitionTime = ago(time.Second)
	}}, "StorageUnreachable Lost"},
	{"a handle that is shared and used twice", Danger, "HWS931", func(w *world) {
		w.addVolume("copy", "pv-2", "handle-1")
		w.addPod("copy", "node-b", "copy")
		w.addAttachment("pv-2", "handle-1", "node-b")
	}, map[string]func(*world){
		"the handles differ": func(w *world) { w.Volumes.Items[1].Spec.CSI.VolumeHandle = "handle-2" },
		"the drivers differ": func(w *world) {
			w.Volumes.Items[1].Spec.CSI.Driver, w.Attachments.Items[1].Spec.Attacher = "other", "other"
			w.csiNode("node-b").Spec.Drivers = append(w.csiNode("node-b").Spec.Drivers, storagev1.CSINodeDriver{Name: "other"})
		}}, "volume handle handle-1 of driver disk.example.com; also pv-2; used on node-a, node-b"},
	{"a handle that is shared", Risk, "HWS931", func(w *world) { w.addVolume("copy", "pv-2", "handle-1") },
		map[string]func(*world){"one is being deleted": func(w *world) {
			deleted(w.Volumes.Items[1], time.Minute)
			w.Claims.Items = w.Claims.Items[:1]
		}}, "also pv-2"},
	{"a handle that a released volume shares", Notice, "HWS931", func(w *world) {
		w.addVolume("copy", "pv-2", "handle-1")
		w.Volumes.Items[1].Status.Phase = corev1.VolumeReleased
		w.Claims.Items = w.Claims.Items[:1]
	}, nil, "also pv-2"},
	{"a volume that could not be deleted", Notice, "HWS629", func(w *world) {
		_, pv := w.addVolume("old", "pv-2", "handle-2")
		pv.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumeFailed, Message: "has snapshots",
			LastPhaseTransitionTime: ptr.To(ago(time.Hour))}
		w.Claims.Items = w.Claims.Items[:1]
	}, map[string]func(*world){
		"it is released": func(w *world) { w.Volumes.Items[1].Status.Phase = corev1.VolumeReleased },
		"it has just failed": func(w *world) {
			w.Volumes.Items[1].Status.LastPhaseTransitionTime = ptr.To(ago(time.Minute))
		}}, "has snapshots"},
	{"a volume that is deleted under its claim", Risk, "HWS631", func(w *world) { deleted(w.volume, time.Hour) },
		map[string]func(*world){
			"just now":           func(w *world) { deleted(w.volume, time.Second) },
			"with its claim":     func(w *world) { noPod(w); w.Attachments.Items = nil; deleted(w.claim, time.Minute) },
			"the claim has gone": func(w *world) { noPod(w); w.Attachments.Items, w.Claims.Items = nil, nil },
		}, "reclaim policy"},
	{"a claim that is deleted in use", Risk, "HWS626", func(w *world) { deleted(w.claim, time.Hour) },
		map[string]func(*world){
			"just now":                   func(w *world) { deleted(w.claim, time.Second) },
			"its pod is deleted as well": func(w *world) { deleted(w.pod, time.Minute) }}, "used by pods shop/web"},
	{"a claim that is deleted in use, with its data", Danger, "HWS626", func(w *world) {
		deleted(w.claim, time.Hour)
		w.volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	}, nil, "reclaim policy of its volume Delete"},
	{"a claim whose deletion nothing ends", Notice, "HWS626", func(w *world) {
		noPod(w)
		w.Attachments.Items = nil
		deleted(w.claim, time.Hour)
	}, map[string]func(*world){"for a moment": func(w *world) { deleted(w.claim, 3*time.Minute) }}, "finalizers"},
	{"a claim that counts as unused", Risk, "HWS633", func(w *world) {
		w.withHawser()
		noPod(w)
		w.addIntent("i", "node-a", "data", "pv-1")
		w.unused(time.Hour)
	}, map[string]func(*world){
		"for a moment":           func(w *world) { w.claim.Status.Conditions[0].LastTransitionTime = ago(time.Second) },
		"it counts as used":      func(w *world) { w.claim.Status.Conditions[0].Status = corev1.ConditionFalse },
		"the intent is released": func(w *world) { deleted(w.Intents.Items[0], time.Second) },
		"the intent had another claim of the name": func(w *world) {
			w.Intents.Items[0].Status.ClaimUID = "of-before"
		}}, "used by intents shop/i"},
	{"an expansion that is not possible", Risk, "HWS627", func(w *world) {
		w.resize(corev1.PersistentVolumeClaimResizing, time.Hour)
		w.claim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{
			corev1.ResourceStorage: corev1.PersistentVolumeClaimControllerResizeInfeasible}
	}, nil, "2Gi asked, 1Gi there: ControllerResizeInfeasible"},
	{"an expansion that fails", Risk, "HWS932", func(w *world) {
		w.resize(corev1.PersistentVolumeClaimControllerResizeError, time.Hour)
	}, map[string]func(*world){"it has just failed": func(w *world) {
		w.claim.Status.Conditions[0].LastTransitionTime = ago(time.Second)
	}}, "2Gi asked, 1Gi there: quota is used up"},
	{"an expansion that fails on the node", Risk, "HWS936", func(w *world) {
		w.resize(corev1.PersistentVolumeClaimNodeResizeError, time.Hour)
		w.claim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{
			corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizeInProgress}
	}, map[string]func(*world){"it has just failed": func(w *world) {
		w.claim.Status.Conditions[0].LastTransitionTime = ago(time.Second)
	}}, "2Gi asked, 1Gi there: quota is used up"},
	{"an expansion that does not end", Risk, "HWS628", func(w *world) {
		w.resize(corev1.PersistentVolumeClaimResizing, time.Hour)
	}, map[string]func(*world){"it has just begun": func(w *world) {
		w.claim.Status.Conditions[0].LastTransitionTime = ago(time.Minute)
	}}, "Resizing"},
	{"an expansion that its node does not finish", Risk, "HWS628", func(w *world) {
		w.resize(corev1.PersistentVolumeClaimFileSystemResizePending, time.Hour)
	}, map[string]func(*world){"it waits for a pod": func(w *world) { noPod(w); w.Attachments.Items = nil }},
		"FileSystemResizePending"},
	{"an expansion that nothing begins", Risk, "HWS933", func(w *world) {
		w.resize("", 0)
		w.claim.ManagedFields = writes("f:requests", ago(time.Hour))
	}, map[string]func(*world){
		"it was just asked for": func(w *world) { w.claim.ManagedFields = writes("f:requests", ago(time.Minute)) },
		"it has the size": func(w *world) {
			w.claim.Status.Capacity = w.claim.Spec.Resources.Requests
		}}, "2Gi asked, 1Gi there"},
	{"two SELinux labels", Outage, "HWS934", func(w *world) {
		shared(w)
		w.driver.Spec.SELinuxMount = ptr.To(true)
		label(w.pod, "s0:c1,c2")
		label(w.addWaiting("other", "node-a", "data"), "s0:c3,c4")
	}, map[string]func(*world){
		"the driver mounts without a label": func(w *world) {
			w.driver.Spec.SELinuxMount = nil
			w.Pods.Items[1].Status.Phase = corev1.PodRunning
		},
		"both run":     func(w *world) { w.Pods.Items[1].Status.Phase = corev1.PodRunning },
		"neither runs": func(w *world) { w.pod.Status.Phase = corev1.PodPending },
		"one label":    func(w *world) { label(w.Pods.Items[1], "s0:c1,c2") },
		"no label":     func(w *world) { w.Pods.Items[1].Spec.SecurityContext = nil },
		"other nodes":  func(w *world) { w.Pods.Items[1].Spec.NodeName = "node-b" },
		"relabelled by the kubelet": func(w *world) {
			w.Pods.Items[1].Spec.SecurityContext.SELinuxChangePolicy = ptr.To(corev1.SELinuxChangePolicyRecursive)
		},
		"for a moment": func(w *world) { w.Pods.Items[1].CreationTimestamp = ago(time.Second) },
	}, "other has level s0:c3,c4, and pod web on node node-a has s0:c1,c2"},
	{"a Multi-Attach error", Outage, "HWS713", func(w *world) {
		pod := w.addWaiting("web-2", "node-b", "data")
		w.event(pod.UID, "Pod", "FailedAttachVolume", `Multi-Attach error for volume "pv-1"`)
	}, map[string]func(*world){
		"for a moment":  func(w *world) { w.Pods.Items[1].CreationTimestamp = ago(time.Minute) },
		"the pod runs":  func(w *world) { w.Pods.Items[1].Status.Phase = corev1.PodRunning },
		"it is deleted": func(w *world) { deleted(w.Pods.Items[1], time.Second) },
	}, "held by pod web on node node-a"},
	{"pods that wait for a provisioner", Outage, "HWS623", func(w *world) {
		for i := range 40 {
			name := fmt.Sprint("new-", i)
			w.unbound(name)
			pod := w.addWaiting(name, "", name)
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
				Message: "pod has unbound immediate PersistentVolumeClaims"}}
			w.event(types.UID("uid-"+name), "PersistentVolumeClaim", "ProvisioningFailed", "quota is used up")
		}
	}, map[string]func(*world){"they have just come": func(w *world) {
		for _, pod := range w.Pods.Items {
			pod.CreationTimestamp = ago(time.Minute)
		}
	}}, "quota is used up"},
	{"claims that wait, without a pod", Outage, "HWS623", func(w *world) {
		for i := range 3 {
			w.unbound(fmt.Sprint("new-", i))
			w.event(types.UID(fmt.Sprint("uid-new-", i)), "PersistentVolumeClaim", "ProvisioningFailed", "quota is used up")
		}
	}, map[string]func(*world){"they wait for their first pod": func(w *world) {
		for _, e := range w.Events.Items {
			e.Reason = "WaitForFirstConsumer"
		}
	}, "their class waits for it": func(w *world) {
		w.Events.Items = nil
		w.Classes.Items[0].VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
	}, "they have just come": func(w *world) {
		for _, c := range w.Claims.Items[1:] {
			c.CreationTimestamp = ago(time.Minute)
		}
	}}, "quota is used up"},
}

// unbound adds a claim that waits for its volume.
func (w *world) unbound(name string) {
	c, _ := w.addVolume(name, "", "")
	c.Spec.VolumeName, c.Status = "", corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
	w.Volumes.Items = w.Volumes.Items[:len(w.Volumes.Items)-1]
}

func (w *world) addEphemeral() {
	pod := w.addPod("da", "node-a", "")
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		Ephemeral: &corev1.EphemeralVolumeSource{}}}}
	w.claim.Name, w.volume.Spec.ClaimRef.Name = "da-v", "da-v"
}

func label(pod *corev1.Pod, level string) {
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: level}}
}
