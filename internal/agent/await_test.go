/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

// intent waits until the intent is as wanted.
func (n *node) intent(i *volumesv1alpha1.VolumeAttachmentIntent, what string,
	ok func(*volumesv1alpha1.VolumeAttachmentIntent) bool) *volumesv1alpha1.VolumeAttachmentIntent {
	n.t.Helper()
	o := n.await(&volumesv1alpha1.VolumeAttachmentIntentList{}, i.Namespace, i.Name, what, func(o client.Object) bool {
		return ok(o.(*volumesv1alpha1.VolumeAttachmentIntent))
	})
	return o.(*volumesv1alpha1.VolumeAttachmentIntent)
}

func (n *node) ready(i *volumesv1alpha1.VolumeAttachmentIntent) *volumesv1alpha1.VolumeAttachmentIntent {
	n.t.Helper()
	return n.intent(i, "Ready", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return meta.IsStatusConditionTrue(i.Status.Conditions, volumesv1alpha1.ConditionReady) &&
			i.Status.ObservedGeneration == i.Generation
	})
}

// condition waits until a condition has the reason.
func (n *node) condition(i *volumesv1alpha1.VolumeAttachmentIntent, conditionType,
	reason string) *volumesv1alpha1.VolumeAttachmentIntent {
	n.t.Helper()
	return n.intent(i, conditionType+" "+reason, func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		c := meta.FindStatusCondition(i.Status.Conditions, conditionType)
		return c != nil && c.Reason == reason
	})
}

// state waits until the node's state is as wanted.
func (n *node) state(what string, ok func(*volumesv1alpha1.NodeVolumeState) bool) *volumesv1alpha1.NodeVolumeState {
	n.t.Helper()
	o := n.await(&volumesv1alpha1.NodeVolumeStateList{}, "", n.name, what, func(o client.Object) bool {
		return ok(o.(*volumesv1alpha1.NodeVolumeState))
	})
	return o.(*volumesv1alpha1.NodeVolumeState)
}

// gone waits until the agent says nothing of the volume any more.
func (n *node) gone(v testVolume) {
	n.t.Helper()
	n.state(v.handle+" not in use", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return handshake.VolumeOf(s, v.name()) == nil
	})
}

func (n *node) await(list client.ObjectList, namespace, name, what string, ok func(client.Object) bool) client.Object {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	var last client.Object
	if !n.reached(ctx, list, namespace, name, func(o client.Object) bool { last = o; return ok(o) }) {
		n.t.Fatalf("%s did not come about, want that it does; last seen:\n%s\ncalls: %v", what, describe(last),
			n.driver.made())
	}
	return last
}

// reached watches the object until it is as wanted; false when ctx ends before.
func (n *node) reached(ctx context.Context, list client.ObjectList, namespace, name string,
	ok func(client.Object) bool) bool {
	for ctx.Err() == nil {
		w, err := n.client.Watch(ctx, list, client.InNamespace(namespace), client.MatchingFields{"metadata.name": name})
		if err != nil {
			continue
		}
		for e := range w.ResultChan() {
			if o, is := e.Object.(client.Object); is && e.Type != watch.Bookmark && ok(o) {
				w.Stop()
				return true
			}
		}
	}
	return false
}

// called waits until the driver was called so.
func (n *node) called(call string) {
	n.t.Helper()
	n.calledTimes(call, 1)
}

func (n *node) calledTimes(call string, times int) {
	n.t.Helper()
	deadline := time.After(patience)
	for {
		got, more := n.driver.count(call)
		if got >= times {
			return
		}
		select {
		case <-more:
		case <-deadline:
			n.t.Fatalf("driver of node %s: no call %s (%d times), want it; calls: %v", n.name, call, times, n.driver.made())
		}
	}
}

func describe(o client.Object) string {
	switch o := o.(type) {
	case *volumesv1alpha1.VolumeAttachmentIntent:
		return fmt.Sprintf("%+v\nlastError: %+v", o.Status, o.Status.LastError)
	case *volumesv1alpha1.NodeVolumeState:
		return fmt.Sprintf("%+v\n%+v", o.Spec, o.Status)
	}
	return "nothing"
}
