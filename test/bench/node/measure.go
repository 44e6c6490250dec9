/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/bench/attach/process"
	"github.com/hawser-io/hawser/test/system"
)

const (
	node      = "node-a"
	namespace = "default"
	class     = "bench"
)

func name(i int) string { return fmt.Sprintf("volume-%03d", i) }

// prepare creates the claims, and formats every volume by publishing it once.
func (b *bench) prepare(ctx context.Context) error {
	attach := true
	policy := storagev1.FileFSGroupPolicy
	objects := []client.Object{
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: system.DriverName},
			Spec: storagev1.CSIDriverSpec{AttachRequired: &attach, FSGroupPolicy: &policy}},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: system.DriverName},
	}
	for i := range b.mass {
		objects = append(objects, claim(i))
	}
	for _, object := range objects {
		if err := b.Client.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %s: %w", object.GetName(), err)
		}
	}
	if err := b.fresh(ctx); err != nil {
		return err
	}
	b.say("\nformatting %d volumes by publishing each once", b.mass)
	if err := b.all(ctx, b.publish); err != nil {
		return err
	}
	return b.all(ctx, b.undo)
}

// fresh measures single volumes that were never attached. Their locks are created too, which stay for later
// attachments, and they are formatted.
func (b *bench) fresh(ctx context.Context) error {
	count := min(10, b.mass-1)
	// The first volume waits for programs that have just started.
	if err := b.publish(ctx, count); err != nil {
		return err
	}
	if err := b.undo(ctx, count); err != nil {
		return err
	}
	if err := b.settled(ctx); err != nil {
		return err
	}
	var times []time.Duration
	var requests []system.Request
	for i := range count {
		mark, err := b.Mark()
		if err != nil {
			return err
		}
		begin := time.Now()
		if err := b.publish(ctx, i); err != nil {
			return err
		}
		times = append(times, time.Since(begin))
		if err := b.settled(ctx); err != nil {
			return err
		}
		asked, err := b.Requests(mark)
		if err != nil {
			return err
		}
		requests = append(requests, asked...)
	}
	b.say("\none volume at a time, never used before, so formatted too")
	b.say("  intent created -> Ready             %s", percentiles(times))
	b.requestTable("new intent to Ready, never used before", requests, count)
	for i := range count {
		if err := b.undo(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func claim(i int) *corev1.PersistentVolumeClaim {
	className := class
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name(i)},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &className,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("16Mi")}},
		},
	}
}

// publish creates an intent and waits until it is Ready.
func (b *bench) publish(ctx context.Context, i int) error {
	intent := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name(i)},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{
			NodeName: node,
			Volume: volumesv1alpha1.VolumeSource{
				PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: name(i)}},
		},
	}
	if err := b.Client.Create(ctx, intent); err != nil {
		return fmt.Errorf("creating an intent: %w", err)
	}
	_, err := b.AwaitReady(ctx, namespace, name(i))
	return err
}

// undo deletes an intent and waits until its VolumeAttachment is gone.
func (b *bench) undo(ctx context.Context, i int) error {
	intent := &volumesv1alpha1.VolumeAttachmentIntent{}
	if err := b.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name(i)}, intent); err != nil {
		return fmt.Errorf("reading an intent: %w", err)
	}
	attachment, err := b.attachmentOf(ctx, intent.Status.VolumeName)
	if err != nil {
		return err
	}
	if err := b.Client.Delete(ctx, intent); err != nil {
		return fmt.Errorf("deleting an intent: %w", err)
	}
	return b.AwaitAttachmentGone(ctx, attachment)
}

func (b *bench) attachmentOf(ctx context.Context, volume string) (string, error) {
	var list storagev1.VolumeAttachmentList
	if err := b.Client.List(ctx, &list); err != nil {
		return "", fmt.Errorf("listing attachments: %w", err)
	}
	for _, a := range list.Items {
		if a.Spec.Source.PersistentVolumeName != nil && *a.Spec.Source.PersistentVolumeName == volume {
			return a.Name, nil
		}
	}
	return "", fmt.Errorf("no attachment of %s", volume)
}

