/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package pods

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/test/bench/attach/stage"
	"github.com/hawser-io/hawser/test/system"
)

// longest is how long one pod may take. Upstream's retries have intervals of up to two minutes.
const longest = 5 * time.Minute

func (b *bench) await(ctx context.Context, pod *corev1.Pod, done func(*corev1.Pod) bool) error {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	_, err := system.Await(ctx, b.System, &corev1.PodList{}, client.ObjectKeyFromObject(pod), done)
	return err
}

func running(pod *corev1.Pod) bool {
	return pod != nil && len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].State.Running != nil
}

// start creates a pod and returns how long it took until its container ran.
func (b *bench) start(ctx context.Context, k kind, node, claim string) (*corev1.Pod, time.Duration, error) {
	pod := k.pod(node, claim)
	begin := time.Now()
	if err := b.Client.Create(ctx, pod); err != nil {
		return nil, 0, fmt.Errorf("creating a pod with %s: %w", k.name, err)
	}
	err := b.await(ctx, pod, running)
	return pod, time.Since(begin), err
}

// end deletes a pod, and waits until it is gone.
func (b *bench) end(ctx context.Context, pod *corev1.Pod) error {
	if err := b.Client.Delete(ctx, pod); err != nil {
		return fmt.Errorf("deleting pod %s: %w", pod.Name, err)
	}
	return b.await(ctx, pod, func(p *corev1.Pod) bool { return p == nil || p.UID != pod.UID })
}

// alone measures one pod at a time, the kinds in turn.
func (b *bench) alone(ctx context.Context) error {
	// Each kind once, so that no program does anything for the first time.
	if err := b.turn(ctx, false); err != nil {
		return err
	}
	for range b.rounds {
		if err := b.turn(ctx, true); err != nil {
			return err
		}
	}
	for _, k := range []kind{noVolume, emptyVolume, published, claimed, upstream} {
		b.say("one pod at a time, %-9s created -> running  %s", k.name, times(b.of(k).running))
	}
	for _, k := range []kind{noVolume, claimed} {
		if err := b.countWrites(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) turn(ctx context.Context, counts bool) error {
	for _, k := range []kind{noVolume, emptyVolume, published, claimed, upstream} {
		if err := b.apart(ctx); err != nil {
			return err
		}
		took, err := b.life(ctx, k)
		if err != nil {
			return err
		}
		if r := b.of(k); counts {
			r.running = append(r.running, took)
		}
	}
	return nil
}

// life is the whole life of one pod, until its volume is attached nowhere.
func (b *bench) life(ctx context.Context, k kind) (took time.Duration, err error) {
	claim := claimName(0)
	if k.name == published.name {
		intent, err := b.publish(ctx, claim)
		if err != nil {
			return 0, err
		}
		defer func() {
			if err == nil {
				err = b.release(ctx, intent)
			}
		}()
	}
	pod, took, err := b.start(ctx, k, nodeA, claim)
	if err != nil {
		return 0, err
	}
	if err := b.end(ctx, pod); err != nil {
		return 0, err
	}
	if k.name == published.name {
		return took, nil
	}
	return took, b.detached(ctx)
}

// moves measures how long a volume takes from a pod that is deleted to the next one, on the other node.
func (b *bench) moves(ctx context.Context) error {
	for _, k := range []kind{claimed, upstream} {
		for range max(1, b.rounds/4) {
			if err := b.apart(ctx); err != nil {
				return err
			}
			if err := b.move(ctx, k); err != nil {
				return err
			}
		}
		b.say("pod deleted -> the next one runs on another node, %-9s %s", k.name, times(b.of(k).moved))
	}
	return nil
}

func (b *bench) move(ctx context.Context, k kind) error {
	first, _, err := b.start(ctx, k, nodeA, claimName(0))
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := b.Client.Delete(ctx, first); err != nil {
		return fmt.Errorf("deleting pod %s: %w", first.Name, err)
	}
	second, _, err := b.start(ctx, k, nodeB, claimName(0))
	if err != nil {
		return err
	}
	r := b.of(k)
	r.moved = append(r.moved, time.Since(begin))
	if err := b.end(ctx, second); err != nil {
		return err
	}
	return b.detached(ctx)
}

// together measures many pods at once on one node, each with a claim of its own.
func (b *bench) together(ctx context.Context) error {
	for _, k := range []kind{noVolume, emptyVolume, claimed, upstream} {
		if err := b.apart(ctx); err != nil {
			return err
		}
		pods := make([]*corev1.Pod, b.mass)
		begin := time.Now()
		err := b.each(ctx, func(ctx context.Context, i int) (err error) {
			pods[i], _, err = b.start(ctx, k, nodeA, claimName(i))
			return err
		})
		if err != nil {
			return err
		}
		b.of(k).mass = time.Since(begin)
		b.say("%d pods at once, %-9s all running after %.1f s", b.mass, k.name, b.of(k).mass.Seconds())
		if err := b.each(ctx, func(ctx context.Context, i int) error { return b.end(ctx, pods[i]) }); err != nil {
			return err
		}
		if err := b.detached(ctx); err != nil {
			return err
		}
	}
	return nil
}

// replaced counts the writes for pods with claims in attach mode Replace.
func (b *bench) replaced(ctx context.Context) error {
	if err := b.SetAttachDetach(ctx, false); err != nil {
		return err
	}
	if err := b.SetManagerArgs(ctx, "--attach-mode=Replace"); err != nil {
		return err
	}
	if _, err := b.life(ctx, replaced); err != nil {
		return err
	}
	return b.countWrites(ctx, replaced)
}

// late is how long writes after the end of a pod are waited for. Delayed writes take at most a second.
const late = 3 * time.Second

// countWrites counts what all programs write to the API for a pod, from its creation to the end of its attachment.
func (b *bench) countWrites(ctx context.Context, k kind) error {
	if err := stage.Pause(ctx, late); err != nil {
		return err
	}
	mark, err := b.Mark()
	if err != nil {
		return err
	}
	count := max(1, b.rounds/4)
	for range count {
		if _, err := b.life(ctx, k); err != nil {
			return err
		}
	}
	if err := stage.Pause(ctx, late); err != nil {
		return err
	}
	requests, err := b.Requests(mark)
	if err != nil {
		return err
	}
	b.of(k).count(requests, count)
	b.writeTable(k)
	return nil
}
