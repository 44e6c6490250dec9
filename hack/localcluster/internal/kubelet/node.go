/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// attachDetachAnnotation leaves the node's attachments to the cluster's controller, as every kubelet does by default.
// Without it, upstream's attach/detach controller ignores the node.
const attachDetachAnnotation = "volumes.kubernetes.io/controller-managed-attach-detach"

// register creates the Node and its CSINode, or keeps those of an earlier run.
func (k *Kubelet) register(ctx context.Context) error {
	node, err := k.Client.CoreV1().Nodes().Create(ctx, k.node(), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		node, err = k.Client.CoreV1().Nodes().Get(ctx, k.Node, metav1.GetOptions{})
	}
	if err != nil {
		return fmt.Errorf("creating the Node: %w", err)
	}
	csiNode := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{
		Name:            k.Node,
		OwnerReferences: []metav1.OwnerReference{owner(node)},
	}}
	_, err = k.Client.StorageV1().CSINodes().Create(ctx, csiNode, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the CSINode: %w", err)
	}
	return nil
}

func owner(node *corev1.Node) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
}

func (k *Kubelet) node() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: k.Node,
		Labels: map[string]string{
			corev1.LabelHostname:   k.Node,
			corev1.LabelOSStable:   runtime.GOOS,
			corev1.LabelArchStable: runtime.GOARCH,
		},
		Annotations: map[string]string{attachDetachAnnotation: "true"},
	}}
}

// reportReady writes the node's status. The patch has only the kubelet's fields: conditions merge by type, and other
// components own the volume lists.
func (k *Kubelet) reportReady(ctx context.Context) error {
	resources := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		corev1.ResourceMemory: resource.MustParse("8Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	now := metav1.Now()
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type: kind, Status: status, Reason: reason, LastHeartbeatTime: now, LastTransitionTime: now,
		}
	}
	status := corev1.NodeStatus{
		Capacity:    resources,
		Allocatable: resources,
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "127.0.0.1"},
			{Type: corev1.NodeHostName, Address: k.Node},
		},
		Conditions: []corev1.NodeCondition{
			condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady"),
			condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory"),
			condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure"),
			condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID"),
		},
		NodeInfo: corev1.NodeSystemInfo{
			BootID:          readLine("/proc/sys/kernel/random/boot_id"),
			KernelVersion:   readLine("/proc/sys/kernel/osrelease"),
			MachineID:       k.Node,
			SystemUUID:      k.Node,
			OSImage:         "local cluster",
			KubeletVersion:  k.Version,
			OperatingSystem: runtime.GOOS,
			Architecture:    runtime.GOARCH,
		},
	}
	return k.patchStatus(ctx, status)
}

// reportBeat writes the time of the heartbeat, and changes nothing else.
func (k *Kubelet) reportBeat(ctx context.Context) error {
	ready := map[string]any{"type": corev1.NodeReady, "lastHeartbeatTime": metav1.Now()}
	return k.patchStatus(ctx, map[string]any{"conditions": []any{ready}})
}

func (k *Kubelet) patchStatus(ctx context.Context, status any) error {
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return fmt.Errorf("encoding the node's status: %w", err)
	}
	_, err = k.Client.CoreV1().Nodes().Patch(ctx, k.Node, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("writing the node's status: %w", err)
	}
	return nil
}

// readLine returns the content of a file of /proc, or "".
func readLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
