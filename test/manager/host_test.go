/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/status"
)

const byAgent, byKubelet = "the agent", "the kubelet"

// host is a node with an agent and a kubelet that follow the rules. What they have mounted the mountChecker knows.
// Each runs by itself, so their steps interleave.
type host struct {
	*testing.T
	client client.WithWatch
	name   string
	mounts *mountChecker
	// random is the kubelet's.
	random *rand.Rand
	// uses are the attachments that the agent has in use, by volume.
	uses     map[string]types.UID
	renewals events
	// poke each to reconcile again.
	pokeAgent, pokeKubelet chan struct{}
}

// host makes a managed Node with agent and kubelet, which run until the test ends.
func (w *world) host(t *testing.T, name string, real *mountChecker, seed uint64) *host {
	t.Helper()
	w.bareNode(t, name)
	w.manageNode(t, name, "true")
	w.renew(t, name, 3600)
	h := &host{
		T: t, client: w.client, name: name, mounts: real, uses: map[string]types.UID{},
		pokeAgent: make(chan struct{}, 1), pokeKubelet: make(chan struct{}, 1),
	}
	named, bound := client.MatchingFields{"metadata.name": name}, client.MatchingFields{"spec.nodeName": name}
	w.keepRenewingAnd(t, name, h.renewals.add)
	h.random = rand.New(rand.NewPCG(seed, 2))
	h.run(rand.New(rand.NewPCG(seed, 3)), h.pokeAgent, h.agentPass, h.watch(&volumesv1alpha1.NodeVolumeStateList{}, named),
		h.watch(&volumesv1alpha1.VolumeAttachmentIntentList{}, bound))
	h.run(h.random, h.pokeKubelet, h.kubeletPass, h.watch(&corev1.NodeList{}, named), h.watch(&corev1.PodList{}, bound))
	return h
}

func (h *host) watch(list client.ObjectList, fields client.MatchingFields) watch.Interface {
	h.Helper()
	watcher, err := h.client.Watch(h.Context(), list, fields)
	if err != nil {
		h.Fatalf("watching %T: %v", list, err)
	}
	return watcher
}

// run passes again with each event, until the test ends. Sometimes it pauses before.
func (h *host) run(random *rand.Rand, poked chan struct{}, pass func(context.Context) error, a, b watch.Interface) {
	ctx, cancel := context.WithCancel(h.Context())
	done := make(chan struct{})
	h.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		defer a.Stop()
		defer b.Stop()
		for {
			for err := pass(ctx); err != nil && ctx.Err() == nil; err = pass(ctx) {
				if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
					h.Errorf("node %s: error %v, want none, a conflict or not found", h.name, err)
					return
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-a.ResultChan():
			case <-b.ResultChan():
			case <-poked:
			}
			if random.IntN(6) == 0 {
				h.pause(ctx, random)
			}
		}
	}()
}

// mostRenewals is how many renewals of its Lease a host waits for at most when it pauses. A volume can be detached
// meanwhile.
const mostRenewals = 5

