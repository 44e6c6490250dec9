/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package pods

import (
	"context"
	"fmt"
	"path"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/test/system"
)

// hotplug is a directory of intents.
var hotplug = kind{"{intents}", inline(volumesv1alpha1.AttributeIntents)}

const dataDir = "/data"

// plugged measures how long it takes from the creation of an intent until a running pod, whose directory selects it,
// has its volume mounted.
func (b *bench) plugged(ctx context.Context) error {
	pod := hotplug.pod(nodeA, "bench=hotplug")
	pod.Spec.Containers[0].VolumeMounts[0].MountPropagation = ptr.To(corev1.MountPropagationHostToContainer)
	if err := b.Client.Create(ctx, pod); err != nil {
		return fmt.Errorf("creating a pod with %s: %w", hotplug.name, err)
	}
	if err := b.await(ctx, pod, running); err != nil {
		return err
	}
	pid, err := system.ContainerProcess(pod, dataDir)
	if err != nil {
		return err
	}
	for range b.rounds {
		took, err := b.plug(ctx, pid)
		if err != nil {
			return err
		}
		r := b.of(hotplug)
		r.plugged = append(r.plugged, took)
	}
	b.say("intent created -> its directory seen by the running pod that selects it  %s", times(b.of(hotplug).plugged))
	return b.end(ctx, pod)
}

// plug creates an intent, and deletes it once the process has its volume.
func (b *bench) plug(ctx context.Context, pid int) (time.Duration, error) {
	table := fmt.Sprintf("/proc/%d/mountinfo", pid)
	watcher := mount.NewWatcher(table)
	watching, end := context.WithTimeout(ctx, longest)
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- watcher.Start(watching) }()
	<-watcher.Changes() // the watch has begun
	intent := newIntent(claimName(0), nodeA)
	intent.Labels = map[string]string{"bench": "hotplug"}
	begin := time.Now()
	if err := b.Client.Create(ctx, intent); err != nil {
		return 0, fmt.Errorf("creating intent %s: %w", intent.Name, err)
	}
	for {
		select {
		case <-watcher.Changes():
		case err := <-ended:
			return 0, fmt.Errorf("intent %s did not appear in the directory: %w", intent.Name, err)
		}
		mounts, err := mount.ReadTable(table)
		if err != nil {
			return 0, err
		}
		if slices.ContainsFunc(mounts.Entries(), func(e mount.Entry) bool {
			return e.Path == path.Join(dataDir, intent.Name)
		}) {
			took := time.Since(begin)
			return took, b.release(ctx, intent)
		}
	}
}
