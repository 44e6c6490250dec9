/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// An operator of another project. For each of its Datasets it puts the volume of a claim on nodes, through intents of
// Hawser that the Dataset owns.
package main

import (
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "operator:", err)
		os.Exit(1)
	}
}

func run() error {
	ctrl.SetLogger(zap.New())
	scheme := runtime.NewScheme()
	addToScheme(scheme)
	if err := volumesv1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("finding the cluster: %w", err)
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		return fmt.Errorf("making the manager: %w", err)
	}
	// The controller is woken by changes of a Dataset, and of the intents that it owns.
	err = ctrl.NewControllerManagedBy(manager).For(&Dataset{}).Owns(&volumesv1alpha1.VolumeAttachmentIntent{}).
		Complete(&reconciler{Client: manager.GetClient()})
	if err != nil {
		return fmt.Errorf("making the controller: %w", err)
	}
	return manager.Start(ctrl.SetupSignalHandler())
}
