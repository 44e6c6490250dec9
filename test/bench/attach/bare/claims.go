/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package bare

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
)

// claims are those of the exclusive volumes in one ConfigMap.
type claims struct {
	lane[*volume]
	// object as it was last read or written; nil before that.
	object *corev1.ConfigMap
}

// claimsOf makes the claims of the ConfigMap in which that of v stands.
func (c *Client) claimsOf(v *volume) *claims {
	key := exclusive.Key(v.Unique)
	if c.claims[key.Name] == nil {
		one := &claims{}
		one.batches.Slots = c.slots
		one.commit = func(ctx context.Context, group []*volume) error { return c.writeClaims(ctx, key, one, group) }
		c.claims[key.Name] = one
	}
	return c.claims[key.Name]
}

// claim makes the exclusive volume the node's, together with others. A volume that was attached before has its claim, which is read.
func (c *Client) claim(ctx context.Context, v *volume) error { return v.claims.add(ctx, v) }

func (c *Client) writeClaims(ctx context.Context, key client.ObjectKey, one *claims, group []*volume) error {
	for {
		next, missing, err := withClaims(key, one.object, group)
		if err != nil {
			return err
		}
		if !missing {
			return c.api.Get(ctx, key, next)
		}
		if one.object == nil {
			err = c.api.Create(ctx, next)
		} else {
			err = c.api.Update(ctx, next)
		}
		if err == nil {
			one.object = next
			return nil
		}
		if !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("writing claims: %w", err)
		}
		one.object = &corev1.ConfigMap{}
		if err := c.api.Get(ctx, key, one.object); err != nil {
			return fmt.Errorf("reading claims: %w", err)
		}
	}
}

// withClaims is object with the claims of the group, and whether any of them was missing.
func withClaims(key client.ObjectKey, object *corev1.ConfigMap, group []*volume) (*corev1.ConfigMap, bool, error) {
	const data = "claims.json"
	var table struct {
		Writes int64                      `json:"writes"`
		Claims map[string]exclusive.Claim `json:"claims"`
	}
	next := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{volumesv1alpha1.ExclusiveClaimsLabel: "true"},
	}}
	if object != nil {
		next = object.DeepCopy()
		if err := json.Unmarshal([]byte(object.Data[data]), &table); err != nil {
			return nil, false, fmt.Errorf("reading claims: %w", err)
		}
	}
	if table.Claims == nil {
		table.Claims = map[string]exclusive.Claim{}
	}
	table.Writes++
	missing := false
	for _, v := range group {
		if table.Claims[v.Unique].Holder != v.Node {
			table.Claims[v.Unique], missing = exclusive.Claim{Holder: v.Node, Write: table.Writes}, true
		}
	}
	text, err := json.Marshal(table)
	next.Data = map[string]string{data: string(text)}
	return next, missing, err
}
