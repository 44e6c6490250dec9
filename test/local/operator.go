/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/system"
)

// installTimeout is how long the operator may take to install manager and agents.
const installTimeout = 3 * time.Minute

// startOperator starts a cluster with real kubelets and installs Hawser as docs/install.md does, from the images that
// make images has written. After an error it stops what it has started.
func startOperator(ctx context.Context, options system.Options) (*system.System, error) {
	program, err := system.BuildStatic(ctx, "./test/kubelet/cmd/program")
	if err != nil {
		return nil, err
	}
	options.ContainerProgram, options.KubeletDefaults, options.OnlyUpstream = program, true, true
	sys, err := system.Up(ctx, options)
	if err != nil {
		return nil, err
	}
	if err := installOperator(ctx, sys); err != nil {
		return nil, errors.Join(err, sys.Down(context.WithoutCancel(ctx)))
	}
	return sys, nil
}

func installOperator(ctx context.Context, sys *system.System) error {
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	for _, node := range sys.Nodes {
		if err := sys.ImportImages(ctx, node, filepath.Join(apiserver.Root(), ".cache", "images")); err != nil {
			return err
		}
	}
	if err := errors.Join(sys.ShareKubeletDir(ctx, nodeB, nodeA), sys.PlayNetwork(ctx, true)); err != nil {
		return err
	}
	// All agents expect the kubelet's directory at one path. The managers would use the same ports of one node.
	spec, err := json.Marshal(volumesv1alpha1.VolumeManagerSpec{KubeletRoot: sys.KubeletDir(nodeA),
		Manager: volumesv1alpha1.ManagerWorkload{Replicas: ptr.To[int32](1)}})
	if err != nil {
		return fmt.Errorf("writing the spec of the VolumeManager: %w", err)
	}
	if err := system.Overlay(sys.Dir, string(spec)); err != nil {
		return err
	}
	for _, command := range [][]string{
		{"apply", "-k", sys.Dir},
		{"wait", "crd/volumemanagers.volumes.hawser.io", "--for=condition=Established"},
		{"wait", "hvm/cluster", "--for=create", "--timeout=2m"},
		{"wait", "hvm/cluster", "--for=condition=Available", "--timeout=3m"},
		{"wait", "hvm/cluster", "--for=condition=Progressing=False", "--timeout=3m"},
	} {
		if _, err := sys.Kubectl(ctx, command...); err != nil {
			return err
		}
	}
	return nil
}
