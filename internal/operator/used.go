/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/operator/usage"
)

var (
	intentKind = volumesv1alpha1.GroupVersion.WithKind("VolumeAttachmentIntent")
	stateKind  = volumesv1alpha1.GroupVersion.WithKind("NodeVolumeState")
	roleKind   = rbacv1.SchemeGroupVersion.WithKind("ClusterRole")
)

// used is what Hawser has to release.
type used struct {
	// known is false while the kind of node states is missing.
	known   bool
	uses    []usage.Use
	intents []volumesv1alpha1.VolumeAttachmentIntent
	// pods that may have inline volumes mounted. They are only searched for once the VolumeManager is deleted.
	pods []string
	// directories that agents have yet to remove.
	directories []string
}

func (u used) nothing() bool { return u.released() && len(u.intents) == 0 }

// released: there may be intents left, but only those that show what upstream does.
func (u used) released() bool { return u.known && len(u.uses) == 0 && u.noPods() }

// noPods have or had anything that agents have yet to take away.
func (u used) noPods() bool { return len(u.pods) == 0 && len(u.directories) == 0 }

// findUsed reads from the cache what is wanted, attached and in use. Once the kind of intents is gone, so is every
// intent with its finalizer.
func (r *Reconciler) findUsed(ctx context.Context, vm *volumesv1alpha1.VolumeManager) (used, error) {
	intents, states := &volumesv1alpha1.VolumeAttachmentIntentList{}, &volumesv1alpha1.NodeVolumeStateList{}
	for _, read := range []struct {
		kind   schema.GroupVersionKind
		reader client.Reader
		list   client.ObjectList
	}{{intentKind, r.guards, intents}, {stateKind, r.Cache, states}} {
		gone, err := r.gone(ctx, read.kind)
		switch {
		case err != nil:
			return used{}, err
		case gone && read.kind == intentKind:
			continue
		case !r.serves(read.kind):
			return used{}, nil
		}
		if err := read.reader.List(ctx, read.list); err != nil {
			return used{}, fmt.Errorf("listing %s: %w", read.kind.Kind, err)
		}
	}
	replace, err := r.mayReplace(ctx, vm)
	if err != nil {
		return used{}, err
	}
	exists := func(name string) bool {
		return !apierrors.IsNotFound(r.Cache.Get(ctx, types.NamespacedName{Name: name}, &corev1.Node{}))
	}
	return used{known: true, intents: intents.Items, directories: usage.Directories(states.Items, exists),
		uses: usage.Find(usage.Facts{Replace: replace, Intents: intents.Items, States: states.Items, NodeExists: exists}),
	}, nil
}

// mayReplace reports whether a manager may run in attach mode Replace. Its role stays until none does. That of an
// installation without the operator is not in the cache until the operator has pruned it.
func (r *Reconciler) mayReplace(ctx context.Context, vm *volumesv1alpha1.VolumeManager) (bool, error) {
	if vm.Spec.AttachMode == volumesv1alpha1.AttachReplace {
		return true, nil
	}
	err := r.Cache.Get(ctx, types.NamespacedName{Name: replaceRight}, newObject(roleKind))
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading the role of Replace: %w", err)
	}
	if err == nil || r.adopted == vm.UID {
		return err == nil, nil
	}
	binding := newObject(bindingKind)
	binding.SetName(replaceRight)
	return r.bindsManager(ctx, binding)
}
