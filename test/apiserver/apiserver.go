/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package apiserver gives tests a real kube-apiserver and etcd with Hawser's CRDs in it.
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
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// AssetsVariable names the folder that holds kube-apiserver and etcd.
const AssetsVariable = "KUBEBUILDER_ASSETS"

// Root is the top folder of the repository.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// Scheme knows Kubernetes' own kinds and Hawser's. All tests of a process share it: making it takes long under the race detector.
var Scheme = sync.OnceValue(func() *k8sruntime.Scheme {
	scheme := k8sruntime.NewScheme()
	for _, add := range []func(*k8sruntime.Scheme) error{clientgoscheme.AddToScheme, volumesv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return scheme
})

// Start runs a control plane of the test's own and stops it when the test ends. Without
// KUBEBUILDER_ASSETS the test is left out, loudly; `make test` always sets it.
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

func needPrograms(t *testing.T) {
	t.Helper()
	if os.Getenv(AssetsVariable) == "" {
		t.Skipf("LEFT OUT (needs %s, a folder with kube-apiserver and etcd; make test builds it)", AssetsVariable)
	}
}

// controlPlane is one etcd with one kube-apiserver.
type controlPlane struct {
	environment *envtest.Environment
	config      *rest.Config
	client      client.WithWatch
	store       store
	// beginning has the keys of the store with their versions, and served what the API server told of them, before any test.
	beginning map[string]string
	served    []int
}

func start() (*controlPlane, error) {
	env := &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join(Root(), "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
		Scheme:                Scheme(),
		// A machine that tests much at once may take long.
		ControlPlaneStartTimeout: 2 * time.Minute,
	}
	// The disk of a test machine may be slow; durability of the test's own etcd is of no use.
	env.ControlPlane.GetAPIServer().Configure().Append("runtime-config", "api/all=true")
	env.ControlPlane.Etcd = &envtest.Etcd{}
	env.ControlPlane.Etcd.Configure().Append("unsafe-no-fsync", "true")
	// Collecting garbage is a third of what a start takes, and there is memory enough.
	if err := os.Setenv("GOGC", "400"); err != nil {
		return nil, fmt.Errorf("setting the environment of the control plane: %w", err)
	}
	config, err := env.Start()
	if err != nil {
		return nil, fmt.Errorf("starting the control plane: %w", err)
	}
	config.QPS, config.Burst = -1, -1
	p := &controlPlane{environment: env, config: config, store: store{env.ControlPlane.Etcd.URL}}
	if err := p.look(); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// look keeps how the control plane is in the beginning.
func (p *controlPlane) look() (err error) {
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
