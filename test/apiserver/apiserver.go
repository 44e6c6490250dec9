/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package apiserver provides tests with a real kube-apiserver and etcd that have Hawser's CRDs.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	_ "github.com/hawser-io/hawser/test/environment" // cleans that of the tests
)

// AssetsVariable names the directory of kube-apiserver and etcd.
const AssetsVariable = "KUBEBUILDER_ASSETS"

// Root is the top directory of the repository.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// Scheme knows the kinds of Kubernetes and Hawser. All tests of a process share it, because its creation is slow under
// the race detector.
var Scheme = sync.OnceValue(func() *k8sruntime.Scheme {
	scheme := k8sruntime.NewScheme()
	for _, add := range []func(*k8sruntime.Scheme) error{clientgoscheme.AddToScheme, volumesv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return scheme
})

// Start starts a control plane for the test and stops it when the test ends. Without KUBEBUILDER_ASSETS it skips the
// test, and names it in the output; `make test` always sets the variable.
func Start(t *testing.T) (*rest.Config, client.WithWatch) {
	t.Helper()
	needPrograms(t)
	p, err := start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	})
	return p.config, p.client
}

// StartBare is Start without Hawser's kinds, and with further flags of kube-apiserver.
func StartBare(t *testing.T, flags map[string]string) (*rest.Config, client.WithWatch) {
	t.Helper()
	needPrograms(t)
	env, err := newEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range flags {
		env.ControlPlane.GetAPIServer().Configure().Append(name, value)
	}
	config, err := env.Start()
	if err != nil {
		t.Fatalf("starting the control plane: %v", err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Errorf("stopping the control plane: %v", err)
		}
	})
	config.QPS, config.Burst = -1, -1
	c, err := newClient(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	return config, c
}

func needPrograms(t *testing.T) {
	t.Helper()
	if os.Getenv(AssetsVariable) == "" {
		t.Skipf("LEFT OUT (needs %s, a directory with kube-apiserver and etcd; make test builds it)", AssetsVariable)
	}
}

// controlPlane is one etcd with one kube-apiserver.
type controlPlane struct {
	environment *envtest.Environment
	config      *rest.Config
	client      client.WithWatch
	store       store
	// beginning has the keys of the store with their versions, before any test. served is what the API server then
	// reports about them.
	beginning map[string]string
	served    []int
}

// newEnvironment is a control plane without Hawser's kinds that does not run yet.
func newEnvironment() (*envtest.Environment, error) {
	env := &envtest.Environment{
		UseExistingCluster: ptr.To(false), // whatever USE_EXISTING_CLUSTER says
		Scheme:             Scheme(),
		// A machine that runs many tests at once may be slow.
		ControlPlaneStartTimeout: 2 * time.Minute,
	}
	// The disk of a test machine may be slow, and the test's own etcd needs no durability.
	env.ControlPlane.GetAPIServer().Configure().Append("runtime-config", "api/all=true")
	env.ControlPlane.Etcd = &envtest.Etcd{}
	env.ControlPlane.Etcd.Configure().Append("unsafe-no-fsync", "true")
	// Garbage collection takes a third of the start's time, and there is enough memory.
	if err := os.Setenv("GOGC", "400"); err != nil {
		return nil, fmt.Errorf("setting the environment of the control plane: %w", err)
	}
	return env, nil
}

func start() (*controlPlane, error) {
	env, err := newEnvironment()
	if err != nil {
		return nil, err
	}
	env.CRDDirectoryPaths = []string{filepath.Join(Root(), "config", "crd", "bases")}
	env.ErrorIfCRDPathMissing = true
	config, err := env.Start()
	if err != nil {
		return nil, fmt.Errorf("starting the control plane: %w", err)
	}
	config.QPS, config.Burst = -1, -1
	p := &controlPlane{environment: env, config: config, store: store{env.ControlPlane.Etcd.URL}}
	if err := p.capture(); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// capture stores the initial state of the control plane.
func (p *controlPlane) capture() (err error) {
	if p.client, err = newClient(p.config, nil); err != nil {
		return err
	}
	if p.beginning, err = p.store.keys(); err != nil {
		return err
	}
	p.served, err = p.count(context.Background())
	return err
}

func newClient(config *rest.Config, mapper meta.RESTMapper) (client.WithWatch, error) {
	c, err := client.NewWithWatch(config, client.Options{Scheme: Scheme(), Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return c, nil
}

func (p *controlPlane) stop() error {
	if err := p.environment.Stop(); err != nil {
		return fmt.Errorf("stopping the control plane: %w", err)
	}
	return nil
}
