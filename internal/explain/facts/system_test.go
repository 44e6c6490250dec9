/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package facts

import (
	"context"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
)

// leaseless is an API server on which the user may not read Leases.
type leaseless struct{ client.Reader }

var errForbidden = apierrors.NewForbidden(coordinationv1.Resource("leases"), "", nil)

func (r leaseless) Get(ctx context.Context, at client.ObjectKey, into client.Object, options ...client.GetOption,
) error {
	if _, ok := into.(*coordinationv1.Lease); ok {
		return errForbidden
	}
	return r.Reader.Get(ctx, at, into, options...)
}

func (leaseless) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errForbidden
}

func TestTheNamespaceOfHawserIsFound(t *testing.T) {
	lease := func(namespace string) client.Object {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ManagerLease}}
	}
	vm := &volumesv1alpha1.VolumeManager{ObjectMeta: metav1.ObjectMeta{Name: volumesv1alpha1.VolumeManagerName},
		Status: volumesv1alpha1.VolumeManagerStatus{Namespace: "storage"}}
	for name, tt := range map[string]struct {
		flag      string
		objects   []client.Object
		forbidden bool
		want      string
	}{
		"the flag decides":                            {"mine", []client.Object{vm}, false, "mine"},
		"the VolumeManager has it":                    {"", []client.Object{vm, lease("other")}, false, "storage"},
		"also for a user without rights on Leases":    {"", []client.Object{vm}, true, "storage"},
		"without a VolumeManager the manager's Lease": {"", []client.Object{lease("other")}, false, "other"},
		"that in the default namespace is preferred": {"",
			[]client.Object{lease("other"), lease("hawser-system")}, false, "hawser-system"},
		"several elsewhere decide nothing": {"", []client.Object{lease("a"), lease("b")}, false, "hawser-system"},
		"nothing is there":                 {"", nil, false, "hawser-system"},
		"nothing may be read that has it":  {"", []client.Object{lease("other")}, true, "hawser-system"},
	} {
		b := fake.NewClientBuilder().WithScheme(controllertest.Scheme()).WithObjects(tt.objects...).
			WithIndex(&coordinationv1.Lease{}, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} })
		var r client.Reader = b.Build()
		if tt.forbidden {
			r = leaseless{r}
		}
		g := &Gatherer{Reader: installed{r}, System: tt.flag, Now: time.Now}
		if err := g.FindSystem(t.Context()); err != nil || g.System != tt.want {
			t.Errorf("%s: namespace %s, error %v, want %s", name, g.System, err, tt.want)
		}
	}
}
