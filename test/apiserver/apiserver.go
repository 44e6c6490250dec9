/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package apiserver gives tests a real kube-apiserver and etcd with Hawser's CRDs in it.
package apiserver

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

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

// Scheme knows Kubernetes' own kinds and Hawser's.
func Scheme() *k8sruntime.Scheme {
	scheme := k8sruntime.NewScheme()
	for _, add := range []func(*k8sruntime.Scheme) error{clientgoscheme.AddToScheme, volumesv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return scheme
}

// Start runs a control plane of the test's own and stops it when the test ends. Without
// KUBEBUILDER_ASSETS the test is left out, loudly; `make test` always sets it.
func Start(t *testing.T) (*rest.Config, client.WithWatch) {
	t.Helper()
	if os.Getenv(AssetsVariable) == "" {
		t.Skipf("LEFT OUT (needs %s, a folder with kube-apiserver and etcd; make test builds it)", AssetsVariable)
	}
	env := &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join(Root(), "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
		Scheme:                Scheme(),
	}
	// The disk of a test machine may be slow; durability of the test's own etcd is of no use.
	env.ControlPlane.GetAPIServer().Configure().Append("runtime-config", "api/all=true")
	env.ControlPlane.Etcd = &envtest.Etcd{}
	env.ControlPlane.Etcd.Configure().Append("unsafe-no-fsync", "true")
	cfg, err := env.Start()
	if err != nil {
		t.Fatalf("starting the control plane: %v", err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Errorf("stopping the control plane: %v", err)
		}
	})
	cfg.QPS, cfg.Burst = -1, -1
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatalf("creating a client: %v", err)
	}
	return cfg, c
}
