/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/machine"
	"github.com/hawser-io/hawser/test/system"
)

// replaceMachine has another machine come under a node's name. Either the first one is off and was put out of service,
// or it is cut off from the API and goes on with what it has mounted until somebody powers it off. At last an
// administrator declares what is left of it.
func (s *soak) replaceMachine(ctx context.Context) error {
	s.count++
	r := &replacement{
		loss: loss{soak: s, node: pick(s.random, s.sys.Nodes), taint: s.random.IntN(2) == 0,
			before: 5 * shortWhile(s.random),
			// Until then the Lease is the first machine's.
			after: liveness.DefaultDuration + 10*time.Second + 5*shortWhile(s.random)},
		name: fmt.Sprintf("machine-%d", s.count),
	}
	busy := []string{"a node is lost", system.Agent(r.node), "kubelet-" + r.node, system.NodeDriver(r.node)}
	s.meanwhile(busy, func() error { return r.run(ctx) })
	return nil
}

// replacement of a node's machine by one of that name.
type replacement struct {
	loss
	name string
}

func (r *replacement) run(running context.Context) error {
	ctx := context.WithoutCancel(running)
	r.say("%s is cut off, and is to be replaced by %s", r.node, r.name)
	if err := kill(r.sys.Dir, system.Agent(r.node)); err != nil {
		return err
	}
	r.judge.lost(r.node)
	r.hosts[r.node].stopKubelet()
	end := r.replacePartitioned
	if r.taint {
		end = r.replaceDead
	}
	if err := end(ctx, running); err != nil {
		return err
	}
	r.hosts[r.node].startKubelet(running)
	return r.declareOthers(ctx)
}

// replaceDead is what operators are told to do.
func (r *replacement) replaceDead(ctx, running context.Context) error {
	if err := r.sys.SetSilent(r.node, true); err != nil {
		return err
	}
	if err := r.rebootNode(ctx); err != nil {
		return err
	}
	wait(running, r.before)
	r.say("%s is put out of service", r.node)
	if err := r.sys.SetOutOfService(ctx, r.node, true); err != nil {
		return err
	}
	if err := r.deletePods(ctx); err != nil {
		return err
	}
	wait(running, r.after)
	if err := r.begin(ctx); err != nil {
		return err
	}
	if err := r.sys.SetSilent(r.node, false); err != nil {
		return err
	}
	return r.sys.SetOutOfService(ctx, r.node, false)
}

// replacePartitioned powers the first machine off only after the second one has reported.
func (r *replacement) replacePartitioned(ctx, running context.Context) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	wait(running, r.after+r.before)
	if err := kill(r.sys.Dir, system.Agent(r.node)); err != nil {
		return err
	}
	// All mounts of the node are in one kernel, so the second machine goes down with the first one, and comes back.
	if err := r.rebootNode(ctx); err != nil {
		return err
	}
	return r.sys.StartAgain(ctx, system.Agent(r.node))
}

// begin the second machine, with a disk of its own.
func (r *replacement) begin(ctx context.Context) error {
	r.say("%s begins as %s", r.name, r.node)
	if err := r.sys.SetAside(r.node, r.name); err != nil {
		return err
	}
	if err := r.sys.Identify(r.node, r.name); err != nil {
		return err
	}
	return r.sys.StartAgain(ctx, system.Agent(r.node))
}

// declareOthers declares what the machines before it used, as the agent of this one lists it, until nothing is left.
func (r *replacement) declareOthers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.Drain)
	defer cancel()
	uids, err := r.others(ctx)
	for ; err == nil && len(uids) > 0; uids, err = r.others(ctx) {
		r.say("what was used by the machines before %s is declared released on %s: %v", r.name, r.node, uids)
		if err = r.declare(ctx, uids); err != nil {
			break
		}
		if _, err = r.sys.AwaitNode(ctx, r.node, func(nvs *volumesv1alpha1.NodeVolumeState) bool {
			return nvs != nil && !slices.ContainsFunc(usesOfOthers(nvs), func(uid types.UID) bool {
				return slices.Contains(uids, uid)
			})
		}); err != nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("ending what was used by the machines before %s on %s: %w", r.name, r.node, err)
	}
	return nil
}

// others waits for a report of this machine, and returns what other ones use.
func (r *replacement) others(ctx context.Context) ([]types.UID, error) {
	self, err := machine.Read(r.sys.MachineFile(r.node))
	if err != nil {
		return nil, err
	}
	nvs, err := r.sys.AwaitNode(ctx, r.node, func(nvs *volumesv1alpha1.NodeVolumeState) bool {
		return nvs != nil && nvs.Status.Machine == self
	})
	if err != nil {
		return nil, err
	}
	return usesOfOthers(nvs), nil
}

func usesOfOthers(nvs *volumesv1alpha1.NodeVolumeState) []types.UID {
	var uids []types.UID
	for i := range nvs.Status.Volumes {
		if l := &nvs.Status.Volumes[i]; l.Machine != nil && !slices.Contains(uids, l.AttachmentUID) {
			uids = append(uids, l.AttachmentUID)
		}
	}
	return uids
}

func (r *replacement) declare(ctx context.Context, uids []types.UID) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		nvs := &volumesv1alpha1.NodeVolumeState{}
		if err := r.sys.Client.Get(ctx, client.ObjectKey{Name: r.node}, nvs); err != nil {
			return err
		}
		before := nvs.DeepCopy()
		for _, uid := range uids {
			metav1.SetMetaDataAnnotation(&nvs.ObjectMeta, volumesv1alpha1.DeclaredReleasedPrefix+string(uid), "powered off")
		}
		return r.sys.Client.Patch(ctx, nvs, client.MergeFrom(before))
	})
}
