/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package secretaccess

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/install"
)

// strangerError is that an object has the name of one that gives access, and that the manager did not make it. It is
// not changed, and nothing is bound to it: nobody knows what it is for.
type strangerError struct{ kind, namespace, name string }

func (e *strangerError) Error() string {
	return fmt.Sprintf("%s %s/%s was not made by Hawser", e.kind, e.namespace, e.name)
}

// create creates the object. One of the name that the cache does not show is the manager's own, whose event leads here
// again, or a stranger's. The list, of the kind of the object, is for reading it: the manager may list Roles and
// RoleBindings everywhere, and get none.
func (a access) create(ctx context.Context, o client.Object, list client.ObjectList) error {
	err := a.Client.Create(ctx, o)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	named := client.MatchingFields{"metadata.name": o.GetName()}
	if err := a.Reader.List(ctx, list, client.InNamespace(o.GetNamespace()), named); err != nil {
		return fmt.Errorf("reading what has the name: %w", err)
	}
	return meta.EachListItem(list, func(there runtime.Object) error {
		if install.IsNodeAccess(there.(client.Object)) {
			return nil
		}
		kind := strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1.")
		return &strangerError{kind: kind, namespace: o.GetNamespace(), name: o.GetName()}
	})
}
