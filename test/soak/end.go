/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/test/system"
)

// end deletes everything in order and waits until nothing is left: first wishes, then volumes.
func (s *soak) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.Drain)
	defer cancel()
	s.say("everything is being deleted")
	for _, list := range []client.ObjectList{&corev1.PodList{}, &volumesv1alpha1.VolumeAttachmentIntentList{}} {
		if err := s.deleteAll(ctx, list,
			func(o client.Object) bool { return ours(o) && metav1.GetControllerOf(o) == nil }); err != nil {
			return err
		}
	}
	if err := s.nothing(ctx,
		leftover{"pods", &corev1.PodList{}, ours},
		leftover{"intents", &volumesv1alpha1.VolumeAttachmentIntentList{}, always},
		leftover{"entries or volumes of node states", &volumesv1alpha1.NodeVolumeStateList{}, busyState},
		leftover{"locks that move", &corev1.ConfigMapList{}, moving},
		leftover{"attachments of Hawser", &storagev1.VolumeAttachmentList{},
			func(o client.Object) bool { return !upstreamAlone(o) }},
	); err != nil {
		return err
	}
	if err := s.endUpstream(ctx); err != nil {
		return err
	}
	s.say("everything is detached")
	if err := s.deleteAll(ctx, &corev1.PersistentVolumeClaimList{}, always); err != nil {
		return err
	}
	if err := s.nothing(ctx,
		leftover{"claims", &corev1.PersistentVolumeClaimList{}, always},
		leftover{"volumes", &corev1.PersistentVolumeList{}, always},
	); err != nil {
		return err
	}
	return s.disk()
}

// upstreamTimeout is long enough for upstream's attach/detach controller. It writes the last Node whose volumesInUse it
// missed once more within this time.
const upstreamTimeout = 7 * time.Minute

// endUpstream waits until no attachment of upstream alone is left. If the controller was restarted while its attach
// failed, it may keep the attachment forever. The soak then deletes it, as an administrator would, and counts it.
func (s *soak) endUpstream(ctx context.Context) error {
	left := []leftover{
		{"attachments", &storagev1.VolumeAttachmentList{}, always},
		{"lists of Nodes", &corev1.NodeList{}, busyNode},
	}
	patient, cancel := context.WithTimeout(ctx, upstreamTimeout)
	defer cancel()
	err := s.nothing(patient, left...)
	if err == nil || s.Mode != controller.Coexist || ctx.Err() != nil {
		return err
	}
	kept, err := s.list(ctx, &storagev1.VolumeAttachmentList{}, always)
	if err != nil {
		return err
	}
	for _, o := range kept {
		if !upstreamAlone(o) {
			return fmt.Errorf("left: %s %s", o.GetName(), show(o))
		}
		s.progress("upstream keeps an attachment that nothing needs: %s %s", o.GetName(), show(o))
	}
	s.judge.keptByUpstream(len(kept))
	if err := s.deleteAll(ctx, &storagev1.VolumeAttachmentList{}, upstreamAlone); err != nil {
		return err
	}
	return s.nothing(ctx, left...)
}

// upstreamAlone reports whether upstream's attach/detach controller created the attachment and Hawser never wrote it.
func upstreamAlone(o client.Object) bool {
	by := map[string]bool{}
	for _, f := range o.GetManagedFields() {
		by[f.Manager] = true
	}
	return by[system.ControllerManager] && !by[system.Manager]
}

// nothing waits until none of these leftovers exists.
func (s *soak) nothing(ctx context.Context, all ...leftover) error {
	for _, left := range all {
		if err := s.none(ctx, left); err != nil {
			return err
		}
	}
	return nil
}

func (s *soak) deleteAll(ctx context.Context, list client.ObjectList, which func(client.Object) bool) error {
	objects, err := s.list(ctx, list, which)
	for _, o := range objects {
		err = errors.Join(err, client.IgnoreNotFound(s.sys.Client.Delete(ctx, o)))
	}
	return err
}

func (s *soak) list(ctx context.Context, list client.ObjectList,
	which func(client.Object) bool) ([]client.Object, error) {
	if err := s.sys.Client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing %T: %w", list, err)
	}
	var objects []client.Object
	err := meta.EachListItem(list, func(o runtime.Object) error {
		if object := o.(client.Object); which(object) {
			objects = append(objects, object)
		}
		return nil
	})
	return objects, err
}

