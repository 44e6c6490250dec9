/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package alerts

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/system"
)

// observer is the process, and the account, its namespace and its role.
const observer = "hawser-observer"

// startObserver runs the observer with the rights of its account.
func (s *suite) startObserver(ctx context.Context) error {
	if _, err := s.Kubectl(ctx, "apply", "-k", filepath.Join(apiserver.Root(), "config", "observer")); err != nil {
		return err
	}
	config, err := clientcmd.LoadFromFile(s.Kubeconfig())
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	for _, user := range config.AuthInfos {
		user.Impersonate = "system:serviceaccount:" + observer + ":" + observer
		user.ImpersonateGroups = []string{"system:serviceaccounts", "system:serviceaccounts:" + observer,
			"system:authenticated"}
	}
	kubeconfig := s.file(observer + ".kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		return fmt.Errorf("writing the kubeconfig of the observer: %w", err)
	}
	return s.Run(ctx, observer, filepath.Join(s.Bin, system.Manager), "--observe", "--kubeconfig="+kubeconfig,
		"--metrics-bind-address="+s.addresses[observer], "--health-probe-bind-address=0")
}

// blindObserver: an observer without its role, which has never examined the cluster.
func (s *suite) blindObserver() fault {
	removed := s.removed("an observer without rights", &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{
		Name: observer}}, map[string]map[string]string{
		"HawserObserverBlind/warning":  {"kind": "cluster"},
		"HawserObserverAbsent/warning": nil,
	})
	remove := removed.make
	removed.make = func(ctx context.Context) error {
		return errors.Join(remove(ctx), s.StopProcess(ctx, observer), s.StartAgain(ctx, observer))
	}
	return removed
}
