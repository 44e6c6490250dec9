/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/operator"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/system"
)

const (
	namespace = volumesv1alpha1.InstallNamespace
	// patience is longer than any step takes on a slow machine.
	patience = time.Minute
)

// server is an API server with config/standalone in it.
type server struct {
	config     *rest.Config
	admin      client.WithWatch
	kubeconfig string
	rights     *rights
	// operate starts another operator, which runs until the whole test ends.
	operate func() (stop func())
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

func newServer(t *testing.T) server {
	t.Helper()
	config, admin := apiserver.Start(t)
	return server{config: config, admin: admin, kubeconfig: apiserver.Kubeconfig(t, config),
		rights: &rights{used: map[system.Rule]bool{}}}
}

func (s server) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return apiserver.Kubectl(t, s.kubeconfig, "", args...)
}

// run runs the operator under its own account until the test ends, or until the returned function is called.
func (s server) run(t *testing.T, o operator.Options) (stop func()) {
	t.Helper()
	config := apiserver.ServiceAccount(s.config, namespace, "hawser-operator")
	config.Wrap(s.rights.wrap)
	httpClient, err := rest.HTTPClientFor(config)
	check(t, err)
	mapper, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	check(t, err)
	o.Kinds, err = operator.FindKinds(mapper)
	check(t, err)
	mgr, err := ctrl.NewManager(config, manager.Options{
		Scheme: apiserver.Scheme(), Cache: o.Kinds.CacheOptions(namespace),
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	check(t, err)
	o.Namespace, o.Version, o.Clock, o.SkipNameValidation = namespace, "v1.2.3", clock.RealClock{}, true
	check(t, operator.Register(mgr, o))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the operator ended: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func there(*unstructured.Unstructured) bool { return true }

// await waits until the object is there and holds. It returns the object.
func (s server) await(t *testing.T, kind schema.GroupVersionKind, ns, name, what string,
	holds func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	t.Helper()
	return s.awaitAny(t, kind, ns, what, holds, client.MatchingFields{"metadata.name": name})
}

// awaitGone waits until there is no such object.
func (s server) awaitGone(t *testing.T, kind schema.GroupVersionKind, ns, name, what string) {
	t.Helper()
	s.follow(t, kind, ns, what, func(o *unstructured.Unstructured) bool { return o == nil },
		client.MatchingFields{"metadata.name": name})
}

// awaitAny waits until an object holds.
func (s server) awaitAny(t *testing.T, kind schema.GroupVersionKind, ns, what string,
	holds func(*unstructured.Unstructured) bool, options ...client.ListOption) *unstructured.Unstructured {
	t.Helper()
	return s.follow(t, kind, ns, what, func(o *unstructured.Unstructured) bool { return o != nil && holds(o) }, options...)
}

// follow lists and watches until an object holds, where nil is one that is not there.
func (s server) follow(t *testing.T, kind schema.GroupVersionKind, ns, what string,
	holds func(*unstructured.Unstructured) bool, options ...client.ListOption) *unstructured.Unstructured {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	options = append(options, client.InNamespace(ns))
	check(t, s.admin.List(ctx, list, options...))
	var last *unstructured.Unstructured
	for i := range list.Items {
		if last = &list.Items[i]; holds(last) {
			return last
		}
	}
	if last == nil && holds(nil) {
		return nil
	}
	w, err := s.admin.Watch(ctx, list, append(options,
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})...)
	check(t, err)
	defer w.Stop()
	for event := range w.ResultChan() {
		object, is := event.Object.(*unstructured.Unstructured)
		if !is {
			t.Fatalf("waiting until %s: %v", what, event.Object)
		}
		if last = object; event.Type == watch.Deleted {
			last = nil
		}
		if holds(last) {
			return last
		}
	}
	seen, err := json.MarshalIndent(last, "", " ")
	check(t, err)
	t.Fatalf("waiting until %s (%s): the last seen is %s", what, kind.Kind, seen)
	return nil
}

var volumeManager = volumesv1alpha1.GroupVersion.WithKind("VolumeManager")

// awaitCondition waits until a condition of the VolumeManager has the status, the reason and the text in its message.
func (s server) awaitCondition(t *testing.T, kind, status, reason, text string) {
	t.Helper()
	s.await(t, volumeManager, "", "cluster", kind+" is "+status+", reason "+reason+", "+text,
		func(o *unstructured.Unstructured) bool {
			vm := asVolumeManager(t, o)
			c := meta.FindStatusCondition(vm.Status.Conditions, kind)
			return c != nil && string(c.Status) == status && c.Reason == reason && strings.Contains(c.Message, text) &&
				c.ObservedGeneration == vm.Generation && vm.Status.ObservedGeneration == vm.Generation
		})
}

func asVolumeManager(t *testing.T, o *unstructured.Unstructured) *volumesv1alpha1.VolumeManager {
	t.Helper()
	if o == nil {
		return nil
	}
	vm := &volumesv1alpha1.VolumeManager{}
	check(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, vm))
	return vm
}

// change changes the spec of the VolumeManager.
func (s server) change(t *testing.T, patch string) {
	t.Helper()
	vm := &volumesv1alpha1.VolumeManager{}
	vm.Name = volumesv1alpha1.VolumeManagerName
	check(t, s.admin.Patch(t.Context(), vm, client.RawPatch(types.MergePatchType, []byte(`{"spec":`+patch+`}`))))
}
