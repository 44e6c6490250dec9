/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package relocate

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// Manager is what would undo a change of an intent, and what to do instead.
type Manager struct {
	// Name describes it.
	Name string
	// OfPod is true if the intent follows a pod.
	OfPod bool
	// Instead is what a person does, with commands if there are any.
	Instead string
	Run     []string
}

// setKind is the kind that makes an intent for each node of a selector.
const setKind = "VolumeAttachmentIntentSet"

// ManagerOf returns what manages an intent; nil if a person does.
func ManagerOf(intent *volumesv1alpha1.VolumeAttachmentIntent) *Manager {
	owner := metav1.GetControllerOf(intent)
	switch {
	case owner != nil && owner.Kind == "Pod":
		return podManager(intent, owner.Name)
	case intent.Labels[volumesv1alpha1.PodUIDLabel] != "":
		return podManager(intent, "")
	case owner != nil && owner.Kind == setKind:
		return &Manager{Name: setKind + " " + owner.Name,
			Instead: "change the node selector of the set, or the labels of the nodes",
			Run:     []string{fmt.Sprintf("kubectl edit vais %s -n %s", owner.Name, intent.Namespace)}}
	case owner != nil:
		return &Manager{Name: owner.Kind + " " + owner.Name, Instead: "change that object: it would create the intent again"}
	default:
		return gitManager(intent)
	}
}

func podManager(intent *volumesv1alpha1.VolumeAttachmentIntent, pod string) *Manager {
	m := &Manager{Name: "the pod that it was created for", OfPod: true,
		Instead: "move the pod: cordon its node, then delete the pod"}
	if pod != "" {
		m.Name = "pod " + pod
		m.Run = []string{"kubectl cordon " + intent.Spec.NodeName,
			fmt.Sprintf("kubectl delete pod %s -n %s", pod, intent.Namespace)}
	}
	return m
}

// mark is a label or an annotation by which a deployment tool knows its objects.
type mark struct{ key, tool string }

// marks that only these tools set. The label app.kubernetes.io/instance of Argo CD is not one: people set it too.
var marks = []mark{
	{"kustomize.toolkit.fluxcd.io/name", "Flux"},
	{"helm.toolkit.fluxcd.io/name", "Flux"},
	{"argocd.argoproj.io/tracking-id", "Argo CD"},
	{"argocd.argoproj.io/instance", "Argo CD"},
	{"meta.helm.sh/release-name", "Helm"},
}

// fieldManagers under which these tools apply.
var fieldManagers = map[string]string{
	"kustomize-controller": "Flux", "helm-controller": "Flux",
	"argocd-controller": "Argo CD", "argocd-application-controller": "Argo CD", "helm": "Helm",
}

// gitManager finds the tool that would undo a change, because it applies what is in Git or in a chart.
func gitManager(intent *volumesv1alpha1.VolumeAttachmentIntent) *Manager {
	tool := ""
	for _, m := range marks {
		if intent.Labels[m.key] != "" || intent.Annotations[m.key] != "" {
			tool = m.tool
			break
		}
	}
	if at := slices.IndexFunc(intent.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Subresource == "" && fieldManagers[f.Manager] != ""
	}); tool == "" && at >= 0 {
		tool = fieldManagers[intent.ManagedFields[at].Manager]
	}
	if tool == "" {
		return nil
	}
	return &Manager{Name: tool, Instead: "change it there: add the intent for the other node under another name, and " +
		"take this one out; " + tool + " would undo what is done here"}
}
