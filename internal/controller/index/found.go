/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package index

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Found are the objects of the list's kind that an index has under the key, as requests to reconcile them. A handler
// that wakes others cannot return an error, so it is logged.
func Found(ctx context.Context, c client.Reader, list client.ObjectList, field, key string) []reconcile.Request {
	var requests []reconcile.Request
	err := c.List(ctx, list, client.MatchingFields{field: key})
	if err == nil {
		err = meta.EachListItem(list, func(o runtime.Object) error {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o.(client.Object))})
			return nil
		})
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing", "list", fmt.Sprintf("%T", list), "by", field, "key", key)
	}
	return requests
}
