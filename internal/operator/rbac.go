/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/operator/render"
)

// The rights of the operator. It creates and changes only objects with the names of the manifests. A release that drops
// an object of an earlier one has to keep its name here, with the verb delete. It may grant manager and agents rights
// that it does not have itself (escalate, bind), but only in the roles of these names.
//
// What it decides on:
//
// +kubebuilder:rbac:groups=volumes.hawser.io,resources=volumemanagers,verbs=create;list;watch;patch
// +kubebuilder:rbac:groups=volumes.hawser.io,resources=volumemanagers/status,verbs=update
// +kubebuilder:rbac:groups=volumes.hawser.io,resources=nodevolumestates;volumeattachmentintents,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=nodes;pods,verbs=list;watch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=list;watch
//
// What it says, and how one of several is elected:
//
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=events,verbs=list;create;patch,namespace=hawser-system
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=create,namespace=hawser-system
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,resourceNames=hawser-operator,verbs=get;update,namespace=hawser-system
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
//
// What it applies, in the whole cluster:
//
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=hawser-system,verbs=patch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles;clusterrolebindings,verbs=list;watch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=hawser-agent;hawser-forget-gone-nodes;hawser-intent-editor;hawser-intent-viewer;hawser-manager;hawser-metrics-auth;hawser-metrics-reader;hawser-node-volume-viewer;hawser-node-writes;hawser-replace;hawser-secret-granter,verbs=get;create;patch;escalate;bind
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterrolebindings,resourceNames=hawser-agent;hawser-forget-gone-nodes;hawser-manager;hawser-metrics-auth;hawser-metrics-scraper;hawser-node-writes;hawser-replace,verbs=get;create;patch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings;mutatingadmissionpolicies;mutatingadmissionpolicybindings,verbs=list;watch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=hawser-agent-intents;hawser-agent-leases;hawser-agent-node-state;hawser-agent-tokens;hawser-claim-deletion;hawser-declared;hawser-draining;hawser-draining-pods;hawser-exclusive-locks;hawser-hold;hawser-intent-authors;hawser-intent-finalizers;hawser-manager-claims;hawser-manager-configmaps;hawser-manager-intents;hawser-manager-node-states;hawser-manager-nodes;hawser-manager-pods;hawser-manager-secrets;hawser-namespace;hawser-removal,verbs=get;create;patch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingadmissionpolicies;mutatingadmissionpolicybindings,resourceNames=hawser-pod-placement;hawser-release-finalizer,verbs=get;create;patch
// +kubebuilder:rbac:groups=flowcontrol.apiserver.k8s.io,resources=flowschemas;prioritylevelconfigurations,verbs=list;watch
// +kubebuilder:rbac:groups=flowcontrol.apiserver.k8s.io,resources=flowschemas,resourceNames=hawser;hawser-leases,verbs=get;create;patch
// +kubebuilder:rbac:groups=flowcontrol.apiserver.k8s.io,resources=prioritylevelconfigurations,resourceNames=hawser,verbs=get;create;patch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=csidrivers,verbs=list;watch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=csidrivers,resourceNames=volumes.hawser.io,verbs=get;create;patch
//
// What it applies in its own namespace:
//
// +kubebuilder:rbac:groups=apps,resources=deployments;daemonsets,verbs=list;watch,namespace=hawser-system
// +kubebuilder:rbac:groups=apps,resources=deployments,resourceNames=hawser-manager,verbs=get;create;patch,namespace=hawser-system
// +kubebuilder:rbac:groups=apps,resources=daemonsets,resourceNames=hawser-agent,verbs=get;create;patch,namespace=hawser-system
// +kubebuilder:rbac:groups="",resources=services;serviceaccounts,verbs=list;watch,namespace=hawser-system
// +kubebuilder:rbac:groups="",resources=services,resourceNames=hawser-manager-metrics,verbs=get;create;patch,namespace=hawser-system
// +kubebuilder:rbac:groups="",resources=serviceaccounts,resourceNames=hawser-agent;hawser-manager;hawser-metrics-scraper,verbs=get;create;patch,namespace=hawser-system
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=hawser-metrics-scraper,verbs=create;patch,namespace=hawser-system
// +kubebuilder:rbac:groups="",resources=resourcequotas,resourceNames=hawser-critical-pods,verbs=list;watch;create;patch,namespace=hawser-system
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=list;watch,namespace=hawser-system
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,resourceNames=hawser-manager,verbs=get;create;patch,namespace=hawser-system
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=list;watch,namespace=hawser-system
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,resourceNames=hawser,verbs=get;create;patch,namespace=hawser-system
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles;rolebindings,verbs=list;watch,namespace=hawser-system
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles,resourceNames=hawser-agent;hawser-leader-election;hawser-manager,verbs=get;create;patch;escalate;bind,namespace=hawser-system
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,resourceNames=hawser-agent;hawser-leader-election;hawser-manager,verbs=get;create;patch,namespace=hawser-system
// +kubebuilder:rbac:groups=monitoring.coreos.com,resources=servicemonitors;podmonitors;prometheusrules,verbs=list;watch,namespace=hawser-system
// +kubebuilder:rbac:groups=monitoring.coreos.com,resources=servicemonitors,resourceNames=hawser-manager,verbs=get;create;patch,namespace=hawser-system
// +kubebuilder:rbac:groups=monitoring.coreos.com,resources=podmonitors,resourceNames=hawser-agent;hawser-operator,verbs=get;create;patch,namespace=hawser-system
// +kubebuilder:rbac:groups=monitoring.coreos.com,resources=prometheusrules,resourceNames=hawser,verbs=get;create;patch,namespace=hawser-system
//
// What it protects against deletion. These objects were made with the operator; their names are fixed, except
// for that of the extension.
//
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=nodevolumestates.volumes.hawser.io;volumeattachmentintents.volumes.hawser.io;volumeattachmentintentsets.volumes.hawser.io;volumemanagers.volumes.hawser.io,verbs=patch
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=hawser-system,verbs=list;watch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles;clusterrolebindings,resourceNames=hawser-operator,verbs=patch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles;rolebindings,resourceNames=hawser-operator,verbs=patch,namespace=hawser-system
// +kubebuilder:rbac:groups="",resources=serviceaccounts,resourceNames=hawser-operator,verbs=patch,namespace=hawser-system
// +kubebuilder:rbac:groups=apps,resources=deployments,resourceNames=hawser-operator,verbs=get;patch,namespace=hawser-system
// +kubebuilder:rbac:groups=olm.operatorframework.io,resources=clusterextensions,verbs=list;watch;patch
//
// What it deletes of its own, when a VolumeManager leaves it out or is removed:
//
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=hawser-agent;hawser-forget-gone-nodes;hawser-intent-editor;hawser-intent-viewer;hawser-manager;hawser-metrics-auth;hawser-metrics-reader;hawser-node-volume-viewer;hawser-node-writes;hawser-replace;hawser-secret-granter,verbs=delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterrolebindings,resourceNames=hawser-agent;hawser-forget-gone-nodes;hawser-manager;hawser-metrics-auth;hawser-metrics-scraper;hawser-node-writes;hawser-replace,verbs=delete
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=hawser-agent-intents;hawser-agent-leases;hawser-agent-node-state;hawser-agent-tokens;hawser-claim-deletion;hawser-declared;hawser-draining;hawser-draining-pods;hawser-exclusive-locks;hawser-hold;hawser-intent-authors;hawser-intent-finalizers;hawser-manager-claims;hawser-manager-configmaps;hawser-manager-intents;hawser-manager-node-states;hawser-manager-nodes;hawser-manager-pods;hawser-manager-secrets;hawser-namespace;hawser-removal,verbs=delete
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingadmissionpolicies;mutatingadmissionpolicybindings,resourceNames=hawser-pod-placement;hawser-release-finalizer,verbs=delete
// +kubebuilder:rbac:groups=flowcontrol.apiserver.k8s.io,resources=flowschemas,resourceNames=hawser;hawser-leases,verbs=delete
// +kubebuilder:rbac:groups=flowcontrol.apiserver.k8s.io,resources=prioritylevelconfigurations,resourceNames=hawser,verbs=delete
// +kubebuilder:rbac:groups=storage.k8s.io,resources=csidrivers,resourceNames=volumes.hawser.io,verbs=delete
// +kubebuilder:rbac:groups=apps,resources=deployments,resourceNames=hawser-manager,verbs=delete,namespace=hawser-system
// +kubebuilder:rbac:groups=apps,resources=daemonsets,resourceNames=hawser-agent,verbs=delete,namespace=hawser-system
// +kubebuilder:rbac:groups="",resources=services,resourceNames=hawser-manager-metrics,verbs=delete,namespace=hawser-system
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=hawser-metrics-scraper,verbs=delete,namespace=hawser-system
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,resourceNames=hawser-manager,verbs=delete,namespace=hawser-system
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,resourceNames=hawser,verbs=delete,namespace=hawser-system
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles;rolebindings,resourceNames=hawser-agent;hawser-leader-election;hawser-manager,verbs=delete,namespace=hawser-system
// +kubebuilder:rbac:groups=monitoring.coreos.com,resources=servicemonitors,resourceNames=hawser-manager,verbs=delete,namespace=hawser-system
// +kubebuilder:rbac:groups=monitoring.coreos.com,resources=podmonitors,resourceNames=hawser-agent;hawser-operator,verbs=delete,namespace=hawser-system
// +kubebuilder:rbac:groups=monitoring.coreos.com,resources=prometheusrules,resourceNames=hawser,verbs=delete,namespace=hawser-system
//
// What manager and agents wrote, which goes when a VolumeManager is removed. RBAC knows no prefixes of names, so these
// rights are wider than what the operator does: traces.go.
//
// +kubebuilder:rbac:groups=volumes.hawser.io,resources=volumeattachmentintents,verbs=delete
// +kubebuilder:rbac:groups=volumes.hawser.io,resources=nodevolumestates,verbs=patch;delete
// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=list;patch
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=list;patch
// +kubebuilder:rbac:groups="",resources=nodes;pods,verbs=patch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles;rolebindings,verbs=list;delete
// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=delete,namespace=hawser-system
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=list;delete,namespace=hawser-system
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=list;delete,namespace=hawser-system

