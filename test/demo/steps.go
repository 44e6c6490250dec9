/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/cli"
	"github.com/hawser-io/hawser/test/system"
)

const (
	dataOnA, rawOnA, logsOnA = "data-on-node-a", "raw-on-node-a", "logs-on-node-a"
	dataOnB                  = "data-on-node-b"
	greeting                 = "written on node-a\n"
)

// onNodeA are the samples' intents.
var onNodeA = []string{dataOnA, rawOnA, logsOnA}

func (d *demo) publish(ctx context.Context) error {
	if _, err := d.Kubectl(ctx, "apply", "-k", sample("")); err != nil {
		return err
	}
	for _, name := range onNodeA {
		intent, err := d.AwaitReady(ctx, namespace, name)
		if err != nil {
			return err
		}
		d.sayTimeline(intent)
	}
	return d.shown(ctx, nodeA, len(onNodeA))
}

// shown waits until the counts of a node's state include the publications. The agent may write them a second later.
func (d *demo) shown(ctx context.Context, node string, published int) error {
	_, err := d.AwaitNode(ctx, node, func(nvs *volumesv1alpha1.NodeVolumeState) bool {
		return nvs != nil && nvs.Status.Summary != nil && int(nvs.Status.Summary.Published) == published
	})
	return err
}

// sayTimeline prints how long each step of an intent took.
func (d *demo) sayTimeline(intent *volumesv1alpha1.VolumeAttachmentIntent) {
	t := intent.Status.Timeline
	if t == nil || t.Requested == nil || t.Attached == nil || t.Published == nil {
		return
	}
	_, _ = fmt.Fprintf(d.out, "   %s: attached after %d ms, published after %d ms at %s\n", intent.Name,
		t.Attached.Sub(t.Requested.Time).Milliseconds(), t.Published.Sub(t.Requested.Time).Milliseconds(), intent.Status.Path)
}

func (d *demo) writeAndRead(context.Context) error {
	file := filepath.Join(d.PublishedPath(nodeA, namespace, dataOnA), "greeting")
	if err := writeSynced(file, []byte(greeting)); err != nil {
		return err
	}
	if err := sameContent(file, []byte(greeting)); err != nil {
		return err
	}
	return writeBlock(d.PublishedPath(nodeA, namespace, rawOnA))
}

// writeBlock writes to a device node and reads the same bytes back.
func writeBlock(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("reading the type of the block volume: %w", err)
	}
	if info.Mode()&os.ModeDevice == 0 {
		return fmt.Errorf("%s is not a device node: %s", path, info.Mode())
	}
	device, err := os.OpenFile(path, os.O_RDWR|os.O_SYNC, 0)
	if err != nil {
		return fmt.Errorf("opening the block volume: %w", err)
	}
	defer func() { _ = device.Close() }() // the writes are complete because of O_SYNC
	want := bytes.Repeat([]byte("hawser.."), 512)
	if _, err := device.WriteAt(want, 1<<20); err != nil {
		return fmt.Errorf("writing the block volume: %w", err)
	}
	got := make([]byte, len(want))
	if _, err := device.ReadAt(got, 1<<20); err != nil {
		return fmt.Errorf("reading the block volume: %w", err)
	}
	if !bytes.Equal(got, want) {
		return errors.New("the block volume returned other bytes than were written")
	}
	return nil
}