// all calls do for every volume at once.
func (b *bench) all(ctx context.Context, do func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for i := range b.mass {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// alone measures one volume at a time.
func (b *bench) alone(ctx context.Context) error {
	var up, down []time.Duration
	requests := map[string][]system.Request{}
	before, err := b.cpu()
	if err != nil {
		return err
	}
	for round := range b.rounds {
		i := round % b.mass
		for _, measured := range []struct {
			what  string
			do    func(context.Context, int) error
			times *[]time.Duration
		}{{"publish", b.publish, &up}, {"undo", b.undo, &down}} {
			mark, err := b.Mark()
			if err != nil {
				return err
			}
			begin := time.Now()
			if err := measured.do(ctx, i); err != nil {
				return err
			}
			*measured.times = append(*measured.times, time.Since(begin))
			if err := b.settled(ctx); err != nil {
				return err
			}
			asked, err := b.Requests(mark)
			if err != nil {
				return err
			}
			requests[measured.what] = append(requests[measured.what], asked...)
		}
	}
	b.say("\none volume at a time, %d rounds, formatted before", b.rounds)
	b.say("  intent created -> Ready             %s", percentiles(up))
	b.say("  intent deleted -> attachment gone   %s", percentiles(down))
	if err := b.sayCPU("both ways", before, b.rounds); err != nil {
		return err
	}
	b.requestTable("new intent to Ready, alone", requests["publish"], b.rounds)
	b.requestTable("deleted intent to nothing, alone", requests["undo"], b.rounds)
	return nil
}

// sayCPU reports the processor time that each program used for a volume since it had used that of before.
func (b *bench) sayCPU(what string, before map[string]time.Duration, volumes int) error {
	after, err := b.cpu()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		b.say("  CPU for each volume, %-14s %-22s %d ms", what, name,
			(after[name]-before[name]).Milliseconds()/int64(volumes))
	}
	return nil
}

// cpu of the programs of which a volume needs one.
func (b *bench) cpu() (map[string]time.Duration, error) {
	all := map[string]time.Duration{}
	for _, name := range []string{system.Manager, system.Attacher, system.Agent(node), system.ControllerDriver,
		system.NodeDriver(node)} {
		pid, err := b.PID(name)
		if err != nil {
			return nil, err
		}
		if all[name], err = process.CPU(pid); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// settled waits until the delayed writes (at most a second) have happened: the node's state lists the same volumes on
// both sides.
func (b *bench) settled(ctx context.Context) error {
	_, err := b.AwaitNode(ctx, node, func(nvs *volumesv1alpha1.NodeVolumeState) bool {
		staged := 0
		for _, v := range nvs.Status.Volumes {
			if v.StagedPath != "" {
				staged++
			}
		}
		return staged == len(nvs.Spec.Attachments) && nvs.Status.Summary != nil && int(nvs.Status.Summary.Attached) == staged
	})
	return err
}

// together measures many volumes at once.
func (b *bench) together(ctx context.Context) error {
	mark, err := b.Mark()
	if err != nil {
		return err
	}
	before, err := b.cpu()
	if err != nil {
		return err
	}
	begin := time.Now()
	var mutex sync.Mutex
	var times []time.Duration
	if err := b.all(ctx, func(ctx context.Context, i int) error {
		begin := time.Now()
		err := b.publish(ctx, i)
		mutex.Lock()
		defer mutex.Unlock()
		times = append(times, time.Since(begin))
		return err
	}); err != nil {
		return err
	}
	b.say("\n%d volumes at once: all Ready after %d ms", b.mass, time.Since(begin).Milliseconds())
	b.say("  intent created -> Ready             %s", percentiles(times))
	if err := b.settled(ctx); err != nil {
		return err
	}
	if err := b.sayCPU("publish", before, b.mass); err != nil {
		return err
	}
	requests, err := b.Requests(mark)
	if err != nil {
		return err
	}
	b.requestTable(fmt.Sprintf("new intent to Ready, %d at once", b.mass), requests, b.mass)
	return nil
}

// quiet counts requests while nothing changes.
func (b *bench) quiet(ctx context.Context) error {
	// The agent reads the usage of the volumes once a minute and writes it after a change, the first time always.
	if _, err := b.AwaitNode(ctx, node, func(nvs *volumesv1alpha1.NodeVolumeState) bool {
		return !slices.ContainsFunc(nvs.Status.Volumes, func(v volumesv1alpha1.NodeVolume) bool { return v.Used == nil })
	}); err != nil {
		return err
	}
	mark, err := b.Mark()
	if err != nil {
		return err
	}
	b.say("\nidle for %s with %d published volumes", b.idle, b.mass)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(b.idle):
	}
	requests, err := b.Requests(mark)
	if err != nil {
		return err
	}
	counts := map[string]int{}
	for _, r := range requests {
		if who := owner(r); who != "" {
			counts[fmt.Sprintf("%-9s %-7s %s", who, r.Verb, r.What())]++
		}
	}
	for _, line := range slices.Sorted(maps.Keys(counts)) {
		b.say("  %-50s %d", line, counts[line])
	}
	return nil
}

// unused is the memory of the programs before anything was published.
func (b *bench) unused(context.Context) error { return b.memoryWith(0) }

// memory of the programs with everything published.
func (b *bench) memory(context.Context) error { return b.memoryWith(b.mass) }

func (b *bench) memoryWith(volumes int) error {
	b.say("\nmemory with %d published volumes", volumes)
	for _, name := range []string{system.Manager, system.Agent(node)} {
		pid, err := b.PID(name)
		if err != nil {
			return err
		}
		m, err := process.MemoryOf(pid)
		if err != nil {
			return err
		}
		b.say("  %-22s resident %.0f MiB, of which anonymous %.0f MiB, peak %.0f MiB", name, mebibytes(m.Resident),
			mebibytes(m.Anonymous), mebibytes(m.Peak))
	}
	return nil
}

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }

func (b *bench) release(ctx context.Context) error {
	begin := time.Now()
	if err := b.all(ctx, b.undo); err != nil {
		return err
	}
	b.say("\n%d intents deleted at once: all attachments gone after %d ms", b.mass, time.Since(begin).Milliseconds())
	return nil
}
