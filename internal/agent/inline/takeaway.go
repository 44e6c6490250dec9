/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inline

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/mount"
)

// ReasonVolumeHeld is the reason of the event on a pod that keeps a volume which its directory shows no more.
const ReasonVolumeHeld = "VolumeHeld"

// clear takes the bind away from its place, unless something uses it or may use it.
func (p *Plugin) clear(ctx context.Context, b record.PodBind) error {
	p.Step("before place is cleared")
	place, err := placeOf(b)
	if err != nil {
		return err
	}
	if err = (directories{p}).checkKernelAnswers(ctx, b); err == nil {
		err = p.Mounts.ClearPlace(ctx, place)
	}
	if err != nil {
		return err
	}
	p.Step("after place is cleared")
	p.Log.Info("volume taken out of the directory of a pod", "pod", b.Pod, "intent", b.Intent, "volume", b.VolumeName)
	return p.forget(b)
}

func placeOf(b record.PodBind) (mount.Place, error) {
	volume, known := b.Volume()
	if !known {
		return mount.Place{}, fmt.Errorf("clearing %s: its record has no filesystem: %q", b.Target, b.Source)
	}
	return mount.Place{Directory: b.Directory, Name: filepath.Base(b.Target), Major: volume.Major,
		Minor: volume.Minor}, nil
}

// checkKernelAnswers fails where the kernel's answer to an unmount does not cover all uses of the volume by the pod.
// Only the end of the pod shows the end of its use then. The pod is read each time: a container may have been added.
func (p directories) checkKernelAnswers(ctx context.Context, b record.PodBind) error {
	of := b.Pod
	// The directory's record has the pod's name, also where that of the bind was lost.
	if directory, known := p.Pods.Get(b.Directory); known {
		of = directory.Pod
	}
	switch {
	case !p.Intents.OwnDevice(b):
		return untilEnd(of, nil, "the volume has no block device of its own that the kernel could be asked about")
	case of.Name == "":
		return untilEnd(of, nil, "the agent has lost the record of its directory")
	}
	pod, err := p.livePod(ctx, of)
	switch {
	case err != nil:
		return fmt.Errorf("how pod %s mounts the volume is not known: %w", of, err)
	case pod == nil:
		return untilEnd(of, nil, "it is gone from the API, and the kubelet has yet to unmount its volumes")
	}
	if because := unreached(pod, filepath.Base(filepath.Dir(b.Directory))); because != "" {
		return untilEnd(of, pod, because)
	}
	return nil
}

// untilEnd is the error for a volume that stays in a directory until the pod has ended. Then the kubelet has it
// unmounted, which is the event that the release of the volume waits for.
func untilEnd(of record.PodReference, pod *corev1.Pod, because string) error {
	since := ""
	if pod != nil {
		since = ", which exists since " + pod.CreationTimestamp.UTC().Format(time.RFC3339) + ","
	}
	return &failure.Problem{Reason: volumesv1alpha1.ReasonUsedByPods, AwaitsEvent: true, Message: fmt.Sprintf(
		"waiting until pod %s%s has ended: %s. The owner of the pod ends the wait by deleting it", of, since, because)}
}

// noteHeld reports, once for each cause, that a bind stays because of a process or until the end of the pod.
func (p *Plugin) noteHeld(b record.PodBind, err error) (retry time.Duration, _ error) {
	var held *mount.HeldError
	var wait *failure.Problem
	var because string
	switch {
	case errors.As(err, &held):
		because, retry = "until nothing uses it: "+held.Error(), p.holds.delay(b.Target)
		p.Held(Place{Directory: b.Directory, Intent: filepath.Base(b.Target)}, held)
	case errors.As(err, &wait):
		because = "for now: " + wait.Message
	default:
		return 0, err
	}
	if p.holds.news(b.Target, because) {
		p.event(b.Pod, operation.IntentObject(b.Intent), ReasonVolumeHeld, fmt.Sprintf("the volume of "+
			"VolumeAttachmentIntent %s/%s stays in the directory of the pod %s", b.Intent.Namespace, b.Intent.Name, because))
	}
	return retry, nil
}

// RetrySoon has a place that a process kept tried again soon, now that the process has ended.
func (p *Plugin) RetrySoon(place Place) {
	p.holds.retryNow(place.target())
	p.Enqueue(place)
}

// Withdraw takes the publication of the intent out of every directory that shows it. It ends at the first one that a
// process uses, with a *mount.HeldError that names it, or that stays until the pod has ended, with a *failure.Problem.
func (p *Plugin) Withdraw(ctx context.Context, volume string, intent volumesv1alpha1.IntentReference) error {
	for _, b := range p.Pods.OfVolume(volume) {
		if !b.HasPlace() || !b.Shows(volume, intent) {
			continue
		}
		if err := p.withdraw(ctx, b, intent); err != nil {
			return fmt.Errorf("pod %s: %w", b.Pod, err)
		}
	}
	return nil
}

func (p *Plugin) withdraw(ctx context.Context, b record.PodBind, intent volumesv1alpha1.IntentReference) error {
	unlock, err := p.targets.lock(ctx, b.Target)
	if err != nil {
		return err
	}
	defer unlock()
	volume := b.VolumeName
	b, still := p.Pods.Get(b.Target)
	if !still || !b.Shows(volume, intent) { // the place may have another volume by now
		return nil
	}
	if err := p.clear(ctx, b); err != nil {
		// ReconcilePlace tries again, and reports it on the pod.
		p.Enqueue(Place{Directory: b.Directory, Intent: filepath.Base(b.Target)})
		return err
	}
	return nil
}