// pause waits for a number of renewals of the host's Lease, which continue whatever else waits.
func (h *host) pause(ctx context.Context, random *rand.Rand) {
	for range random.IntN(mostRenewals + 1) {
		select {
		case <-ctx.Done():
			return
		case <-h.renewals.next():
		}
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// agentPass reads the state, checks the node, writes what it saw at the version that it read, and then uses what
// that write allows.
func (h *host) agentPass(ctx context.Context) error {
	nvs, intents := &volumesv1alpha1.NodeVolumeState{}, &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := h.client.Get(ctx, client.ObjectKey{Name: h.name}, nvs); err != nil {
		return client.IgnoreNotFound(err)
	}
	if err := h.client.List(ctx, intents, client.MatchingFields{"spec.nodeName": h.name}); err != nil {
		return err
	}
	before := nvs.DeepCopy()
	nvs.Status.Protocol.ObservedUID, nvs.Status.BootID, nvs.Status.ObservedGeneration = nvs.UID, "boot-1", nvs.Generation
	meta.SetStatusCondition(&nvs.Status.Conditions, metav1.Condition{
		Type: volumesv1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: volumesv1alpha1.ReasonReady,
	})
	h.unmountUnwanted(nvs, intents.Items)
	h.reportVolumes(nvs, intents.Items)
	if !same(before.Status, nvs.Status) {
		nvs.Status.Protocol.Reports++
		if err := h.client.Status().Update(ctx, nvs); err != nil {
			return err
		}
	}
	for i := range nvs.Status.Volumes {
		v := &nvs.Status.Volumes[i]
		if v.InUse && v.PublishedBy == volumesv1alpha1.PublisherAgent && h.uses[v.VolumeName] == "" {
			h.uses[v.VolumeName] = v.AttachmentUID
			h.mounts.mount(place{v.VolumeName, h.name}, byAgent, v.AttachmentUID)
		}
	}
	speaker := &agent{client: h.client}
	return speaker.reportIntents(ctx, nvs, intents.Items)
}

// unmountUnwanted unmounts what the agent is to use no more.
func (h *host) unmountUnwanted(nvs *volumesv1alpha1.NodeVolumeState, intents []volumesv1alpha1.VolumeAttachmentIntent) {
	for name, uid := range h.uses {
		if !h.wants(nvs, intents, name) || handshake.AttachmentOf(nvs, name).AttachmentUID != uid {
			h.mounts.unmount(place{name, h.name}, byAgent)
			delete(h.uses, name)
		}
	}
}

// wants: an intent asks the agent for the volume, and it is attached.
func (h *host) wants(
	nvs *volumesv1alpha1.NodeVolumeState, intents []volumesv1alpha1.VolumeAttachmentIntent, name string,
) bool {
	if e := handshake.AttachmentOf(nvs, name); e == nil || e.State != volumesv1alpha1.AttachmentAttached {
		return false
	}
	return slices.ContainsFunc(intents, func(i volumesv1alpha1.VolumeAttachmentIntent) bool {
		return i.DeletionTimestamp.IsZero() && status.Finalized(&i) && i.Status.UniqueVolumeName == name &&
			i.Spec.Publisher != volumesv1alpha1.PublisherKubelet && i.Spec.DesiredState != volumesv1alpha1.DesiredAttached
	})
}

// reportVolumes reports each volume that the agent uses or is about to use, and each that it sees the kubelet use.
func (h *host) reportVolumes(nvs *volumesv1alpha1.NodeVolumeState, intents []volumesv1alpha1.VolumeAttachmentIntent) {
	kubelets := h.mounts.mountedBy(h.name, byKubelet)
	var lines []volumesv1alpha1.NodeVolume
	for _, name := range namesOf(nvs, kubelets) {
		line := volumesv1alpha1.NodeVolume{VolumeName: name, InUse: true, PublishedBy: volumesv1alpha1.PublisherAgent}
		entry, old := handshake.AttachmentOf(nvs, name), handshake.VolumeOf(nvs, name)
		switch {
		case h.uses[name] != "" || h.wants(nvs, intents, name) &&
			!(kubelets[name] && old != nil && old.AttachmentUID != entry.AttachmentUID):
			line.AttachmentUID = entry.AttachmentUID
		case kubelets[name]:
			line.PublishedBy = volumesv1alpha1.PublisherKubelet
			if entry != nil && entry.State == volumesv1alpha1.AttachmentAttached {
				line.AttachmentUID = entry.AttachmentUID
			}
			if old != nil && old.AttachmentUID != "" {
				line.AttachmentUID = old.AttachmentUID
			}
		default:
			continue
		}
		lines = append(lines, line)
	}
	nvs.Status.Volumes = lines
}

func namesOf(nvs *volumesv1alpha1.NodeVolumeState, more map[string]bool) []string {
	var names []string
	for _, e := range nvs.Spec.Attachments {
		names = append(names, e.VolumeName)
	}
	for name := range more {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// kubeletPass does one pass of a kubelet: it unmounts, reports what it uses, and mounts what it reported and finds
// attached. Sometimes it forgets what it uses, as a restarted kubelet does.
func (h *host) kubeletPass(ctx context.Context) error {
	node, pods := &corev1.Node{}, &corev1.PodList{}
	if err := h.client.List(ctx, pods, client.MatchingFields{"spec.nodeName": h.name}); err != nil {
		return err
	}
	wanted, mounted := map[string]bool{}, h.mounts.mountedBy(h.name, byKubelet)
	for i := range pods.Items {
		for _, v := range pods.Items[i].Spec.Volumes {
			wanted[uniqueName(v.PersistentVolumeClaim.ClaimName)] = true
		}
	}
	inUse := maps.Clone(wanted)
	for name := range mounted {
		switch {
		case wanted[name]:
		case h.random.IntN(2) == 0:
			h.mounts.unmount(place{name, h.name}, byKubelet)
			poke(h.pokeAgent)
		default:
			// It takes its time, and may have been restarted meanwhile.
			inUse[name] = h.random.IntN(2) == 0
			poke(h.pokeKubelet)
		}
	}
	maps.DeleteFunc(inUse, func(_ string, stays bool) bool { return !stays })
	for {
		if err := h.client.Get(ctx, client.ObjectKey{Name: h.name}, node); err != nil {
			return err
		}
		if sameNames(node.Status.VolumesInUse, inUse) {
			break
		}
		if err := h.patchVolumesInUse(ctx, inUse); err != nil {
			return err
		}
	}
	for name := range wanted {
		listed := slices.ContainsFunc(node.Status.VolumesAttached, func(v corev1.AttachedVolume) bool {
			return string(v.Name) == name
		})
		if listed && !mounted[name] {
			if h.random.IntN(4) == 0 {
				h.pause(ctx, h.random)
			}
			h.mounts.mount(place{name, h.name}, byKubelet, "")
			poke(h.pokeAgent)
		}
	}
	return nil
}

// patchVolumesInUse patches volumesInUse as a kubelet does: without a version.
func (h *host) patchVolumesInUse(ctx context.Context, volumes map[string]bool) error {
	names := []string{}
	names = slices.AppendSeq(names, maps.Keys(volumes))
	slices.Sort(names)
	body, err := json.Marshal(map[string]any{"status": map[string]any{"volumesInUse": names}})
	if err != nil {
		return err
	}
	return h.client.Status().Patch(ctx, nodeNamed(h.name), client.RawPatch(types.MergePatchType, body))
}

func sameNames(listed []corev1.UniqueVolumeName, names map[string]bool) bool {
	for _, name := range listed {
		if !names[string(name)] {
			return false
		}
	}
	return len(listed) == len(names)
}

// short is the handle of a volume.
func short(volume string) string { return volume[strings.LastIndex(volume, "^")+1:] }
