/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package preflight

import (
	"errors"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hawser-io/hawser/internal/explain/facts"
)

// What is read beside the kinds of package facts, as reports name it.
const (
	KindVersion       = "the version of the API server"
	KindDiscovery     = "the API's discovery"
	KindNamespace     = "Namespace"
	KindEndpoints     = "EndpointSlice"
	KindDaemonSet     = "DaemonSet"
	KindDeployment    = "Deployment"
	KindStatefulSet   = "StatefulSet"
	KindControlPlane  = "Pod of the control plane"
	KindRights        = "your own rights"
	KindPolicyTrial   = "a dry run of the admission policies"
	KindPodTrial      = "a dry run of a privileged pod"
	KindSpaceTrial    = "a dry run of the namespace"
	KindControllers   = "the flags of kube-controller-manager"
	KindKubeletFolder = "the kubelet's directory"
)

// Facts are what was read of a cluster.
type Facts struct {
	// Release is what is to be installed.
	Release *Release
	// System is the namespace that Hawser is to have.
	System string
	// Version of the API server, such as v1.37.1+k3s1.
	Version string
	// Installed is true if the API server serves Hawser's kinds, and InstalledVersion what reports its version there.
	Installed        bool
	InstalledVersion string
	// User is the name that the API server has for the user; empty if it does not report one.
	User string
	// Served are the kinds that discovery lists. Unavailable are APIServices whose servers do not answer.
	Served      map[schema.GroupVersionKind]bool
	Unavailable []string

	Namespace facts.Object[*corev1.Namespace]
	// NamespaceTrial is for a namespace that does not exist, PodTrial for one that does.
	NamespaceTrial, PodTrial *Trial
	PolicyTrials             []Trial
	Rights                   []Right

	Endpoints    facts.List[*discoveryv1.EndpointSlice]
	Nodes        facts.List[*corev1.Node]
	CSINodes     facts.List[*storagev1.CSINode]
	Drivers      facts.List[*storagev1.CSIDriver]
	Volumes      facts.List[*corev1.PersistentVolume]
	Attachments  facts.List[facts.Attachment]
	DaemonSets   facts.List[*appsv1.DaemonSet]
	Deployments  facts.List[*appsv1.Deployment]
	StatefulSets facts.List[*appsv1.StatefulSet]
	// ControlPlane are the pods of kube-system with the label tier=control-plane.
	ControlPlane facts.List[*corev1.Pod]
	// Attachers are the Leases of external-attachers.
	Attachers facts.List[*coordinationv1.Lease]

	// Errs are why other things could not be read, by their names above.
	Errs map[string]error
}

// Trial is the dry run of the creation of an object.
type Trial struct {
	Object facts.Ref
	// Err is the answer of the API server; nil if it would create the object.
	Err error
}

// accepted reports whether the API server would create the object, or has one of the name.
func (t *Trial) accepted() bool { return t.Err == nil || apierrors.IsAlreadyExists(t.Err) }

// refused reports whether the API server would not create the object for any user. It does not judge for one without
// the right to create, and there are webhooks without dry runs.
func (t *Trial) refused() bool {
	var status apierrors.APIStatus
	if t.accepted() || !errors.As(t.Err, &status) {
		return false
	}
	text := t.Err.Error()
	byRights := apierrors.IsForbidden(t.Err) && strings.Contains(text, "cannot create resource")
	return !byRights && !apierrors.IsUnauthorized(t.Err) && !apierrors.IsTimeout(t.Err) &&
		!apierrors.IsServerTimeout(t.Err) && !apierrors.IsTooManyRequests(t.Err) &&
		!strings.Contains(text, "does not support dry run")
}

// Right is one that the installation needs.
type Right struct {
	Verb, Group, Resource string
	// Namespace is empty for the whole cluster.
	Namespace string
	Allowed   bool
	Err       error
}

// Needed are the rights that `kubectl apply -k config/default` needs. The operator does the rest with its own.
func Needed(system string) []Right {
	const rbac = "rbac.authorization.k8s.io"
	return []Right{
		{Verb: "create", Resource: "namespaces"},
		{Verb: "create", Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
		{Verb: "create", Group: rbac, Resource: "clusterroles"},
		{Verb: "create", Group: rbac, Resource: "clusterrolebindings"},
		{Verb: "create", Group: rbac, Resource: "roles", Namespace: system},
		{Verb: "create", Group: rbac, Resource: "rolebindings", Namespace: system},
		{Verb: "create", Resource: "serviceaccounts", Namespace: system},
		{Verb: "create", Resource: "resourcequotas", Namespace: system},
		{Verb: "create", Group: "apps", Resource: "deployments", Namespace: system},
		{Verb: "escalate", Group: rbac, Resource: "clusterroles"},
		{Verb: "bind", Group: rbac, Resource: "clusterroles"},
	}
}

// granting reports whether the right only spares the user to have every right that a role has.
func (r *Right) granting() bool { return r.Verb != "create" }

// kinds in the order in which they are named.
func (f *Facts) kinds() []string {
	return []string{KindVersion, KindDiscovery, KindRights, KindNamespace, KindSpaceTrial, KindPodTrial, KindPolicyTrial,
		KindEndpoints, facts.KindNode, facts.KindCSINode, facts.KindCSIDriver, facts.KindVolume, facts.KindAttachment,
		KindDaemonSet, KindDeployment, KindStatefulSet, facts.KindLease, KindControlPlane, KindControllers,
		KindKubeletFolder}
}

// errors are why kinds could not be read.
func (f *Facts) errors() map[string]error {
	errs := map[string]error{KindEndpoints: f.Endpoints.Err, facts.KindNode: f.Nodes.Err, KindNamespace: f.Namespace.Err,
		facts.KindCSINode: f.CSINodes.Err, facts.KindCSIDriver: f.Drivers.Err, facts.KindVolume: f.Volumes.Err,
		facts.KindAttachment: f.Attachments.Err, KindDaemonSet: f.DaemonSets.Err, KindDeployment: f.Deployments.Err,
		KindStatefulSet: f.StatefulSets.Err, facts.KindLease: f.Attachers.Err, KindControlPlane: f.ControlPlane.Err}
	for what, err := range f.Errs {
		errs[what] = err
	}
	return errs
}
