/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package bare

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/controller/exclusive"
)

// lock takes the exclusive volume's lock for the node, together with other volumes. A volume that was attached before
// has its lock, which is read.
func (c *Client) lock(ctx context.Context, v *volume) error {
	lock, _, err := c.locks.Swap(ctx, v.Unique, exclusive.Lock{}, exclusive.Lock{Holder: v.Node})
	if err == nil && lock.Holder != v.Node {
		err = fmt.Errorf("the lock of volume %s belongs to node %s", v.Unique, lock.Holder)
	}
	return err
}

// uncached is a client with an empty cache: it knows only its own writes.
type uncached struct{ client.Client }

func (uncached) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}