// expand grows every kind of volume while it is in use.
func (d *demo) expand(ctx context.Context) error {
	growing := []struct {
		claim, intent, to string
		size              func(string) (int64, error)
	}{{"logs", logsOnA, "448Mi", sizeOf}, {"raw", rawOnA, "96Mi", deviceSize}}
	if canGrowExt4() {
		growing = append(growing, struct {
			claim, intent, to string
			size              func(string) (int64, error)
		}{"data", dataOnA, "96Mi", sizeOf})
	} else {
		_, _ = fmt.Fprintln(d.out,
			"   LEFT OUT: growing the mounted ext4 needs CAP_SYS_RESOURCE, which this machine's root does not have")
	}
	for _, g := range growing {
		path := d.PublishedPath(nodeA, namespace, g.intent)
		before, err := g.size(path)
		if err != nil {
			return err
		}
		if err := d.grow(ctx, g.claim, g.intent, g.to); err != nil {
			return err
		}
		after, err := g.size(path)
		if err != nil {
			return err
		}
		if after <= before {
			return fmt.Errorf("%s did not grow: %d bytes before, %d after", g.claim, before, after)
		}
		_, _ = fmt.Fprintf(d.out, "   %s: %d MiB before, %d MiB after\n", g.claim, before>>20, after>>20)
	}
	return nil
}

// grow requests a larger claim and waits until intent and claim report that the node sees it.
func (d *demo) grow(ctx context.Context, claim, intent, to string) error {
	patch := fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":%q}}}}`, to)
	if _, err := d.Kubectl(ctx, "patch", "pvc", claim, "-n", namespace, "-p", patch); err != nil {
		return err
	}
	want := resource.MustParse(to)
	if _, err := d.AwaitIntent(ctx, namespace, intent, func(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return intent != nil && intent.Status.Capacity != nil && intent.Status.Capacity.Cmp(want) >= 0 &&
			meta.IsStatusConditionTrue(intent.Status.Conditions, volumesv1alpha1.ConditionExpanded)
	}); err != nil {
		return err
	}
	_, err := d.AwaitClaim(ctx, namespace, claim, func(pvc *corev1.PersistentVolumeClaim) bool {
		return pvc != nil && pvc.Status.Capacity.Storage().Cmp(want) >= 0
	})
	return err
}

// canGrowExt4 reports whether the kernel allows this process to grow a mounted ext4, which needs CAP_SYS_RESOURCE.
func canGrowExt4() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// deviceSize of a block volume in bytes.
func deviceSize(path string) (int64, error) {
	device, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("opening the block volume: %w", err)
	}
	defer func() { _ = device.Close() }() // only read
	size, err := device.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, fmt.Errorf("reading the size of the block volume: %w", err)
	}
	return size, nil
}

func (d *demo) killAgent(ctx context.Context) error {
	var err error
	if d.agentSince, err = d.AgentSince(ctx, nodeA); err != nil {
		return err
	}
	if d.mounts, err = system.MountIDs(d.Dir); err != nil {
		return err
	}
	if err := d.Kill(system.Agent(nodeA)); err != nil {
		return err
	}
	return d.sameMounts()
}

func (d *demo) restartAgent(ctx context.Context) error {
	if err := d.StartAgent(ctx, nodeA); err != nil {
		return err
	}
	if err := d.AwaitAgent(ctx, nodeA, d.agentSince); err != nil {
		return err
	}
	for _, name := range onNodeA {
		if _, err := d.AwaitReady(ctx, namespace, name); err != nil {
			return err
		}
	}
	return d.sameMounts()
}

// sameMounts fails unless the mounts are exactly those from before.
func (d *demo) sameMounts() error {
	now, err := system.MountIDs(d.Dir)
	if err != nil {
		return err
	}
	for path, id := range d.mounts {
		if now[path] != id {
			return fmt.Errorf("%s was unmounted", path)
		}
	}
	if len(now) != len(d.mounts) {
		return fmt.Errorf("there were %d mounts, now there are %d", len(d.mounts), len(now))
	}
	_, _ = fmt.Fprintf(d.out, "   all %d mounts are still the same\n", len(now))
	return nil
}

func (d *demo) contend(ctx context.Context) error {
	if _, err := d.Kubectl(ctx, "apply", "-k", sample("move")); err != nil {
		return err
	}
	intent, err := d.AwaitIntent(ctx, namespace, dataOnB,
		system.HasReason(volumesv1alpha1.ConditionReady, volumesv1alpha1.ReasonVolumeInUse))
	if err != nil {
		return err
	}
	c := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionReady)
	_, _ = fmt.Fprintf(d.out, "   %s: %s\n", c.Reason, c.Message)
	return d.why(ctx, dataOnB, c.Reason)
}

