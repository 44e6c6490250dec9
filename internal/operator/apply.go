/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/operator/render"
)

// scraper is the name of the account that reads the metrics, and of the Secret with its token.
const scraper = "hawser-metrics-scraper"

// otherManagers own fields of an installation that was made with kubectl, without server-side apply.
var otherManagers = sets.New("kubectl-client-side-apply", "kubectl-create", "kubectl-replace")

// identity of an object.
func identity(object *unstructured.Unstructured) string {
	if object.GetNamespace() == "" {
		return object.GetKind() + " " + object.GetName()
	}
	return object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
}

// applyAll applies the objects. It returns those that are there, as the API server last showed them, by identity.
func (r *Reconciler) applyAll(ctx context.Context, vm *volumesv1alpha1.VolumeManager,
	wanted []*unstructured.Unstructured) (map[string]*unstructured.Unstructured, error) {
	present := map[string]*unstructured.Unstructured{}
	var failures []error
	for _, want := range wanted {
		have, err := r.applyOne(ctx, vm, want)
		if err != nil {
			failures = append(failures, fmt.Errorf("applying %s: %w", identity(want), err))
		}
		if have != nil {
			present[identity(want)] = have
		}
	}
	return present, errors.Join(failures...)
}

// applyOne applies one object, adapted to the one that is there.
func (r *Reconciler) applyOne(ctx context.Context, vm *volumesv1alpha1.VolumeManager,
	want *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	adapted, err := r.adapt(ctx, want)
	if err != nil {
		return nil, err
	}
	return r.apply(ctx, vm, adapted)
}

// applied is what this process last applied of an object.
type applied struct {
	hash string
	// altered is where the API server's answer differed, because admission changed what was applied.
	altered differences
}

// apply returns the object as it then is, also if it cannot be changed.
func (r *Reconciler) apply(ctx context.Context, vm *volumesv1alpha1.VolumeManager, want *unstructured.Unstructured,
) (*unstructured.Unstructured, error) {
	id, hash := identity(want), want.GetAnnotations()[render.HashAnnotation]
	last, known := r.applied[id]
	if last.hash != hash {
		last, known = applied{hash: hash}, false
	}
	if unwatched(want.GroupVersionKind()) {
		if known {
			return want, nil
		}
		return r.send(ctx, want)
	}
	have, drift, err := r.compare(ctx, want, last.altered, known)
	if err != nil {
		return nil, err
	}
	if have != nil && len(drift) == 0 {
		r.applied[id] = last
		return have, nil
	}
	if have == nil && want.GetKind() == "ServiceAccount" && want.GetName() == scraper {
		if err := r.deleteToken(ctx); err != nil {
			return nil, err
		}
	}
	if err := r.takeOver(ctx, have); err != nil {
		return have, err
	}
	got, err := r.send(ctx, want)
	if err != nil {
		return have, err
	}
	altered := r.applied[id].altered
	if known {
		reportDrift(r.Recorder, vm, got, have, drift.without(altered))
	}
	reportAltered(r.Recorder, vm, got, altered.without(last.altered))
	return got, nil
}

// reportDrift is about what another client changed since the operator applied it.
func reportDrift(recorder events.EventRecorder, vm *volumesv1alpha1.VolumeManager,
	got, before *unstructured.Unstructured, corrected differences) {
	where := "deleted"
	if before != nil {
		if len(corrected) == 0 {
			return
		}
		where = corrected.first()
	}
	recorder.Eventf(vm, got, corev1.EventTypeWarning, "DriftMended", "Apply", "another client changed %s (%s); it is "+
		"put back. To change it, change the VolumeManager", identity(got), where)
}

// reportAltered is about what the operator applied and the API server did not take as it was. To apply it at each
// reconcile would change nothing.
func reportAltered(recorder events.EventRecorder, vm *volumesv1alpha1.VolumeManager, got *unstructured.Unstructured,
	altered differences) {
	if len(altered) == 0 {
		return
	}
	where := altered.first()
	recorder.Eventf(vm, got, corev1.EventTypeWarning, "AlteredByAdmission", "Apply", "a webhook or a policy of the "+
		"API server changes %s when the operator applies it: %s is %v, and %d field(s) differ in all. The operator leaves "+
		"them so. If they must not differ, correct the webhook or policy, then restart the operator", identity(got), where,
		altered[where], len(altered))
}

// send applies one object with force: there is one owner of what the manifests contain.
func (r *Reconciler) send(ctx context.Context, want *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	got := want.DeepCopy()
	err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(got), client.FieldOwner(render.ManagedBy),
		client.ForceOwnership)
	if err != nil {
		return nil, err
	}
	r.applied[identity(want)] = applied{hash: want.GetAnnotations()[render.HashAnnotation], altered: differ(want, got)}
	return got, nil
}

