/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package volumes_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/pkg/volumes"
)

// A program creates an intent and waits until its volume is on the node.
func ExampleWaitForReady() {
	use := func(ctx context.Context, c client.WithWatch) (path string, err error) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		intent, err := volumes.WaitForReady(ctx, c, client.ObjectKey{Namespace: "shop", Name: "data-on-node-a"})
		var stalled *volumes.StalledError
		if errors.As(err, &stalled) {
			return "", fmt.Errorf("the intent has to be changed (%s): %w", stalled.Reason, err)
		}
		if err != nil {
			return "", err
		}
		return intent.Status.Path, nil
	}
	_ = use
}

// A program lists the volumes of a pod and the groups that own their files.
func ExampleVolumesOfPod() {
	list := func(ctx context.Context, c client.Client, pod *corev1.Pod) error {
		found, err := volumes.VolumesOfPod(ctx, c, pod)
		if err != nil {
			return err
		}
		for _, v := range found {
			fmt.Println(v.Name, v.Claim, v.Mode, v.Path, v.Ready)
			if v.SupplementalGroup != nil {
				fmt.Println("group", *v.SupplementalGroup)
			}
		}
		return nil
	}
	_ = list
}