// optionalRights are the names of the cluster-wide roles that the manager has only with an option, and of their
// bindings.
var optionalRights = []string{"hawser-forget-gone-nodes", "hawser-node-writes", replaceRight}

// replaceRight is that of a manager in attach mode Replace.
const replaceRight = "hawser-replace"

var bindingKind = rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding")

// pruneRights deletes the optional rights that an installation without the operator had. It does so once for each
// VolumeManager: what that asks for later gets the operator's label.
func (r *Reconciler) pruneRights(ctx context.Context, vm *volumesv1alpha1.VolumeManager, keep sets.Set[string]) error {
	if r.adopted == vm.UID {
		return nil
	}
	objects, err := r.unwantedRights(ctx, keep)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := r.pruneOne(ctx, vm, object); err != nil {
			return err
		}
	}
	r.adopted = vm.UID
	return nil
}

// unwantedRights are the manager's optional rights that are there without being wanted. They are read live: those of an
// installation without the operator lack its label, so the cache has none of them. A role comes before its binding, by
// which it is found.
func (r *Reconciler) unwantedRights(ctx context.Context, keep sets.Set[string]) ([]*unstructured.Unstructured, error) {
	var found []*unstructured.Unstructured
	for _, name := range optionalRights {
		role, binding := newObject(roleKind), newObject(bindingKind)
		role.SetName(name)
		binding.SetName(name)
		if keep.Has(identity(binding)) {
			continue
		}
		has, err := r.bindsManager(ctx, binding)
		if err != nil {
			return nil, err
		}
		if !has {
			continue
		}
		exists, err := r.getLive(ctx, role)
		if err != nil {
			return nil, err
		}
		if exists {
			found = append(found, role)
		}
		found = append(found, binding)
	}
	return found, nil
}

// getLive reads the object, and reports whether it is there.
func (r *Reconciler) getLive(ctx context.Context, object *unstructured.Unstructured) (bool, error) {
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(object), object)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading %s: %w", identity(object), err)
	}
	return err == nil, nil
}

// bindsManager reads the binding, and reports whether the manager of this installation is a subject of it.
func (r *Reconciler) bindsManager(ctx context.Context, binding *unstructured.Unstructured) (bool, error) {
	if bound, err := r.getLive(ctx, binding); err != nil || !bound {
		return false, err
	}
	typed, err := fromUnstructured[rbacv1.ClusterRoleBinding](binding)
	return err == nil && slices.ContainsFunc(typed.Subjects, func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.ServiceAccountKind && s.Name == render.ManagerName && s.Namespace == r.Namespace
	}), nil
}