// deleteToken deletes the Secret with the token of the account that scrapes, so that it is applied again after the
// account. Kubernetes deletes that of an account that was deleted, but perhaps not before the operator has applied the
// Secret, and the operator does not watch it.
func (r *Reconciler) deleteToken(ctx context.Context) error {
	secret := newObject(corev1.SchemeGroupVersion.WithKind("Secret"))
	secret.SetNamespace(r.Namespace)
	secret.SetName(scraper)
	if err := client.IgnoreNotFound(r.Client.Delete(ctx, secret)); err != nil {
		return fmt.Errorf("deleting %s: %w", identity(secret), err)
	}
	delete(r.applied, identity(secret))
	return nil
}

// compare returns the object, nil if there is none, and where it differs from what is wanted and accepted. An object
// without the operator's label is not in the cache. The cache may also be older than the operator's own last apply:
// if that is known, a difference is read live.
func (r *Reconciler) compare(ctx context.Context, want *unstructured.Unstructured, accepted differences, known bool,
) (*unstructured.Unstructured, differences, error) {
	have, drift, err := compareWith(ctx, want, accepted, r.Cache)
	if err == nil && (have == nil || known && len(drift) > 0) {
		return compareWith(ctx, want, accepted, r.Live)
	}
	return have, drift, err
}

func compareWith(ctx context.Context, want *unstructured.Unstructured, accepted differences, reader client.Reader,
) (*unstructured.Unstructured, differences, error) {
	have := newObject(want.GroupVersionKind())
	err := reader.Get(ctx, client.ObjectKeyFromObject(want), have)
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return have, differ(want, have).without(accepted), nil
}

// takeOver makes the operator, before it applies an object for the first time, the owner of the fields that others
// applied: kubectl, or any tool by server-side apply. Without it a node selector from a manual installation would stay
// for ever.
func (r *Reconciler) takeOver(ctx context.Context, have *unstructured.Unstructured) error {
	if have == nil || appliedByOperator(have) {
		return nil
	}
	object, managers, entries := have.DeepCopy(), otherManagers.Clone(), have.GetManagedFields()
	for i := range entries {
		// The upgrade takes over updates only. A manager may have an update of its own beside what it applied.
		if e := &entries[i]; e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == "" {
			e.Manager, e.Operation = fmt.Sprintf("applied-%d", i), metav1.ManagedFieldsOperationUpdate
			managers.Insert(e.Manager)
		}
	}
	object.SetManagedFields(entries)
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(object, managers, render.ManagedBy)
	if err != nil || patch == nil {
		return err
	}
	return r.Client.Patch(ctx, have, client.RawPatch(types.JSONPatchType, patch))
}

// prune deletes what the operator once applied and the spec does not want any more. It recognizes such an object by
// its label and by its field manager: a copy that a person made has the label only. An object that a later release
// applied may have a name for which this one has no right; it keeps no other from being deleted. No earlier manager is
// left. What is the agents' own, which has their name, stays while an earlier agent may need it.
func (r *Reconciler) prune(ctx context.Context, vm *volumesv1alpha1.VolumeManager,
	wanted []*unstructured.Unstructured, agentsReplaced bool) error {
	keep := sets.New[string]()
	for _, want := range wanted {
		keep.Insert(identity(want))
	}
	var failures []error
	for _, kind := range r.prunable() {
		objects, err := r.ours(ctx, kind)
		if err != nil {
			return errors.Join(append(failures, err)...)
		}
		for _, object := range objects {
			ofAgents := strings.HasPrefix(object.GetName(), render.AgentName)
			if keep.Has(identity(object)) || ofAgents && !agentsReplaced {
				continue
			}
			failures = append(failures, r.pruneOne(ctx, vm, object))
		}
	}
	return errors.Join(append(failures, r.pruneRights(ctx, vm, keep))...)
}

func (r *Reconciler) pruneOne(ctx context.Context, vm *volumesv1alpha1.VolumeManager,
	object *unstructured.Unstructured) error {
	if err := r.remove(ctx, object); err != nil {
		return err
	}
	r.Recorder.Eventf(vm, object, corev1.EventTypeNormal, "Pruned", "Delete",
		"%s is deleted: the VolumeManager does not ask for it any more", identity(object))
	return nil
}

// ours returns the objects of a kind that the operator applied.
func (r *Reconciler) ours(ctx context.Context, kind schema.GroupVersionKind) ([]*unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	if err := r.Cache.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing %s: %w", kind.Kind, err)
	}
	var found []*unstructured.Unstructured
	for i := range list.Items {
		if ours(&list.Items[i]) {
			found = append(found, &list.Items[i])
		}
	}
	return found, nil
}

func (r *Reconciler) remove(ctx context.Context, object *unstructured.Unstructured) error {
	uid := object.GetUID()
	err := r.Client.Delete(ctx, object, client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s: %w", identity(object), err)
	}
	delete(r.applied, identity(object))
	return nil
}

func ours(object *unstructured.Unstructured) bool {
	return object.GetLabels()[render.ManagedByLabel] == render.ManagedBy && appliedByOperator(object)
}

func appliedByOperator(object *unstructured.Unstructured) bool {
	return slices.ContainsFunc(object.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == render.ManagedBy && entry.Operation == metav1.ManagedFieldsOperationApply
	})
}
