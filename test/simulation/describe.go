/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"fmt"
	"iter"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func keys[V any](m map[string]V) iter.Seq[string] { return maps.Keys(m) }

func describeIntent(i *volumesv1alpha1.VolumeAttachmentIntent, gone bool) string {
	line := fmt.Sprintf("intent %s (%s, %s on %s)", i.Name, i.UID, i.Spec.DesiredState, i.Spec.NodeName)
	switch {
	case gone:
		return line + " is gone"
	case i.DeletionTimestamp != nil:
		line += " deleted"
	}
	for _, c := range i.Status.Conditions {
		if c.Status == metav1.ConditionTrue {
			line += " " + c.Type
		} else if c.Type == volumesv1alpha1.ConditionReady {
			line += " not ready: " + c.Reason + ": " + c.Message
		}
	}
	if e := i.Status.LastError; e != nil {
		line += fmt.Sprintf(" (%s failed: %s: %s)", e.Operation, e.Code, e.Message)
	}
	return line
}

// describeNode tells what is new about its lists of volumes; empty where nothing is.
func describeNode(before client.Object, after *corev1.Node) string {
	b, ok := before.(*corev1.Node)
	if !ok || nodeLine(b) == nodeLine(after) {
		return ""
	}
	return "Node " + after.Name + nodeLine(after)
}

func nodeLine(n *corev1.Node) string {
	var b strings.Builder
	fmt.Fprintf(&b, " %s:", n.Status.NodeInfo.BootID)
	for _, v := range n.Status.VolumesAttached {
		fmt.Fprintf(&b, " [%s]", suffix(string(v.Name)))
	}
	for _, v := range n.Status.VolumesInUse {
		fmt.Fprintf(&b, " <%s in use>", suffix(string(v)))
	}
	return b.String()
}

func describeAttachment(va *storagev1.VolumeAttachment, gone bool) string {
	line := fmt.Sprintf("attachment %s of %s to %s", va.UID, *va.Spec.Source.PersistentVolumeName, va.Spec.NodeName)
	switch {
	case gone:
		line += " is gone"
	case va.DeletionTimestamp != nil:
		line += fmt.Sprintf(" deleted %v", va.Finalizers)
	case va.Status.Attached:
		line += " attached"
	}
	return line
}

// describeState tells what is new about entries and uses; empty where nothing is.
func describeState(before client.Object, after *volumesv1alpha1.NodeVolumeState) string {
	was, is := "", stateLine(after)
	if b, ok := before.(*volumesv1alpha1.NodeVolumeState); ok {
		was = stateLine(b)
	}
	if was == is {
		return ""
	}
	return "state of " + after.Name + ":" + is
}

func stateLine(s *volumesv1alpha1.NodeVolumeState) string {
	var b strings.Builder
	if s.Spec.Protocol.ConfirmedSession == s.Status.Protocol.Session {
		fmt.Fprintf(&b, " confirmed %d", s.Status.Protocol.Session)
	}
	for _, e := range s.Spec.Attachments {
		fmt.Fprintf(&b, " [%s %s %s]", suffix(e.VolumeName), e.State, e.AttachmentUID)
	}
	for _, v := range s.Status.Volumes {
		use := "not in use"
		switch {
		case v.Waiting:
			use = "waited for"
		case v.InUse:
			use = "in use"
		}
		fmt.Fprintf(&b, " <%s %s %s %d published>", suffix(v.VolumeName), use, v.AttachmentUID, len(v.Publications))
	}
	return b.String()
}

func suffix(name string) string {
	_, handle, _ := strings.Cut(name, "^")
	return handle
}