// why prints what the plugin explains about an intent, which has to be this reason.
func (d *demo) why(ctx context.Context, intent, reason string) error {
	return d.whyOf(ctx, "intent", intent, reason)
}

// whyOf is why about an object of that kind.
func (d *demo) whyOf(ctx context.Context, kind, name, reason string) error {
	var stdout, stderr bytes.Buffer
	exit := cli.Run(ctx, []string{"why", kind, name, "-n", namespace, "--kubeconfig", d.Kubeconfig()},
		genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &stdout, ErrOut: &stderr})
	_, _ = fmt.Fprintf(d.out, "\n$ kubectl hawser why %s %s -n %s\n%s\n", kind, name, namespace, stdout.String())
	if exit != cli.Findings || !strings.Contains(stdout.String(), reason) {
		return fmt.Errorf("kubectl hawser why %s %s: exit code %d, want %d and reason %s: %s", kind, name, exit,
			cli.Findings, reason, stderr.String())
	}
	return nil
}

func (d *demo) move(ctx context.Context) error {
	if _, err := d.Kubectl(ctx, "delete", "vai", dataOnA, "-n", namespace); err != nil {
		return err
	}
	if _, err := d.AwaitReady(ctx, namespace, dataOnB); err != nil {
		return err
	}
	return sameContent(filepath.Join(d.PublishedPath(nodeB, namespace, dataOnB), "greeting"), []byte(greeting))
}

func (d *demo) remove(ctx context.Context) error {
	for _, args := range [][]string{
		{"delete", "vai", "--all", "-n", namespace},
		{"delete", "pvc", "--all", "-n", namespace},
	} {
		if _, err := d.Kubectl(ctx, args...); err != nil {
			return err
		}
	}
	var attachments storagev1.VolumeAttachmentList
	if err := d.Client.List(ctx, &attachments); err != nil {
		return fmt.Errorf("listing attachments: %w", err)
	}
	for i := range attachments.Items {
		if err := d.AwaitAttachmentGone(ctx, attachments.Items[i].Name); err != nil {
			return err
		}
	}
	if _, err := d.Kubectl(ctx, "wait", "--for=delete", "pv", "--all", "--timeout=60s"); err != nil {
		return err
	}
	return d.nothingLeft(ctx)
}

// nothingLeft fails when a mount, a loop device, an entry or a finalizer is left.
func (d *demo) nothingLeft(ctx context.Context) error {
	for _, node := range []string{nodeA, nodeB} {
		if _, err := d.AwaitNode(ctx, node, func(nvs *volumesv1alpha1.NodeVolumeState) bool {
			return nvs != nil && len(nvs.Spec.Attachments) == 0 && len(nvs.Status.Volumes) == 0
		}); err != nil {
			return err
		}
	}
	mounts, err := system.MountsBelow(d.Dir)
	if err != nil {
		return err
	}
	loops, err := system.LoopDevicesOn(d.Dir)
	if err != nil {
		return err
	}
	if len(mounts)+len(loops) > 0 {
		return fmt.Errorf("left behind: mounts %v, loop devices %v", mounts, loops)
	}
	_, _ = fmt.Fprintln(d.out, "   no mount, loop device, VolumeAttachment, volume, claim or finalizer is left")
	return nil
}

func writeSynced(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_SYNC, 0o644)
	if err != nil {
		return fmt.Errorf("creating %s: %w", path, err)
	}
	_, err = file.Write(content)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

func sameContent(path string, want []byte) error {
	got, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading back: %w", err)
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%s holds %q, want %q", path, got, want)
	}
	return nil
}

// sizeOf a mounted filesystem in bytes.
func sizeOf(path string) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return 0, fmt.Errorf("reading the size of %s: %w", path, err)
	}
	return int64(fs.Blocks) * fs.Bsize, nil
}