// leftover is a kind of object that must not be left.
type leftover struct {
	what string
	list client.ObjectList
	is   func(client.Object) bool
}

func always(client.Object) bool { return true }

// ours reports whether the object belongs to the soak. The agents have pods too, to which their tokens are bound.
func ours(o client.Object) bool { return o.GetNamespace() == namespace || o.GetNamespace() == crowd }

func busyState(o client.Object) bool {
	nvs := o.(*volumesv1alpha1.NodeVolumeState)
	return len(nvs.Spec.Attachments)+len(nvs.Status.Volumes) > 0
}

func busyNode(o client.Object) bool {
	node := o.(*corev1.Node)
	return len(node.Status.VolumesAttached)+len(node.Status.VolumesInUse) > 0
}

func moving(o client.Object) bool {
	locks, err := exclusive.Locks(o.(*corev1.ConfigMap))
	for _, lock := range locks {
		if lock.MovedFrom != "" {
			return true
		}
	}
	return err != nil
}

// none waits, with a watch, until no object of a kind is left.
func (s *soak) none(ctx context.Context, left leftover) error {
	for ctx.Err() == nil {
		watcher, err := s.sys.Client.Watch(ctx, left.list)
		if err != nil {
			return fmt.Errorf("watching %s: %w", left.what, err)
		}
		for open := true; open; _, open = <-watcher.ResultChan() {
			objects, err := s.list(ctx, left.list, left.is)
			if err == nil && len(objects) == 0 {
				watcher.Stop()
				return nil
			}
		}
		watcher.Stop()
	}
	objects, err := s.list(context.WithoutCancel(ctx), left.list, left.is)
	found := fmt.Errorf("%d %s are left", len(objects), left.what)
	for _, o := range objects {
		found = errors.Join(found, fmt.Errorf("left: %s %s", o.GetName(), show(o)))
	}
	return errors.Join(found, err)
}

func show(o client.Object) string {
	switch o := o.(type) {
	case *volumesv1alpha1.VolumeAttachmentIntent:
		return fmt.Sprintf("on %s, deleted %v: %+v", o.Spec.NodeName, o.DeletionTimestamp, o.Status.Conditions)
	case *volumesv1alpha1.NodeVolumeState:
		return fmt.Sprintf("%+v %+v", o.Spec, o.Status)
	case *storagev1.VolumeAttachment:
		return fmt.Sprintf("on %s, deleted %v: %+v, finalizers %v", o.Spec.NodeName, o.DeletionTimestamp,
			o.Status, o.Finalizers)
	case *corev1.Node:
		return fmt.Sprintf("attached %v, in use %v", o.Status.VolumesAttached, o.Status.VolumesInUse)
	case *corev1.Pod:
		return fmt.Sprintf("on %s, deleted %v", o.Spec.NodeName, o.DeletionTimestamp)
	}
	return ""
}

// disk lists what is left on the machine: mounts, devices, records of agents and kubelets.
func (s *soak) disk() error {
	var wrong []error
	mounts, err := system.MountsBelow(s.sys.Dir)
	if len(mounts) > 0 {
		wrong = append(wrong, fmt.Errorf("still mounted: %v", mounts))
	}
	devices, err2 := system.LoopDevicesOn(s.sys.Dir)
	if len(devices) > 0 {
		wrong = append(wrong, fmt.Errorf("devices are left: %v", devices))
	}
	for _, node := range s.sys.Nodes {
		for _, pattern := range []string{
			filepath.Join(s.sys.AgentRoot(node), "volumes", "*"),
			filepath.Join(s.sys.KubeletDir(node), "pods", "*", "volumes", "kubernetes.io~csi", "*"),
			filepath.Join(s.sys.KubeletDir(node), "plugins", "kubernetes.io", "csi", "*", "*", "vol_data.json"),
		} {
			paths, err := filepath.Glob(pattern)
			if len(paths) > 0 || err != nil {
				wrong = append(wrong, fmt.Errorf("left on disk: %v, %w", paths, err))
			}
		}
	}
	return errors.Join(append(wrong, err, err2)...)
}

// stopAll ends every process and keeps the directory.
func stopAll(sys *system.System) error {
	out, err := exec.Command(filepath.Join(sys.Bin, "localcluster"), "down", "--dir", sys.Dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("stopping: %w: %s", err, out)
	}
	return nil
}
