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
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/explain/facts"
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

// blindObserver: one whose role lacks the storage classes.
func (s *suite) blindObserver() fault {
	role, whole := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: observer}}, []rbacv1.PolicyRule(nil)
	change := func(ctx context.Context, rules []rbacv1.PolicyRule) error {
		role.Rules = rules
		return errors.Join(s.Client.Update(ctx, role), s.StopProcess(ctx, observer), s.StartAgain(ctx, observer))
	}
	return fault{
		name: "an observer without some of its rights",
		make: func(ctx context.Context) error {
			if err := s.Client.Get(ctx, client.ObjectKeyFromObject(role), role); err != nil {
				return err
			}
			whole = slices.Clone(role.Rules)
			return change(ctx, slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
				return slices.Contains(rule.APIGroups, storagev1.GroupName)
			}))
		},
		repair: func(ctx context.Context) error { return change(ctx, whole) },
		alerts: map[string]map[string]string{"HawserObserverBlind/warning": {"kind": facts.KindClass}},
	}
}

func (s *suite) noObserver() fault {
	return fault{
		name:   "an observer that does not run",
		make:   func(ctx context.Context) error { return s.StopProcess(ctx, observer) },
		repair: func(ctx context.Context) error { return s.StartAgain(ctx, observer) },
		alerts: map[string]map[string]string{"HawserObserverAbsent/warning": nil},
	}
}
