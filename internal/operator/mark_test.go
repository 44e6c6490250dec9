/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// A webhook that does not answer is such a refusal. Once it is deleted, nothing leads to a reconcile.
func TestAMarkThatIsRefusedIsTriedAgain(t *testing.T) {
	vm, home := &volumesv1alpha1.VolumeManager{ObjectMeta: with("cluster")}, &corev1.Namespace{ObjectMeta: with("hawser")}
	home.Name = volumesv1alpha1.InstallNamespace
	m := newMeanwhile(t, vm, home)
	m.guards, m.Kinds = guards{m.Cache}, Kinds{mutating: true} // everything is served
	m.Namespace, m.Recount = home.Name, DefaultRecount
	m.Client = interceptor.NewClient(m.live, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch,
			opts ...client.PatchOption) error {
			if o.GetName() == home.Name {
				return errors.New("failed calling webhook")
			}
			return c.Patch(ctx, o, patch, opts...)
		}})
	again, problems, err := m.protect(t.Context(), read(m, vm), used{known: true})
	if err != nil || len(problems) != 1 || problems[0].Reason != volumesv1alpha1.ReasonMarkFailed {
		t.Errorf("protecting what cannot be patched: problems %v, error %v; want %s", problems, err,
			volumesv1alpha1.ReasonMarkFailed)
	}
	if again != DefaultRecount {
		t.Errorf("the mark is tried again after %s, want %s", again, DefaultRecount)
	}
}
