/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package controllertest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Strict is a client that fails the test if what it writes does not name what was decided on. An object under the name
// may be another one by now, so a delete names a UID. A list that is replaced may have more in it by now, so an update,
// and a patch of a list, name a version. It also refuses a delete of another UID, which the fake API server does not.
func Strict(t testing.TB, c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := checkUID(ctx, t, c, o, opts); err != nil {
				return err
			}
			return c.Delete(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			checkUpdate(t, o)
			return c.Update(ctx, o, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, of string, o client.Object,
			opts ...client.SubResourceUpdateOption) error {
			checkUpdate(t, o)
			return c.SubResource(of).Update(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			opts ...client.PatchOption) error {
			checkPatch(t, o, p)
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, of string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			checkPatch(t, o, p)
			return c.SubResource(of).Patch(ctx, o, p, opts...)
		},
	})
}

func checkUID(
	ctx context.Context, t testing.TB, live client.Reader, o client.Object, opts []client.DeleteOption,
) error {
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	if options.Preconditions == nil || options.Preconditions.UID == nil {
		t.Errorf("%T %s is deleted without a UID, want that of the object that was decided on", o, o.GetName())
		return nil
	}
	there := o.DeepCopyObject().(client.Object)
	if err := live.Get(ctx, client.ObjectKeyFromObject(o), there); err != nil {
		return err
	}
	if there.GetUID() != *options.Preconditions.UID {
		return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), fmt.Errorf("UID %s is not %s", there.GetUID(),
			*options.Preconditions.UID))
	}
	return nil
}

func checkUpdate(t testing.TB, o client.Object) {
	if o.GetResourceVersion() == "" {
		t.Errorf("%T %s is updated without a version, want that of the object that was decided on", o, o.GetName())
	}
}

func checkPatch(t testing.TB, o client.Object, p client.Patch) {
	data, err := p.Data(o)
	if err != nil || p.Type() == types.JSONPatchType {
		return // the client returns the error
	}
	var patch map[string]any
	if err := json.Unmarshal(data, &patch); err != nil {
		t.Errorf("patch of %T %s: %v", o, o.GetName(), err)
	}
	metadata, _ := patch["metadata"].(map[string]any)
	if metadata["resourceVersion"] == nil && hasList(patch) {
		t.Errorf("lists of %T %s are patched without a version, want that of the object that was decided on: %s", o,
			o.GetName(), data)
	}
}

// lists that a patch empties with null.
var lists = []string{"finalizers", "ownerReferences", "schedulingGates"}

func hasList(patch map[string]any) bool {
	for key, value := range patch {
		switch value := value.(type) {
		case []any:
			return true
		case nil:
			if slices.Contains(lists, key) {
				return true
			}
		case map[string]any:
			if hasList(value) {
				return true
			}
		}
	}
	return false
}
